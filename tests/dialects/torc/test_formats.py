"""The four languages of Torc files: one workflow comes out of all of them, and each refuses what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.dialects.compile import compile_file, compile_text
from resile.dialects.formats.json5 import parse_json5
from resile.dialects.formats.kdl import parse_document
from resile.dialects.formats.nodes import plain
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.torc.kdl_workflow import parse_kdl

FILES = Path(__file__).parent.parent / "files" / "torc"


def without_places(data: Any) -> Any:
    """Data of a workflow without what tells of the file."""
    if isinstance(data, dict):
        return {key: without_places(value) for key, value in data.items() if key not in ("origin", "file", "folder")}
    return [without_places(item) for item in data] if isinstance(data, list) else data


def test_four_languages_one_workflow() -> None:
    """The same survey in YAML, JSON, JSON5 and KDL compiles to the same workflow."""
    results = [compile_file(FILES / f"survey.{ending}") for ending in ("yaml", "json", "json5", "kdl")]
    assert [result.dialect for result in results] == ["torc"] * 4
    bare = [without_places(msgspec.json.decode(msgspec.json.encode(result.workflow))) for result in results]
    assert bare[1:] == [bare[0]] * 3
    assert len(bare[0]["steps"]) == 14


def read(parse: Any, text: str) -> tuple[Any, list[tuple[str, int, int]]]:
    """What a parser makes of a text, as plain data, and the errors with their places."""
    report = Diagnostics("flow")
    root = parse(text.encode("utf-8", "surrogateescape"), report)
    return None if root is None else plain(root), [(found.message, found.line, found.column) for found in report.errors]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 1, 'b': [0x1F, -0x2, .5, 5., +1e3, -0], c: true,}",
         {"a": 1, "b": [31, -2, 0.5, 5.0, 1000.0, 0], "c": True}),
        ("[null, false, Infinity, -Infinity]", [None, False, float("inf"), float("-inf")]),
        ("// c\n'a\\\nb\\x41\\u00e9\\n\\'\\q\\0'/* d */", "abA\u00e9\n'q\0"),
        ('{$_x1: "\\ud83d\\ude00", \\u0061: \'"\'}', {"$_x1": "\U0001f600", "a": '"'}),
        ("\ufeff\u00a0[\u2028]", []),
    ],
)  # fmt: skip
def test_json5(text: str, value: Any) -> None:
    """Everything that JSON5 has over JSON is read."""
    assert read(parse_json5, text) == (value, [])


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "the file is empty", 1, 1),
        (" // only this", "the file is empty", 1, 1),
        ("{\n a: x}", "a value is expected here, not `x`", 2, 5),
        ("{a: 1 b: 2}", "`,` or `}` is expected here, not `b`", 1, 7),
        ("[1, 2", "`,` or `]` is expected here, not the end of the file", 1, 6),
        ("{a 1}", "a `:` is expected behind the key `a`, not `1`", 1, 4),
        ("{1: 2}", "a key is expected here, not `1`", 1, 2),
        ("'a\nb'", "this text does not end on its line", 1, 1),
        ("'\\x4'", "`\\x` needs hexadecimal digits", 1, 4),
        ("'\\1'", "`\\1` is no escape", 1, 4),
        ("'\\ud800'", "this text holds half a character", 1, 1),
        ("012", "`012`: a number has no leading zero", 1, 1),
        ("[1] 2", "`2` stands behind the end of the document", 1, 5),
        ("/* x", "this comment does not end", 1, 1),
        ("{a: 1, a: 2}", "the key `a` is here twice; the first is at 1:2", 1, 8),
        ("[" * 60, "nested deeper than 50 levels", 1, 51),
        ("9" * 500, "a number has at most 400 characters", 1, 1),
        ("\udcff", "this is not UTF-8 text: byte 0 is 0xff", 1, 1),
        ("a\0", "this is not a text file: byte 1 is NUL", 1, 2),
    ],
)
def test_json5_refused(text: str, message: str, line: int, column: int) -> None:
    """What is no JSON5 is refused where it stands."""
    assert read(parse_json5, text)[1] == [(message, line, column)]


def test_json_of_any_program() -> None:
    """A file that ends in .json may have tabs, and escapes in two halves."""
    text = '{\n\t"name": "x",\n\t"jobs": [{"name": "a", "command": "echo \\ud83d\\ude00"}]\n}\n'
    result = compile_text(text, file="flow.json")
    assert (result.dialect, result.why, result.diagnostics) == ("torc", "it has a list `jobs`", ())
    assert result.workflow is not None
    assert result.workflow.steps[0].action.command.endswith("; echo \U0001f600")  # type: ignore[union-attr]


def document(text: str) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """The nodes of a KDL text: name, arguments, properties."""
    report = Diagnostics("flow")
    nodes = parse_document(text.encode(), report)
    assert [found.render() for found in report.errors] == []
    assert nodes is not None
    return [
        (node.name.text, [one.value for one in node.arguments], {k: v.value for k, (_, v) in node.properties.items()})
        for node in nodes
    ]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a 1 -2.5 1_000 0xff 0o17 0b11 1e3", [("a", [1, -2.5, 1000, 255, 15, 3, 1000.0], {})]),
        ("a #true #false #null #inf #-inf", [("a", [True, False, None, float("inf"), float("-inf")], {})]),
        ("a b c=d; e;;f", [("a", ["b"], {"c": "d"}), ("e", [], {}), ("f", [], {})]),
        ('a "x\\n\\t\\"\\\\\\u{e9}\\s\\   y" #"r\\"# ##"s"#"##', [("a", ['x\n\t"\\\u00e9 y', "r\\", 's"#'], {})]),
        ('a """\n    x\n      y\n\n    """', [("a", ["x\n  y\n"], {})]),
        ('a #"""\n  x\\n\n  """#', [("a", ["x\\n"], {})]),
        ('a """\n  x \\u{41} \\"""\n  """', [("a", ['x A """'], {})]),
        ("a /* b /* c */ */ d // e\n/- f { g }\nh /- 1 2 /- i=3 /- { j }", [("a", ["d"], {}), ("h", [2], {})]),
        ('a \\ // goes on\n  b "c" = "d"', [("a", ["b"], {"c": "d"})]),
        ('"a b"\r\nc', [("a b", [], {}), ("c", [], {})]),
        ("\ufeff-a +b .c 'd", [("-a", ["+b", ".c", "'d"], {})]),
    ],
)
def test_kdl(text: str, nodes: Any) -> None:
    """Nodes with all that they can have."""
    assert document(text) == nodes


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "the file is empty", 1, 1),
        ("a true", "`true` is KDL 1", 1, 3),
        ("a #yes", "`#yes` is no keyword", 1, 3),
        ("a (u8)1", "type annotations have no meaning in a workflow", 1, 3),
        ("(x)a", "type annotations have no meaning in a workflow", 1, 1),
        ("a 1x", "`1x` is no number", 1, 3),
        ("a .5", "`.5` is no number", 1, 3),
        ('a "b', "this text does not end on its line", 1, 3),
        ('a "b\nc"', "this text does not end on its line", 1, 3),
        ('a #"b\n"#', "this text does not end on its line", 1, 3),
        ('a "\\q"', "`\\q` is no escape", 1, 5),
        ('a "\\u{110000}"', "`\\u` needs the number of a character: `\\u{1F600}`", 1, 6),
        ('a """x"""', "a line break is expected here", 1, 3),
        ('a """\nx', "this text does not end", 1, 3),
        ('a """\nx\n y"""', "the closing quotes stand on a line of their own", 3, 3),
        ('a """\n x\n  """', "a line of this text is indented less than its closing quotes", 1, 3),
        ('a """\n\\q\n"""', "`\\q` is no escape", 1, 3),
        ("a {\n b", "this block does not end", 1, 3),
        ("a }", "this `}` closes nothing", 1, 3),
        ("a { b } { c }", "the node `a` has a second block", 1, 14),
        ("a { b } c", "nothing but the end of the node stands behind its block", 1, 9),
        ('a"b"', '`"` stands where a blank or the end of the node is expected', 1, 2),
        ("a \\ b", "a backslash outside of a text must be the last thing on its line", 1, 3),
        ("a /* b", "this comment does not end", 1, 3),
        ("a 1=2", "`1` can't be the name of a property", 1, 4),
        ("a b=1 b=2", "the property `b` is here twice; the first is at 1:3", 1, 7),
        ("a {" * 60, "nested deeper than 50 levels", 1, 153),
    ],
)
def test_kdl_refused(text: str, message: str, line: int, column: int) -> None:
    """What is no KDL 2 is refused where it stands."""
    report = Diagnostics("flow")
    parse_document(text.encode(), report)
    assert [(found.message, found.line, found.column) for found in report.errors] == [(message, line, column)]


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ('name "a" "b"', "`name` takes one value, not 2", 1, 1),
        ('name "a" b=1', "`name` has no property `b`", 1, 10),
        ('name "a" { b }', "`name` takes no block", 1, 1),
        ('name "a"\nname "b"', "`name` is here twice; the first is at 1:1", 2, 1),
        ('job { command "x" }', '`job` takes one name: `job "name"`', 1, 1),
        ('job "a" { depends_on }', "`depends_on` has no value", 1, 11),
        ('action "a" { command "x" }', "`action` takes no arguments", 1, 1),
        ('parameters "a"', "`parameters` takes no arguments, but a block of names and values", 1, 1),
        ('jobs 1\njob "a"', "`job` and the `jobs` at 1:1 say the same thing", 2, 1),
        ('job "a" depends_on=b { depends_on c }', "`depends_on` and the `depends_on` at 1:9 say the same thing", 1, 24),
        ('file "a" path="x" { path "y" }', "`path` is here twice; the first is at 1:10", 1, 21),
    ],
)
def test_kdl_shape_refused(text: str, message: str, line: int, column: int) -> None:
    """Nodes that do not fit into a workflow are refused where they stand."""
    assert read(parse_kdl, text)[1] == [(message, line, column)]


def test_kdl_data_is_json() -> None:
    """The data of `user_data` is JSON in a text, and text that is not is refused."""
    assert read(parse_kdl, 'user_data "d" { data "[1, {\\"a\\": null}]" }')[0] == {
        "user_data": [{"name": "d", "data": [1, {"a": None}]}],
        "jobs": [],
    }
    ((message, line, column),) = read(parse_kdl, 'user_data "d" { data "[1" }')[1]
    assert (message.startswith("`[1` is not JSON"), line, column) == (True, 1, 22)
