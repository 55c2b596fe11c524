"""Which items are taken and in which order, and the items file as the engine reads and writes it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from resile.engine.items.listing import (
    HEAD_BYTES,
    ItemsRefused,
    check_input,
    items_path,
    list_values,
    read_groups,
    read_items,
    remove_letters,
    write_letters,
)
from resile.executors.programs.items.scan import elements
from resile.executors.programs.items.select import write_items, write_lines
from resile.model.fanout import Source
from resile.model.items import Item, ItemFailure, LetterGroup
from resile.model.limits import EXPRESSION_BYTES_MAX, ITEMS_CHUNK_BYTES, ITEMS_MAX, SORT_KEY_CHARACTERS_MAX
from tests.engine.listing import Listing


@pytest.fixture
def listing(tmp_path: Path) -> Listing:
    """A fresh folder."""
    return Listing(tmp_path)


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., list[Any]]:
    """Lists values in this process: the items that are taken, or with `indexes` their places in the input."""
    into = items_path(str(tmp_path), "map")

    def _take(values: Any, indexes: bool = False, **keys: Any) -> list[Any]:
        count = list_values(into, values, Source(**keys))
        items, _, ended = read_items(into, 0, ITEMS_MAX)
        assert (len(items), ended) == (count, True)
        return [item.index if indexes else item.value for item in items]

    return _take


ROWS = [{"n": 3, "s": "b"}, {"n": 1, "s": "a"}, {"n": 2, "s": "b"}, {"s": "c"}]


@pytest.mark.parametrize(
    ("code", "indexes"),
    [
        ("item.n > 1", [0, 2]),
        ("n > 1 && s == 'b'", [0, 2]),
        ("n === undefined", [3]),
        ("typeof item.s === 'string' && !item.n", [3]),
        ("contains(s, 'B')", [0, 2]),
        ("[1, 3].includes(n)", [0, 1]),
        ("/[ac]/.test(s)", [1, 3]),
        ("nobody", []),
        ("s", [0, 1, 2, 3]),
    ],
)
def test_a_filter_sees_the_item_and_its_fields(take: Callable[..., list[Any]], code: str, indexes: list[int]) -> None:
    """Items for which the expression is true are kept with their indexes; a field that is not there is undefined."""
    assert take(ROWS, indexes=True, filter=code, filter_bare=True) == indexes


def test_fields_are_bare_only_where_that_is_asked_for(take: Callable[..., list[Any]]) -> None:
    """Without it a field's name is unknown, with it the item's own name stays the item, and other items have none."""
    with pytest.raises(ItemsRefused, match=r"^filter at item 0: ReferenceError: n is not defined$"):
        take(ROWS, filter="n > 1")
    assert take([{"item": 1}, {"x": 2}, "abc", [5]], filter="item.item === 1", filter_bare=True) == [{"item": 1}]
    assert take([{"length": 2}, "ab", [1, 2]], filter="length === 2", filter_bare=True) == [{"length": 2}]
    assert take([{"Math": 5}, {"x": 4}], filter="(x ? Math.sqrt(x) : Math) > 1", filter_bare=True) == [
        {"Math": 5},
        {"x": 4},
    ]


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("item.a.b.c", "TypeError: cannot read property 'c' of undefined"),
        ("item.a.n == 2 ? (() => { throw 'no' })() : 1", "no"),
        ("item.a.n == 2 ? (() => { for (;;); })() : 1", "it took more than 25 ms of CPU time"),
        (
            "item.a.n == 2 ? 'a'.repeat(3e5).indexOf('a'.repeat(1.5e5) + 'b') : 1",
            "it took too much CPU time and could not be asked to stop",
        ),
        ("item.a.n == 2 ? '\\ud800\\0'.x.y : 1", "TypeError: cannot read property 'y' of undefined"),
        ("item.a.n == 2 ? (item.a = 5) : 1", "TypeError: 'a' is read-only"),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_a_filter_that_fails_names_the_item(listing: Listing, code: str, complaint: str, bare: bool) -> None:
    """What an expression throws, and one that does not end, is refused with the index of the item."""
    rows = [{"a": {"n": n, "b": {}}} for n in range(4)]
    rows[2] = {"a": {"n": 2}}
    complaint = f"in.json: filter at item 2: {complaint}"
    assert listing.refused(json.dumps(rows), filter=code, filter_bare=bare) == complaint


@pytest.mark.parametrize("bare", [False, True])
def test_a_filter_remembers_nothing(take: Callable[..., list[Any]], bare: bool) -> None:
    """No item can leave anything behind for the next one, and code finds nothing but data and its helpers."""
    for code in ("Object.prototype.seen = 1", "Math.seen = 1", "seen = 1", "JSON.parse = 1"):
        with pytest.raises(ItemsRefused, match=r"^filter at item 0: (TypeError|ReferenceError)"):
            take([1], filter=code, filter_bare=bare)
    names = ("eval", "Function", "Proxy", "globalThis", "std", "os", "process", "fields", "scope")
    assert take(list(names), filter=f"[{', '.join(f'typeof {n}' for n in names)}].some(t => t != 'undefined')") == []


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("item => item.n", "the filter is a function"),
        ("item.n >", "SyntaxError"),
        ("x" * (EXPRESSION_BYTES_MAX + 1), f"the filter has {EXPRESSION_BYTES_MAX + 1} bytes"),
    ],
)
def test_what_is_no_expression_is_refused(take: Callable[..., list[Any]], code: str, complaint: str) -> None:
    """A function, broken code and more code than is allowed never pass as a filter."""
    with pytest.raises(ItemsRefused, match=complaint):
        take(ROWS, filter=code)


def test_a_filter_in_the_engine_ends_in_time(listing: Listing) -> None:
    """A list that takes the filter longer than it may is refused after a bundle of items."""
    with pytest.raises(ItemsRefused, match=r"^the filter took more than 0 s, up to item 255$"):
        write_items(listing.into, [b"1"] * 1_000, Source(filter="true"), 0.0)
    assert listing.left() == []


MIXED = ["b", 2, None, 10, "a", True, [1], {"k": 1}, False, 1.5, "B"]


@pytest.mark.parametrize(
    ("sort_by", "values", "expected"),
    [
        ("item", MIXED, [False, True, 1.5, 2, 10, "B", "a", "b", [1], {"k": 1}, None]),
        ("$ DESC", [3, None, "x", 1], ["x", 3, 1, None]),
        ("item desc nulls first", [3, None, 1], [None, 3, 1]),
        ("item NULLS FIRST", [3, None, 1], [None, 1, 3]),
        ("a.b", [{"a": {"b": 2}}, {"a": 5}, {"a": {"b": 1}}, {}], [{"a": {"b": 1}}, {"a": {"b": 2}}, {"a": 5}, {}]),
        ("item.b", [{"b": 2}, {"b": 1}], [{"b": 1}, {"b": 2}]),
        ("a DESC, b ASC NULLS LAST", [[1, 2], [2, 9], [1, 1], [2, 3]], [[2, 3], [2, 9], [1, 1], [1, 2]]),
        ("a", [[1, 3], [0, 2], [1, 1]], [[0, 2], [1, 3], [1, 1]]),
        ("a DESC", [[1, 3], [0, 2], [1, 1]], [[1, 3], [1, 1], [0, 2]]),
    ],
)
def test_items_are_sorted(take: Callable[..., list[Any]], sort_by: str, values: list[Any], expected: list[Any]) -> None:
    """Numbers come before texts, missing ones last in either direction unless told, and those alike stay in order."""
    if sort_by.startswith("a") and sort_by != "a.b":
        values, expected = ([{"a": a, "b": b} for a, b in pairs] for pairs in (values, expected))
    assert take(values, sort_by=sort_by) == expected


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"sort_by": "a UP"}, "sort_by `a UP`: `a UP` is not a field"),
        ({"sort_by": "a,"}, "sort_by `a,`: `` is not a field"),
        ({"sort_by": "a..b"}, "`a..b` is no field"),
        ({"distinct": "a."}, "`a.` is no field"),
        ({"json_path": "a["}, "json_path `a\\[` is no JSONPath"),
        ({"sort_by": "item"}, f"item 1: the item has {SORT_KEY_CHARACTERS_MAX + 1} characters"),
    ],
)
def test_keys_that_say_nothing_are_refused(
    take: Callable[..., list[Any]], keys: dict[str, str], complaint: str
) -> None:
    """What can't be read as an order, a field or a path is an error, and so is a text too long to sort by."""
    with pytest.raises(ItemsRefused, match=f"^{complaint}"):
        take([1, "x" * (SORT_KEY_CHARACTERS_MAX + 1)], **keys)


