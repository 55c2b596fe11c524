"""The items of a fan-out: listed into a file of the run's folder, and read from there a chunk at a time.

    Source --items_step.py, started by map.py--> a file or a command's output  \
    Source --list_values----> a list or a step's output, in this process        } items file --read_items--> Items
    Items  --write_letters--> the items of a redrive                           /   groups file --read_groups--> Groups

An items file has one line for each item, `[index,value]`, with its history as a third part in a redrive. It is
written atomically, so a byte offset in it stays valid, and a million items are never in memory at once. A redrive has
a second file beside it, with the offset of each fan-out's letters in the first.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec.structs import replace

from resile.engine.secrets import Hidden, redact_value
from resile.executors.programs.items.text import ItemsRefused, check_item, decode, encode
from resile.model.codec import sha256_hex
from resile.model.fanout import Source
from resile.model.folders import create_file, make_folder, put_in_place
from resile.model.items import Item, LetterGroup
from resile.model.limits import ITEMS_CHUNK_BYTES, ITEMS_FILTER_SECONDS_MAX

LABEL_CHARACTERS_MAX = 100
HEAD_BYTES = 64 * 1024
T = TypeVar("T")

__all__ = [
    "ItemsRefused",
    "check_input",
    "items_path",
    "list_values",
    "read_groups",
    "read_items",
    "redact_items",
    "remove_letters",
    "write_letters",
    "write_list",
]


def items_path(folder: str, label: str) -> str:
    """The path of the items file of one fan-out; a label that is no plain file name is replaced by its digest."""
    plain = label.replace("-", "").replace("_", "").isalnum() and label.isascii()
    name = label if plain and len(label) <= LABEL_CHARACTERS_MAX else sha256_hex(label.encode("utf-8", "surrogatepass"))
    return os.path.join(folder, "items", f"{name}.jsonl")


def list_values(path: str, values: Any, source: Source) -> int:
    """List values from memory into `path`: a list, or a text that is read like a command's output; return their number.

    A `json_path` selects from the list, from the data in the text, or from any other data.
    """
    from resile.executors.programs.items.read import read_texts, select
    from resile.executors.programs.items.select import write_items

    if isinstance(values, str):
        try:
            data = values.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ItemsRefused("the text holds half a character") from error
        texts = read_texts(io.BytesIO(data), "output", source.json_path)
    else:
        listed = isinstance(values, Iterable) and not isinstance(values, dict)
        if source.json_path or not listed:
            values = select(list(values) if listed else values, source.json_path or "$")
        texts = (check_item(encode(value)) for value in values)
    return write_items(path, texts, source, ITEMS_FILTER_SECONDS_MAX)


def write_letters(path: str, groups: Iterable[tuple[LetterGroup, Iterable[Item]]]) -> int:
    """Write the items of a redrive to `path`, with their history, and their groups to a second file; return their
    number.

    This fills in the number of items of each group and their offset. Without any item it leaves no file behind.
    """
    make_folder(os.path.dirname(path))
    total = 0
    parts = (f"{path}.part", f"{_groups_path(path)}.part")
    try:
        with create_file(parts[0]) as file, create_file(parts[1]) as groups_file:
            for group, items in groups:
                offset, before = file.tell(), total
                for item in items:
                    file.write(_line(item) + b"\n")
                    total += 1
                if total > before:
                    groups_file.write(_line(replace(group, total=total - before, offset=offset)) + b"\n")
            put_in_place(file, parts[0], path)
            put_in_place(groups_file, parts[1], _groups_path(path))
    except BaseException:
        remove_letters(path)
        raise
    if not total:
        remove_letters(path)
    return total


def write_list(path: str, items: Iterable[Item]) -> int:
    """Write items to `path`, with their history; return their number."""
    make_folder(os.path.dirname(path))
    count = 0
    with create_file(f"{path}.part") as file:
        for item in items:
            file.write(_line(item) + b"\n")
            count += 1
        put_in_place(file, f"{path}.part", path)
    return count


def remove_letters(path: str) -> None:
    """Remove the two files of a redrive, also if they were not finished."""
    for name in (path, _groups_path(path)):
        for ending in ("", ".part"):
            with suppress(FileNotFoundError):
                os.unlink(name + ending)


def read_groups(path: str, place: int, count: int) -> tuple[tuple[LetterGroup, ...], int, bool]:
    """Read up to `count` fan-outs of a redrive from `place` on; also the place after them, and whether the file ends
    there.
    """
    return _read_lines(_groups_path(path), place, count, lambda line: msgspec.convert(decode(line), LetterGroup))


def _groups_path(path: str) -> str:
    return f"{path}.groups"


def read_items(path: str, place: int, count: int) -> tuple[tuple[Item, ...], int, bool]:
    """Read up to `count` items from `place` on; also the place after them, and whether the file ends there."""
    return _read_lines(path, place, count, _item)


def _read_lines(path: str, place: int, count: int, parse: Callable[[bytes], T]) -> tuple[tuple[T, ...], int, bool]:
    """Read up to `count` lines; fewer where they get large, so that items of any size can be read by their number."""
    found: list[T] = []
    at = place
    with open(path, "rb") as file:
        file.seek(place)
        while len(found) < count and at - place < ITEMS_CHUNK_BYTES and (line := file.readline()):
            found.append(parse(line))
            at += len(line)
        return tuple(found), at, not file.peek(1)


def redact_items(path: str, secrets: Hidden) -> None:
    """Replace every secret in an items file, atomically; doing it again changes nothing."""
    if not secrets:
        return
    from resile.executors.programs.items.select import write_lines

    with open(path, "rb") as file:
        if not any(_may_hide(line, secrets) for line in file):
            return
        file.seek(0)
        write_lines(path, (_without(line, secrets) for line in file))


def _may_hide(line: bytes, secrets: Hidden) -> bool:
    """May a line hold a secret? One with JSON escapes must be parsed to tell; most others need no parsing."""
    return b"\\" in line or secrets.redact_bytes(line) != line


def _without(line: bytes, secrets: Hidden) -> bytes:
    """The line of an item with every secret in it replaced."""
    if not _may_hide(line, secrets):
        return line
    item = _item(line)
    value = redact_value(item.value, secrets)
    return line if value == item.value else _line(replace(item, value=value)) + b"\n"


def check_input(source: Source, folder: str, directory: str) -> str:
    """What is wrong with a source, as far as a quick check before the run can tell; empty if it is fine.

    The check reads only the first part of a large file, and skips a path that contains a template.
    """
    from resile.executors.programs.items.read import compile_path, form_of, is_plain, open_input, read_texts
    from resile.executors.programs.items.select import field_of, sort_terms

    label = ""
    try:
        if source.sort_by:
            sort_terms(source.sort_by)
        if source.distinct:
            field_of(source.distinct)
        if "${" in source.json_path:
            return ""
        if not is_plain(source.json_path):
            compile_path(source.json_path)
        if source.path and "${" not in source.path:
            with open_input(source.path, folder, directory) as file:
                label = f"{source.path}: "
                for _ in read_texts(_Head(file), form_of(source.path), source.json_path):
                    pass
    except ItemsRefused as problem:
        return f"{label}{problem.message}"
    except _HeadEnded:
        return ""
    return ""


class _HeadEnded(Exception):
    """The first part of the file was read to its end, and the file is longer."""


class _Head(io.BytesIO):
    """The first part of a file; raises _HeadEnded where the part ends before the file does."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file.read(HEAD_BYTES))
        self._more = bool(file.read(1))

    def read(self, size: int | None = -1, /) -> bytes:
        """Read like any file; raises _HeadEnded at the end of the part."""
        data = super().read(size)
        if self._more and (not data or size is None or size < 0):
            raise _HeadEnded
        return data

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line like any file; raises _HeadEnded for a line that the end of the part cuts off."""
        data = super().readline(size)
        if self._more and not data.endswith(b"\n"):
            raise _HeadEnded
        return data


@cache
def _decoder() -> msgspec.json.Decoder[Item]:
    return msgspec.json.Decoder(Item)


def _item(line: bytes) -> Item:
    """The item of a line."""
    try:
        return _decoder().decode(line)
    except msgspec.DecodeError:
        # Bytes that were not UTF-8 are surrogates here, which only the slower decoder accepts.
        return msgspec.convert(decode(line), Item)


def _line(item: Item | LetterGroup) -> bytes:
    """The line of an item, or of a fan-out."""
    try:
        return msgspec.json.encode(item)
    except UnicodeEncodeError:
        return encode(msgspec.to_builtins(item))
