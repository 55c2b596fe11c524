"""YAML 1.2 with positions."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import math

import pytest

from resile.dialects.formats.nodes import Mapping, Scalar, Sequence, plain
from resile.dialects.formats.yaml import parse
from resile.dialects.reading.diagnostics import Diagnostics
from resile.model.limits import FILE_BYTES_MAX


def read(text: str | bytes) -> object:
    """The plain value of a text without findings."""
    report = Diagnostics("f")
    node = parse(text.encode() if isinstance(text, str) else text, report)
    assert report.findings() == ()
    assert node is not None
    return plain(node)


def findings(text: str | bytes) -> list[tuple[str, int, int, str]]:
    """What is wrong with a text: code, line, column, message."""
    report = Diagnostics("f")
    parse(text.encode() if isinstance(text, str) else text, report)
    return [(f.code, f.line, f.column, f.message) for f in report.findings()]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"), ("on", "on"), ("Off", "Off"), ("1:10", "1:10"), ("12:30:45", "12:30:45"), ("2026-01-01", "2026-01-01"),
        ("012", 12), ("0o17", 15), ("0x1F", 31), ("-7", -7), ("+7", 7), ("1_000", "1_000"), ("0b1", "0b1"), ("1.5", 1.5),
        (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-.inf", -math.inf), (".Inf", math.inf), ("true", True), ("False", False),
        ("tRUE", "tRUE"), ("null", None), ("~", None), ("", None), ("'1'", "1"), ('"true"', "true"), ("!!str 12", "12"),
        ("!!int '12'", 12), ("!!float 1", 1.0), ("!!null ''", None), ("-", None), ("1.2.3", "1.2.3"),
        ("0o8", "0o8"), ("9" * 5000, "9" * 5000), ("- ", [None]), ("é", "é"), ("=", "="), ("!!seq [a]", ["a"]),
    ],
)  # fmt: skip
def test_scalars(written: str, value: object) -> None:
    """Scalars mean what the core schema of YAML 1.2 says."""
    got = read(f"k: {written}\n" if written not in ("-", "- ") else f"k:\n{written}\n")
    expected = {"k": [None] if written in ("-", "- ") else value}
    assert got == expected
    assert type(got["k"]) is type(expected["k"])  # type: ignore[index]


def test_positions() -> None:
    """Every node knows its line and column, counted from 1, in characters."""
    report = Diagnostics("f")
    root = parse("é: x\nlist:\n  - [a, {b: c}]\n".encode(), report)
    assert isinstance(root, Mapping)
    key, value = root.entries["é"]
    assert (key.line, key.column, value.line, value.column) == (1, 1, 1, 4)
    items = root.entries["list"][1]
    assert isinstance(items, Sequence)
    inner = items.items[0]
    assert isinstance(inner, Sequence)
    assert (inner.line, inner.column) == (3, 5)
    assert isinstance(inner.items[1], Mapping)
    scalar = inner.items[1].entries["b"][1]
    assert isinstance(scalar, Scalar)
    assert (scalar.line, scalar.column, scalar.text) == (3, 13, "c")


def test_json_is_yaml() -> None:
    """A JSON document is read as it is, tabs included."""
    assert read('{\n\t"a": [1, 2.5, true, null, "x\\u00e9\\n"],\n\t"b": {}\n}') == {
        "a": [1, 2.5, True, None, "xé\n"],
        "b": {},
    }


def test_aliases() -> None:
    """An alias is the node of its anchor."""
    assert read("a: &x {k: [1]}\nb: *x\nc: [*x, &y 5, *y]\n") == {
        "a": {"k": [1]},
        "b": {"k": [1]},
        "c": [{"k": [1]}, 5, 5],
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [("empty", 1, 1, "the file is empty")]),
        ("# only a comment\n", [("empty", 1, 1, "the file is empty")]),
        ("---\n...\n", [("empty", 1, 1, "the file is empty")]),
        ("~", [("empty", 1, 1, "the file is empty")]),
        ("a: 1\nb: \0", [("encoding", 2, 4, "this is not a text file: byte 8 is NUL")]),
        (b"\x7fELF\x02\x01\x01\0", [("encoding", 1, 8, "this is not a text file: byte 7 is NUL")]),
        ("a: é\nb: ".encode() + b"\xff", [("encoding", 2, 4, "this is not UTF-8 text: byte 9 is 0xff")]),
        ("a: \x01", [("yaml", 1, 4, "the character U+0001 can't stand in YAML text")]),
        ("a:\n\tb: 1", [("yaml", 2, 1, "a tab can't indent YAML")]),
        ("a:\n  b: 1\n c: 2", [("yaml", 3, 2, "this line is indented by 1 space, the lines above it by 2 or 0")]),
        ("a:\n- b: 1\n # c\n   - c: 2", [("yaml", 4, 4, "this line is indented by 3 spaces, the lines above it by 0")]),
        ("a:\n  b: 1\n    c: 2", [("yaml", 3, 6, "this line is indented deeper than `b: 1`, which has a value already")]),
        ("a: b: c", [("yaml", 1, 5, "mapping values are not allowed in this context: `a: b: c`")]),
        ("a: [1, 2", [("yaml", 2, 1, "did not find expected ',' or ']' (while parsing a flow sequence that began at 1:4)")]),
        ("a: 'x", [("yaml", 1, 6, "found unexpected end of stream (while scanning a quoted scalar that began at 1:4)"
                    ": `a: 'x`")]),
        ("a: 1\n---\nb: 2", [("yaml", 2, 1, "a second document starts here")]),
        ("a: 1\nb: 2\na: 3\n", [("duplicate-key", 3, 1, "the key `a` is here twice; the first is at 1:1")]),
        ("a: {b: 1, b: 2}\n", [("duplicate-key", 1, 11, "the key `b` is here twice; the first is at 1:5")]),
        ("1: a\ntrue: b\n~: c\n", [("key-type", 1, 1, "a key must be text, not `1`"),
                                   ("key-type", 2, 1, "a key must be text, not `true`"),
                                   ("key-type", 3, 1, "a key must be text, not nothing")]),
        ("[a]: b\n", [("yaml", 1, 1, "a key must be text, not a list")]),
        ("{a: b}: c\n", [("yaml", 1, 1, "a key must be text, not a mapping")]),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", [("yaml", 3, 3, "`<<` does not merge here")]),
        ("a: !!python/object:os.system x", [("yaml", 1, 4, "the tag `tag:yaml.org,2002:python/object:os.system` is not known here")]),
        ("a: !custom {b: 1}", [("yaml", 1, 4, "the tag `!custom` is not known here")]),
        ("a: !!int x", [("yaml", 1, 4, "`x` is not of the type !!int")]),
        ("a: *x", [("yaml", 1, 4, "nothing above is anchored as `&x`")]),
        ("a: &x [*x]", [("yaml", 1, 8, "the alias `*x` stands inside its own anchor")]),
        ("[" * 51 + "]" * 51, [("limit", 1, 51, "nested deeper than 50 levels")]),
    ],
)  # fmt: skip
def test_refused(text: str | bytes, found: list[tuple[str, int, int, str]]) -> None:
    """What a workflow file must not hold is named with its place."""
    assert findings(text) == found


@pytest.mark.parametrize(("text", "column"), [("a: {shell: echo ${b.c}, d: 1}", 18), ("a: [1, ${b}]", 9)])
def test_unquoted_value_in_a_flow_collection(text: str, column: int) -> None:
    """The error of an unquoted `${` inside braces or brackets has the remedy as its hint."""
    report = Diagnostics("f")
    parse(text.encode(), report)
    [found] = report.findings()
    assert (found.line, found.column) == (1, column)
    assert found.hint == "inside {…} and […], quote a value that holds `${`"


def test_fifty_levels_are_allowed() -> None:
    """The limit itself is allowed."""
    assert findings("[" * 50 + "]" * 50) == []


def test_alias_bomb() -> None:
    """Aliases of aliases are refused by the number of nodes they stand for."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 8)]
    assert findings("\n".join(lines)) == [("limit", 7, 10, "aliases expand to more than 1000000 nodes")]


def test_alias_depth() -> None:
    """Aliases can't nest deeper than a text could."""
    lines = ["a0: &a0 [[[[[[[[[[x]]]]]]]]]]"]
    lines += [f"a{n}: &a{n} [[[[[[[[[[*a{n - 1}]]]]]]]]]]" for n in range(1, 6)]
    assert findings("\n".join(lines)) == [("limit", 5, 19, "nested deeper than 50 levels by aliases")]


def test_file_size() -> None:
    """A file above the limit is not parsed."""
    assert findings(b"a: " + b"x" * FILE_BYTES_MAX) == [("limit", 0, 0, "the file is larger than 32 MB")]
