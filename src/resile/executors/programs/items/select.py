"""Selects items and orders them (filter, sort_by, distinct, offset, items_max), and writes the items file.

    texts --number--> (index, text) --filter--> --sort_by--> --distinct--> --offset, items_max--> [index,text] lines

An item's index is its position among all items read. To sort, the items go to a temporary file, and only their keys and
offsets are in memory; `distinct` keeps a digest of each value seen. The items file is written atomically.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from resile.executors.programs.items.text import ItemsRefused, decode, size_error
from resile.model.fanout import Source
from resile.model.folders import create_file, make_folder, put_in_place
from resile.model.limits import ITEM_BYTES_MAX, ITEMS_CHUNK_BYTES, ITEMS_MAX, SORT_KEY_CHARACTERS_MAX

_BATCH_ITEMS = 256
_DIGEST_BYTES = 16
_WHOLE = ("item", "$")

Numbered = Iterator[tuple[int, bytes]]


class SortTerm(NamedTuple):
    """One field to sort by."""

    field: tuple[str, ...]
    descending: bool
    missing_last: bool


def write_items(path: str, texts: Iterable[bytes], source: Source, filter_seconds_max: float = math.inf) -> int:
    """Write the selected items to the items file; return their number."""
    make_folder(os.path.dirname(path))
    items = _number_items(texts)
    if source.filter:
        items = _filter_items(items, source, filter_seconds_max)
    if source.sort_by:
        items = _sort_items(items, sort_terms(source.sort_by), f"{path}.unsorted")
    if source.distinct:
        items = _drop_duplicates(items, field_of(source.distinct))
    end = source.offset + source.items_max if source.items_max else None
    return write_lines(path, (b"[%d,%b]\n" % item for item in islice(items, source.offset, end)))


def write_lines(path: str, lines: Iterable[bytes]) -> int:
    """Write a file atomically; return its number of lines."""
    part = f"{path}.part"
    count = 0
    try:
        with create_file(part) as file:
            for line in lines:
                if count == ITEMS_MAX:
                    raise ItemsRefused(f"there are more than {ITEMS_MAX} items")
                file.write(line)
                count += 1
            put_in_place(file, part, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise
    return count


def sort_terms(text: str) -> tuple[SortTerm, ...]:
    """Parse `sort_by`: `field [ASC|DESC] [NULLS FIRST|LAST]`, several separated by commas."""
    import re

    terms = []
    for part in text.split(","):
        words = re.fullmatch(r"\s*(\S+)(\s+ASC|\s+DESC)?(\s+NULLS\s+(?:FIRST|LAST))?\s*", part, re.IGNORECASE)
        if words is None:
            form = "a field, then ASC or DESC, then NULLS FIRST or NULLS LAST, the latter two as needed"
            raise ItemsRefused(f"sort_by `{text}`: `{part.strip()}` is not {form}")
        order, missing = (word or "" for word in words.groups()[1:])
        terms.append(
            SortTerm(field_of(words[1]), order.upper().endswith("DESC"), not missing.upper().endswith("FIRST"))
        )
    return tuple(terms)


def field_of(text: str) -> tuple[str, ...]:
    """The names that lead to a field: `a.b`, `item.a.b` and `$.a.b` are the same; `item` and `$` are the whole item."""
    names = tuple(text.strip().split("."))
    if names[0] in _WHOLE:
        names = names[1:]
    if "" in names:
        raise ItemsRefused(f"`{text}` is no field: write `name` or `name.inner`")
    return names


def _number_items(texts: Iterable[bytes]) -> Numbered:
    """Number the items by their position among all items."""
    for index, text in enumerate(texts):
        if len(text) > ITEM_BYTES_MAX:
            raise size_error(index, len(text))
        yield index, text


def _filter_items(items: Numbered, source: Source, seconds_max: float) -> Numbered:
    """Keep the items that the filter selects."""
    from resile.executors.programs.items.filter import Filter

    with closing(Filter(source.filter, source.filter_bare, seconds_max)) as wanted:
        for batch in _batches(items):
            for item, answer in zip(batch, wanted.judge(batch), strict=True):
                if answer:
                    yield item


def _batches(items: Numbered) -> Iterator[list[tuple[int, bytes]]]:
    """Items in batches of bounded size."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item[1])
        if len(batch) == _BATCH_ITEMS or size > ITEMS_CHUNK_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sort_items(items: Numbered, terms: tuple[SortTerm, ...], beside: str) -> Numbered:
    """Sort the items; equal ones keep their order."""
    indexes, places = array("Q"), array("Q", [0])
    columns: list[list[tuple[int, Any]]] = [[] for _ in terms]
    with create_file(beside, os.O_RDWR | os.O_TRUNC) as file:
        # The file has no name, so that it disappears with this process, however that ends.
        os.unlink(beside)
        for index, text in items:
            file.write(text)
            indexes.append(index)
            places.append(places[-1] + len(text))
            value = decode(text)
            for term, column in zip(terms, columns, strict=True):
                column.append(_sort_key(value, term, index))
        file.flush()
        order = list(range(len(indexes)))
        for term in reversed(terms):
            order.sort(key=columns.pop().__getitem__, reverse=term.descending)
        for number in order:
            start = places[number]
            yield indexes[number], os.pread(file.fileno(), places[number + 1] - start, start)


def _sort_key(value: Any, term: SortTerm, index: int) -> tuple[int, Any]:
    """The sort key of an item: false, true, numbers, texts, the JSON of anything else; null counts as missing."""
    found = _field(value, term.field)
    if isinstance(found, bool):
        return 0, found
    if isinstance(found, int | float):
        return 1, found
    if found is None:
        # A descending order is reversed, and with it the end at which missing keys go.
        return (4 if term.missing_last != term.descending else -1), 0
    rank, text = (2, found) if isinstance(found, str) else (3, _canonical_text_of(found).decode())
    if len(text) > SORT_KEY_CHARACTERS_MAX:
        name = ".".join(term.field) or "the item"
        raise ItemsRefused(
            f"item {index}: {name} has {len(text)} characters, at most {SORT_KEY_CHARACTERS_MAX} are sorted by"
        )
    return rank, text


def _drop_duplicates(items: Numbered, field: tuple[str, ...]) -> Numbered:
    """Keep the first item of each value of a field; a missing field counts as null.

    A field that no item has is refused: a misspelt one would drop all items but the first without a word.
    """
    import hashlib

    seen: set[bytes] = set()
    count, is_known = 0, False
    for index, text in items:
        value = decode(text)
        count += 1
        is_known = is_known or _has_field(value, field)
        key = _canonical_text_of(_field(value, field))
        if len(key) > _DIGEST_BYTES:
            key = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
        if key not in seen:
            seen.add(key)
            yield index, text
    if count > 1 and not is_known:
        raise ItemsRefused(f"distinct `{'.'.join(field)}`: none of the {count} items has this field")


def _has_field(value: Any, names: tuple[str, ...]) -> bool:
    """Is there a value under these names, be it null?"""
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _field(value: Any, names: tuple[str, ...]) -> Any:
    """The value under these names; None if there is none."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _canonical_text_of(value: Any) -> bytes:
    """A text that is the same for equal values."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        import json

        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