@pytest.mark.parametrize(
    ("distinct", "values", "indexes"),
    [
        ("k", [{"k": 1}, {"k": 2}, {"k": 1, "x": 0}, {}, {"k": None}, {"k": "1"}], [0, 1, 3, 5]),
        ("item.k.l", [{"k": {"l": 1}}, {"k": {"l": 1}}, {"k": 1}], [0, 2]),
        ("item", [{"a": 1, "b": [2]}, {"b": [2], "a": 1}, 1, "1", 1, "\udcff", "\udcff"], [0, 2, 3, 5]),
        ("$", ["x" * 100, "x" * 100, "x" * 99], [0, 2]),
    ],
)
def test_distinct_keeps_the_first(
    take: Callable[..., list[Any]], distinct: str, values: list[Any], indexes: list[int]
) -> None:
    """One item of each value stays, the first; a field that is not there is the same as null."""
    assert take(values, indexes=True, distinct=distinct) == indexes


def test_the_stages_come_in_their_order(listing: Listing) -> None:
    """Filter, sort, distinct, offset and the limit work in this order, and an item keeps the index it came with."""
    rows = [{"id": n, "kind": n % 3, "ok": n != 9} for n in range(12)]
    keys = {"json_path": "$.rows[*]", "filter": "item.ok", "sort_by": "id DESC", "distinct": "kind"}
    text = json.dumps({"rows": rows})
    assert [index for index, _ in listing.items(text, **keys)] == [11, 10, 6]
    assert [index for index, _ in listing.items(text, **keys, offset=1)] == [10, 6]
    assert [index for index, _ in listing.items(text, **keys, offset=1, items_max=1)] == [10]
    assert listing.items(text, **keys, offset=3) == []
    assert listing.left() == ["map.jsonl"]


