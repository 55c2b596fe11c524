"""Runs of lines that are written alike: read at a glance, a file is what it is without."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resile.dialects.formats.yaml import GLANCE_BYTES_MIN, Mapping, Node, Scalar, Sequence, parse
from resile.dialects.formats.yaml_fast_lines import RUN_LINES_MIN, glance
from resile.dialects.reading.diagnostics import Diagnostics, compile_text
from resile.errors import Diagnostic
from resile.model.limits import FILE_DEPTH_MAX

Entry = tuple[object, ...]
Read = tuple[Entry | None, tuple[Diagnostic, ...], list[Entry]]
"""A tree, what is wrong with the file, and the variants in it."""


def laid_out(node: Node) -> Entry:
    """A tree with everything that counts: kinds, values with their types, texts, places, the order of keys."""
    if isinstance(node, Scalar):
        return "scalar", type(node.value), repr(node.value), node.text, node.line, node.column
    if isinstance(node, Sequence):
        return "list", node.line, node.column, tuple(laid_out(item) for item in node.items)
    entries = tuple((name, laid_out(key), laid_out(value)) for name, (key, value) in node.entries.items())
    return "mapping", node.line, node.column, entries


def read_plainly(text: str) -> Read:
    """What a small file is, which is never read at a glance."""
    data = text.encode()
    assert len(data) < GLANCE_BYTES_MIN
    report, variants = Diagnostics("f"), list[Mapping]()
    root = parse(data, report, variants)
    return laid_out(root) if root is not None else None, report.findings(), [laid_out(each) for each in variants]


def glanced(text: str) -> Read | None:
    """What a file is at a glance, of which nothing is ever said; or nothing."""
    variants: list[Mapping] = []
    root = glance(text.encode(), variants)
    if root is None:
        assert variants == []
        return None
    return laid_out(root), (), [laid_out(each) for each in variants]


def run_of(body: str, indent: int = 2, count: int = RUN_LINES_MIN, first: int = 0) -> str:
    """Lines that are written alike."""
    return "".join(f"{' ' * indent}s{number}: {{{body}}}\n" for number in range(first, first + count))


@pytest.mark.parametrize(
    "body",
    [
        'shell: "true"',
        "shell: npm ci",
        "shell: a, needs: [b, c-d, e_f], timeout: 30",
        "a: true, b: null, c: 1.5, d: 012, e: .inf, f: ./x/y.sh, g: 0x1F",
        "needs: [1, null, true, x]",
        'a: "", b: " x ", c: "# no comment", d: "{a: [b]}, \'c\': &d *e !f"',
        "a: b, ",
    ],
)
def test_what_is_read_at_a_glance(body: str) -> None:
    """These lines are, and every value and place is the same as without."""
    text = f"resile: 1\nsteps:\n{run_of(body)}"
    assert glanced(text) == read_plainly(text)


@pytest.mark.parametrize(
    "text",
    [
        f"é: ü # ö\nsteps:\n{run_of('shell: x')}",
        f"steps:\n{run_of('shell: x', indent=0)}",
        f"steps:\n{run_of('shell: x')}  # between\n\n{run_of('shell: y', first=20)}  end: z\nmore: [a]\n",
        f"steps:\n  first:\n    shell: x\n{run_of('shell: x')}  last: {{shell: 'it''s'}}\n",
        f"- a:\n{run_of('shell: x', indent=4)}- b\n",
        f"x: &here\n  y: 1\nsteps:\n{run_of('shell: x')}",
        f"a: !form {{b: c}}\nsteps:\n{run_of('shell: x')}",
        f"steps:\n{run_of('shell: x', count=RUN_LINES_MIN)}{run_of('shell: x', indent=2, first=30)}",
    ],
)
def test_where_runs_stand(text: str) -> None:
    """A run may stand anywhere in a block mapping, beside what is written in other ways."""
    assert glanced(text) == read_plainly(text)


@pytest.mark.parametrize(
    "text",
    [
        f"steps:\n{run_of('shell: x', count=RUN_LINES_MIN - 1)}",
        f"text: |\n{run_of('shell: x')}",
        f"text: >-\n{run_of('shell: x')}steps: y\n",
        f'text: "\n{run_of("shell: x")}"\n',
        f"text: '\n{run_of('shell: x')}'\n",
        f"text: {{\n{run_of('shell: x')}}}\n",
        f"text: [\n{run_of('shell: x')}]\n",
        f"text: words\n{run_of('shell: x')}",
        f"steps:\n{run_of('shell: x')}    more\n",
        f"steps:\n{run_of('shell: x')}    more: y\n",
        f"steps:\n{run_of('shell: x')}  - more\n",
        f"steps:\n{run_of('shell: x')}   off: y\n",
        f"steps:\n{run_of('shell: x')}  s3: y\n",
        f"steps:\n{run_of('shell: x')}  # between\n{run_of('shell: y', first=15)}",
        f"steps:\n{run_of('shell: x, shell: y')}",
        f"steps:\n{run_of('true: y')}",
        f"steps:\n{run_of('shell: x').replace('s3', 'null')}",
        f"x: &here {{}}\ny: *here\nsteps:\n{run_of('shell: x')}",
        f"\ufeffsteps:\n{run_of('shell: x')}",
        f"x: \ue0000\nsteps:\n{run_of('shell: x')}",
        f"x: \x85\nsteps:\n{run_of('shell: x')}",
        f"x: 'a\u2028b'\nsteps:\n{run_of('shell: x')}",
        f"steps:\n{run_of('shell: x')}".replace("\n", "\r\n"),
        f"steps:\n{run_of('shell: x')}x: [\n",
        f"steps:\n{run_of('shell: x')}<<: y\n",
        f"steps:\n{run_of('shell: x')}---\nx: y\n",
        f"steps:\n{run_of('shell:  x')}",
        "".join(f"{' ' * depth}a:\n" for depth in range(FILE_DEPTH_MAX - 1)) + run_of("x: y", FILE_DEPTH_MAX - 1),
    ],
)
def test_what_is_not_read_at_a_glance(text: str) -> None:
    """Text that only looks alike, and whatever there is something to say of, is read without."""
    assert glanced(text) is None


VALUES = [
    "x", "npm ci", "a-b", "-a", "- a", "-", "1", "-1", "0x1F", "null", "~", "true", "1:10", "a:b", "a: b", "a #b",
    "a#b", '"x"', '""', '"a\\nb"', '"a""', "'x'", "'it''s'", "[a, b]", "[a,b]", "[a, b ]", "[a, ]", "[]",
    "[[a], b]", "{a: b}", "[1, null]", "*x", "&y z", "!t v", "é", '"é"', "?", "? a", "a?", "%a", "@a", "`a", "",
    " x", "x ", "a=b", "/a", "...", "---", "a, b", "a,b", "a]", "}", "\t", '"\t"', "${x}", "$x", "a\x07b", "\ud7ff",
]  # fmt: skip
BEFORE = [
    "steps:\n", "", "a: |\n", "a: >\n", 'a: "\n', "a: '\n", "a: {\n", "a: {b: c,\n", "a: [\n", "a: b\n", "- a:\n",
    "a:\n- b\n", "é: ü\nsteps:\n", "steps: &a\n", "steps: !t\n", "steps: # c\n", "? a\n:\n",
    "a: &x b\nc: *x\nsteps:\n", "%YAML 1.2\n---\n",
]  # fmt: skip
AFTER = [
    "",
    "}\n",
    '"\n',
    "'\n",
    "]\n",
    "    more\n",
    "  s1: y\n",
    "  z: y\n",
    " z: y\n",
    "z: y\n",
    "...\n",
    "\t\n",
    "- x\n",
    "*a",
]
KEYS = st.sampled_from(["shell", "needs", "a", "true", "null", "12", '"q"', "a b", "<<", "é", "x.y", "_", "-k"])


@settings(max_examples=300, deadline=None)
@given(
    pairs=st.lists(st.tuples(KEYS, st.sampled_from(VALUES)), min_size=1, max_size=3),
    before=st.sampled_from(BEFORE),
    after=st.sampled_from(AFTER),
    indent=st.sampled_from([0, 2, 2, 2, 4]),
    odd=st.sampled_from(["", "", "", "  odd: x\n", "# c\n", "\n", "    deep: {shell: x}\n", "  s3: {shell: x}\n"]),
)
@example(pairs=[("needs", "[a, b]")], before="a: |\n", after="", indent=2, odd="")
def test_a_glance_never_sees_anything_else(
    pairs: list[tuple[str, str]], before: str, after: str, indent: int, odd: str
) -> None:
    """Whatever a file holds, what is read at a glance is what is read without."""
    body = ", ".join(f"{key}: {value}" for key, value in pairs)
    other = run_of(body, indent, first=RUN_LINES_MIN)
    text = f"{before}{run_of('shell: x', indent)}{odd}{other}{after}"
    assert glanced(text) in (None, read_plainly(text))


def test_a_large_file() -> None:
    """A file is compiled to the same steps, and told of at the same places, whether it is large or not."""
    names = [f"a{number}" for number in range(RUN_LINES_MIN)]
    text = "resile: 1\nname: n\nsteps:\n" + "".join(f"  {name}: {{shell: echo {name}}}\n" for name in names)
    text += "".join(f"  b{number}: {{shell: x, needs: [{', '.join(names)}]}}\n" for number in range(RUN_LINES_MIN))
    large = text + f"# {'.' * GLANCE_BYTES_MIN}\n"
    assert compile_text(large) == compile_text(text)
    assert compile_text(text).workflow is not None
    for old, new in (("b7: {shell: x", "b7: {shel: x"), ("[a0, a1,", "[a0, a0,"), ("a3: {", "b5: {"), ("a3,", "b9,")):
        found = compile_text(large.replace(old, new)).diagnostics
        assert found == compile_text(text.replace(old, new)).diagnostics
        assert found
