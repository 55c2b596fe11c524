"""References in texts, and plain substitution."""

from __future__ import annotations

import pytest

from resile.languages.references import (
    MISSING,
    ValueRefused,
    is_one_reference,
    names,
    or_default,
    path_of,
    render_text,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no reference", []),
        ("${inputs.x}", [("inputs.x", 0)]),
        ("a ${x} ${raw:y}", [("x", 2), ("raw:y", 7)]),
        ("${steps.lint-fix.output.a[0]['k k']}", [("steps.lint-fix.output.a[0]['k k']", 0)]),
        ('${steps["my step"].exit_code}', [('steps["my step"].exit_code', 0)]),
        ("$1 $(x) $$ ${V:-x} ${#x} ${x%y} ${!x} ${} ${1} ${a b} ${x", []),
        ("\\${x} \\\\${x}", [("x", 8)]),
        ("$${x} $$${x}", [("x", 8)]),
        ("${V:-${x}}", [("x", 5)]),
        ("${x-y}", []),
        ("${steps.größe.output} ${größe}", [("steps.größe.output", 0)]),
        ("é${x}", [("x", 1)]),
    ],
)
def test_names(text: str, found: list[tuple[str, int]]) -> None:
    """Names with paths are references; every other dollar is the shell's."""
    assert names(text) == found


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("x", ("x",)),
        ("raw:x.y", ("x", "y")),
        ("steps['my step'].outputs.k[0]", ("steps", "my step", "outputs", "k", 0)),
        ('steps["it\'s.so"].output[-1]', ("steps", "it's.so", "output", -1)),
        ("steps.a-b.output.0", ("steps", "a-b", "output", "0")),
        ("a['']", ("a", "")),
        ("steps.größe.output", ("steps", "größe", "output")),
    ],
)
def test_paths(name: str, path: tuple[str | int, ...]) -> None:
    """A name falls into its parts; indexes are numbers."""
    assert path_of(name) == path


def test_one_reference() -> None:
    """A condition is one reference and nothing else."""
    assert is_one_reference("${a.b}")
    assert not any(map(is_one_reference, ["${a} ", "x${a}", "${a}${b}", "$a", "${raw:a}", ""]))


def test_render_text() -> None:
    """Values stand unquoted, unknown names stay, a backslash keeps a reference as text."""
    known = {"x": "a 'b'\n", "n": 3, "l": [1, {"k": True}], "none": None}
    text = "${x}|${n}|${l}|${none}|${y}|\\${x}|\\\\${n}|\\${V:-1}|$${x}|${raw:n}"
    rendered = render_text(text, lambda name: known.get(name, MISSING))
    assert rendered == "a 'b'\n|3|[1,{\"k\":true}]||${y}|${x}|\\\\3|\\${V:-1}|$${x}|3"


def test_render_text_refuses_nul() -> None:
    """An environment can't hold a NUL."""
    with pytest.raises(ValueRefused, match="`\\$\\{x\\}` holds a NUL"):
        render_text("${x}", lambda _: "\0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${a.b:-none}", "1"),
        ("${a.c:-none}", "none"),
        ("${a.d:-none}", "none"),
        ("${a['c:-d']:-x y}", "x y"),
        ("${a['k:-v']}", "3"),
        ("${a.c:-}", ""),
        ("${a.e:-none}${env.X:-none}", "none"),
        ("${PORT:-80} ${x:-'y'} ${a.c:-$d}", "${PORT:-80} ${x:-'y'} ${a.c:-$d}"),
    ],
)
def test_a_name_with_a_path_may_have_a_default(text: str, expected: str) -> None:
    """The default stands where there is no value or null; a bare name with one is the shell's."""
    values: dict[tuple[str | int, ...], object] = {("a", "b"): 1, ("a", "d"): None, ("a", "k:-v"): 3,
                                                    ("a", "e"): "", ("env", "X"): ""}  # fmt: skip
    assert render_text(text, lambda name: or_default(name, values.get(path_of(name), MISSING))) == expected