@pytest.mark.parametrize(
    ("values", "distinct", "complaint"),
    [
        ([{"id": 1}, {"id": 2}], "idd", "distinct `idd`: none of the 2 items has this field"),
        ([{"a": {"b": 1}}, {"a": 2}, 3], "item.a.c", "distinct `a.c`: none of the 3 items has this field"),
    ],
)
def test_distinct_by_a_field_that_no_item_has_is_refused(
    take: Callable[..., list[Any]], values: list[Any], distinct: str, complaint: str
) -> None:
    """It would drop all items but the first; a field that is null in all of them is there."""
    with pytest.raises(ItemsRefused, match=f"^{complaint}$"):
        take(values, distinct=distinct)
    assert take([{"k": None}, {"k": None}], indexes=True, distinct="k") == [0]
    assert take([{"id": 1}], indexes=True, distinct="idd") == [0]


def test_what_is_not_needed_is_not_read(listing: Listing) -> None:
    """With a limit on the items nothing after the last one is looked at, unless they are sorted."""
    text = '{"id": 1}\n{"id": 2}\noops\n'
    assert listing.items(text, name="in.jsonl", items_max=2) == [(0, {"id": 1}), (1, {"id": 2})]
    os.unlink(listing.into)
    assert "line 3" in listing.refused(text, name="in.jsonl", items_max=2, sort_by="id")


@given(
    rows=st.lists(st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 5)}), max_size=20),
    terms=st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=2),
    distinct=st.sampled_from(["", "a", "b"]),
    offset=st.integers(0, 5),
    items_max=st.integers(0, 8),
)
@settings(max_examples=60, deadline=None)
def test_what_is_taken_is_what_lists_would_give(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, int]],
    terms: list[tuple[str, bool]],
    distinct: str,
    offset: int,
    items_max: int,
) -> None:
    """For any rows and keys the result is that of plain lists in memory."""
    expected = list(enumerate(rows))
    for field, descending in reversed(terms):
        expected.sort(key=lambda item: item[1][field], reverse=descending)
    if distinct:
        firsts: dict[int, tuple[int, dict[str, int]]] = {}
        for item in expected:
            firsts.setdefault(item[1][distinct], item)
        expected = list(firsts.values())
    expected = expected[offset : offset + items_max] if items_max else expected[offset:]
    sort_by = ", ".join(f"{field}{' DESC' if descending else ''}" for field, descending in terms)
    into = str(tmp_path_factory.getbasetemp() / "items.jsonl")
    list_values(into, rows, Source(sort_by=sort_by, distinct=distinct, offset=offset, items_max=items_max))
    assert [(item.index, item.value) for item in read_items(into, 0, 100)[0]] == expected


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('a"\\[]{},:é '),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab"\\}', max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(
    values=st.lists(JSON_VALUES, max_size=6),
    others=st.dictionaries(st.text("abx", max_size=2), JSON_VALUES, max_size=3),
    steps=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    indent=st.sampled_from([None, 1]),
    cut=st.floats(0.0, 1.0, exclude_max=True),
)
@settings(max_examples=150, deadline=None)
def test_the_scanner_reads_what_json_reads(
    values: list[Any], others: dict[str, Any], steps: list[int], indent: int | None, cut: float
) -> None:
    """Wherever the pieces of a text end, its elements are those that json finds; and a text cut short is refused."""
    text = json.dumps({**others, "a": {**others, "b": values}, "z": others}, indent=indent).encode()
    assert [json.loads(element) for element in _scanned(text, steps)] == values
    with pytest.raises(ItemsRefused):
        _scanned(text[: int(len(text) * cut)], steps)


def _scanned(text: bytes, steps: Sequence[int]) -> list[bytes]:
    """The elements under $.a.b of a text that comes in pieces of these sizes."""
    file = io.BytesIO(text)
    sizes = iter(steps * len(text))
    return list(elements(lambda _: file.read(next(sizes, 1)), ("a", "b")))


@pytest.mark.parametrize(
    ("values", "keys", "expected"),
    [
        ((1, "a", None), {}, [1, "a", None]),
        ([{"x": 1}, {"x": 2}], {"json_path": "$[*].x"}, [1, 2]),
        ({"l": [1, 2]}, {"json_path": "$.l"}, [1, 2]),
        ('{"l": [1, 2]}', {"json_path": "$.l"}, [1, 2]),
        ("one\n\ntwo", {}, ["one", "two"]),
        ("[1, 2]", {}, [1, 2]),
        ("", {}, []),
        (["\udcff", "\ud800"], {}, ["\udcff", "\ud800"]),
        ("caf\udce9", {}, ["caf\udce9"]),
        ([[[]], {"a": (1, 2**70)}], {}, [[[]], {"a": [1, 2**70]}]),
    ],
)
def test_what_is_in_memory_is_listed_as_a_file_is(
    take: Callable[..., list[Any]], values: Any, keys: dict[str, str], expected: list[Any]
) -> None:
    """A list means its elements, a step's text is read as a command's output, and other data needs a path."""
    assert take(values, **keys) == expected


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"l": [1]}, "$ is an object, not an array"),
        (5, "$ is a number, not an array"),
        (None, "$ is null, not an array"),
        ("null", "$ is null, not an array"),
        ("\ud800", "the text holds half a character"),
        ([float("nan")], "a number can't be written as JSON: Out of range float values are not JSON compliant"),
    ],
)
def test_what_is_no_list_is_refused(take: Callable[..., list[Any]], values: Any, complaint: str) -> None:
    """Data in memory that is no list of JSON values is an error and never zero items."""
    with pytest.raises(ItemsRefused) as refused:
        take(values)
    assert refused.value.message.startswith(complaint)


def test_items_are_read_in_chunks(listing: Listing) -> None:
    """A chunk ends with its number of items, with its size, and with the file, and the next begins where it ended."""
    assert list_values(listing.into, ["x" * 600_000, 1, "y" * 600_000, 2, 3], Source()) == 5
    places, chunks, ended = [0], [], False
    while not ended:
        items, place, ended = read_items(listing.into, places[-1], 2)
        places.append(place)
        chunks.append([item.index for item in items])
    assert chunks == [[0, 1], [2, 3], [4]]
    assert places[-1] == os.path.getsize(listing.into)
    assert [item.index for item in read_items(listing.into, 0, 100)[0]] == [0, 1, 2]
    assert places[1] < ITEMS_CHUNK_BYTES < read_items(listing.into, 0, 100)[1]
    assert list_values(listing.into, [], Source()) == 0
    assert read_items(listing.into, 0, 2) == ((), 0, True)


def test_letters_come_back_with_their_history(listing: Listing) -> None:
    """A redrive reads the items that were written for it, with what happened to each before."""
    failed = ItemFailure(1, 1.5, "s", "exit", "no \udcff", 3, "err", "sig", 0.1, 7, 2, 1)
    items = (Item(4, {"a": "\udcff"}, (failed, failed)), Item(2, None))
    one, none, two = (LetterGroup(name, 7, 0, 0, ({"a": "\udcff"},)) for name in ("x", "y", "z"))
    groups = ((one, iter(items)), (none, iter(())), (two, iter(items[1:])))
    assert write_letters(listing.into, groups) == 3
    first = os.path.getsize(listing.into) - len("[2,null,[]]\n")
    assert read_items(listing.into, 0, 2) == (items, first, False)
    found = (replace(one, total=2), replace(two, total=1, offset=first))
    assert read_groups(listing.into, 0, 10) == (found, os.path.getsize(f"{listing.into}.groups"), True)
    assert read_groups(listing.into, 0, 1)[0::2] == (found[:1], False)
    assert read_items(listing.into, first, 1) == (items[1:], os.path.getsize(listing.into), True)
    assert listing.left() == ["map.jsonl", "map.jsonl.groups"]
    remove_letters(listing.into)
    assert (write_letters(listing.into, [(none, iter(()))]), listing.left()) == (0, [])


def test_there_are_not_more_items_than_allowed(listing: Listing) -> None:
    """One item too many is refused, and nothing is left of the others."""
    os.makedirs(os.path.dirname(listing.into))
    with pytest.raises(ItemsRefused, match=f"^there are more than {ITEMS_MAX} items$"):
        write_lines(listing.into, (b"\n" for _ in range(ITEMS_MAX + 1)))
    assert listing.left() == []


def test_each_label_has_a_file_of_its_own() -> None:
    """A label that is no plain name stays inside the folder and keeps apart from others."""
    assert items_path("f", "j7_r1-a") == "f/items/j7_r1-a.jsonl"
    strange = [items_path("f", label) for label in ("../x", "a/b", "a b", "", "x" * 500, "é")]
    assert len(set(strange)) == len(strange)
    assert all(os.path.dirname(path) == "f/items" and len(os.path.basename(path)) == 70 for path in strange)


@pytest.mark.parametrize(
    ("name", "content", "keys", "complaint"),
    [
        ("in.json", "[1]", {}, ""),
        ("in.jsonl", "1\n" * 6 + "{\n", {}, "in.jsonl: line 7: this is no JSON: Input data was truncated"),
        ("in.json", "{}", {"json_path": "$.a"}, "in.json: nothing is there under $.a"),
        ("in.json", "{}", {"json_path": "$.${inputs.a}"}, ""),
        ("in.json", "oops", {}, "in.json: this is no JSON: no value begins like this (byte 0)"),
        ("in.json", f"[{'1,' * HEAD_BYTES}oops", {}, ""),
        ("in.json", f"[\noops, {'1,' * HEAD_BYTES}", {}, "in.json: item 0: this is no JSON"),
        ("in.json", f"[\n{'1,' * HEAD_BYTES}oops", {"json_path": "$[?@ > 1]"}, ""),
        ("in.jsonl", "1\n" * HEAD_BYTES + "oops", {}, ""),
        ("in.jsonl", "1\noops\n" + "1\n" * HEAD_BYTES, {}, "in.jsonl: line 2: this is no JSON"),
        ("in.jsonl", f'"{"x" * HEAD_BYTES}"\n', {}, ""),
        ("in.json", "[1]", {"path": "no.json"}, "there is no file no.json (looked for in "),
        ("in.json", "[1]", {"path": "${inputs.f}.json"}, ""),
        ("in.json", "[1]", {"path": "", "command": "cat no.json"}, ""),
        ("in.json", "[1]", {"json_path": "$["}, "json_path `$[` is no JSONPath"),
        ("in.json", "[1]", {"sort_by": "a b"}, "sort_by `a b`"),
        ("in.json", "[1]", {"distinct": "a..b"}, "`a..b` is no field"),
    ],
)
def test_what_can_be_known_is_said_before_a_run(
    tmp_path: Path, name: str, content: str, keys: dict[str, str], complaint: str
) -> None:
    """A missing or malformed file and keys that say nothing are found without reading more than the head of a file."""
    (tmp_path / name).write_text(content)
    found = check_input(Source(**{"path": name, **keys}), str(tmp_path / "flows"), str(tmp_path))
    assert found.startswith(complaint)
    assert bool(found) == bool(complaint)
