"""Texts that are not quite Liquid: what users of Visor write comes to what they mean by it."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import itertools
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resile.languages.javascript.evaluate import Sandbox
from resile.languages.liquid.filters import FOLDER
from resile.languages.liquid.lenient_syntax import as_liquid
from resile.languages.liquid.templates import problem, render, render_command, value_of
from resile.languages.references import ValueRefused
from resile.model.limits import VALUE_BYTES_MAX

VALUES: dict[str, Any] = {
    "yes": True,
    "no": False,
    "zero": 0,
    "empty_text": "",
    "text": "a b",
    "lines": "one\ntwo",
    "list": [{"n": 3, "k": "x"}, {"n": 1, "k": "y"}, {"n": 2, "k": "x"}],
    "map": {"a": {"b": 5}},
    "memory": {"listNamespaces": ["main", "other"]},
    "memory_data": {"": "main", "main": {"k": "v"}, "other": {"k": [1, 2]}},
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ yes ? 'on' : 'off' }} {{ no ? 'on' : 'off' }} {{ nobody ? 1 : 2 }}", "on off 2"),
        ("{{ zero ? 'on' : 'off' }} {{ empty_text ? 'on' : 'off' }} {{ text ? 'on' : 'off' }}", "off off on"),
        ("{{ text == 'a b' && !no ? text | upcase : 'x' }}", "A B"),
        ("{{ no ? 1 : zero === 0 ? 'a: b' : 'c' }}", "a: b"),
        ("<{{- yes ? ' a ' : 'b' -}}>", "< a >"),
        ("{{ nobody || 'none' }} {{ text || 'none' }} {{ nobody || empty_text || 'last' }}", "none a b last"),
        ("{{ zero || 'none' }} {{ no || zero || 'last' | upcase }} {{ text || 'none' | upcase }}", "none LAST A B"),
        ("{{ memory.listNamespaces() || 'none' }} {{ map['a']?.b || 'none' }}", '["main","other"] 5'),
        ("{{ (zero) == 0 ? 'is' : 'not' }} {{ text == 'a && b || c' || no ? 'is' : 'not' }}", "is not"),
        ("{% if no and no or yes %}y{% else %}n{% endif %}", "n"),
        ("{% if yes || no && no or no %}y{% endif %}{% if text == '(' && yes || no %}y{% endif %}", "y"),
        ("{{ 'a ? b : c || d' }}", "a ? b : c || d"),
        ("{{ map?.a?.b }} {{ nobody?.b }}|", "5 |"),
        ("{% if text !== 'x' && (yes) %}y{% endif %}{% unless !yes %}n{% endunless %}", "yn"),
        ("{% if not no %}y{% endif %}", "y"),
        ("{% for one in list | sort: 'n' | map: 'n' %}{{ one }},{% endfor %}", "1,2,3,"),
        ("{% for one in list | map: 'n' limit: 2 %}{{ one }},{% endfor %}", "3,1,"),
        ("{% assign x = nobody | default: empty %}{{ x.size }}", "0"),
        ("{{ nobody | default: [] | json }} {{ nobody | default: [ ] | size }}", "[] 0"),
        ("{% for space in memory.listNamespaces() %}{{ space }} {% endfor %}", "main other "),
        ("{{ memory.get('k') }} {{- memory.get( 'k', \"other\" ) | join: '+' -}}| {{ memory.get('x') }}", "v1+2| "),
        ("{{ memory.has('k') }} {{ memory.has('x', 'other') }} {{ \"memory.get('k')\" }}", "true false memory.get('k')"),
        ("{% assign x = memory.get('k', 'other') | size %}{% if x > 1 %}{{ x }}{% endif %}", "2"),
        (r"""{{ lines | split: "\n" | json }} {{ lines | split: '\n' | last }}""", '["one","two"] two'),
        (r"""{{ "say \"hi\"\t\u00e9" }} {{ 'it\'s' }} {{ "a\\b" }}""", 'say "hi"\té it\'s a\\b'),
        ("{% raw %}{{ a ? b : c }}{% endraw %}{{ text }}", "{{ a ? b : c }}a b"),
        ("{{ text.text }} {{ list.first.k.text }}", "a b x"),
        ("{{ list | group_by: 'k' | map: 'name' | json }}", '["x","y"]'),
        ("{{ 7 | divided_by: 2 }} {{ 6 | divided_by: 2 }} {{ 7 | divided_by: 2, true }} {{ '9' | divided_by: 2 }}", "3.5 3 3 4.5"),
        ("{{ map | json: 2 }}", '{\n  "a": {\n    "b": 5\n  }\n}'),
        ("{{ map | jsonify }} {{ text | inspect }} {{ '12.7' | to_integer }}", '{"a":{"b":5}} "a b" 12'),
        ("{{ 'a,b' | split: ',' | push: 'c' | json }} {{ 'a,b' | split: ',' | unshift: 'c' | json }}", '["a","b","c"] ["c","a","b"]'),
        ("{{ 'a,b' | split: ',' | pop | json }} {{ 'a,b' | split: ',' | shift | json }}", '["a"] ["b"]'),
        ("{{ 'a,b,c' | split: ',' | array_to_sentence_string }} {{ 'A  Title!' | slugify }}", "a, b, and c a-title"),
        ("{{ text | number_of_words }} {{ ' a  b ' | normalize_whitespace }}| {{ 'a b/é' | uri_escape }}", "2  a b | a%20b/%C3%A9"),
    ],
)  # fmt: skip
def test_rendering(template: str, expected: str) -> None:
    """Each of them is rendered."""
    assert problem(template) == ""
    assert render(template, VALUES) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "a && b || c", "a || b && c", "a && b || c && d", "a || b && c || d", "a && (b || c)", "(a || b) && c || d",
        "a && b && c || d", "a || b || c && d", "!a && b || c", "!(a && b || c) || d", "!(a || b) && c", "!a", "!!a && b",
        "a && !b && c", "!a == !b || c && ! ( d )",
        "(a && b || c) && (c || d && a)", "a == 'x' && b || c", "a || b === 0 && c", "a && 'x && y' || b && '||'",
    ],
)  # fmt: skip
def test_conditions_hold_as_in_javascript(expression: str) -> None:
    """Whatever the values are, a choice takes the side that JavaScript takes; so does a tag, of what is true or not."""
    names = "abcd"
    for values, template in (
        ([True, False, 0, "", "x"], f"{{{{ {expression} ? 'yes' : 'no' }}}}"),
        ([True, False, "x"], f"{{% if {expression} %}}yes{{% else %}}no{{% endif %}}"),
    ):
        assert problem(template) == ""
        cases = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(values, repeat=len(names))]
        code = f"return cases.map(({{a, b, c, d}}) => ({expression}) ? 'yes' : 'no')"
        assert [render(template, case) for case in cases] == answered(code, {"cases": cases})


@pytest.mark.parametrize("expression", ["a || b", "a || b || 'last'", "a || 0 || b"])
def test_the_first_that_is_something_as_in_javascript(expression: str) -> None:
    """Zero, the empty text, false and null are passed over; an empty list is something."""
    values: list[Any] = [True, False, 0, "", "x", None, 7, [], [1]]
    cases = [{"a": a, "b": b} for a in values for b in values]
    expected = answered(f"return cases.map(({{a, b}}) => {expression})", {"cases": cases})
    assert [value_of(f"{{{{ {expression} }}}}", case) for case in cases] == expected


def answered(code: str, variables: dict[str, Any]) -> Any:
    """What JavaScript makes of it."""
    box = Sandbox()
    try:
        answer = box.evaluate(code, variables, now=1_000.0, seed="seed", form="body")
    finally:
        box.close()
    assert answer.problem == ""
    return answer.value


def test_a_choice_keeps_the_type_of_its_value() -> None:
    """A text that is one of two values is that value."""
    assert value_of("{{ yes ? list : text }}", VALUES) == VALUES["list"]


def test_values_stay_values_in_a_command() -> None:
    """Whatever the text is brought into, what it puts into a command is quoted."""
    variables = {**VALUES, "text": "$(reboot)"}
    assert (
        render_command("echo {{ yes ? text : 'no' }} {{ nobody || text }}", variables) == "echo '$(reboot)' '$(reboot)'"
    )


def test_files_are_read_below_the_folder_of_the_run(tmp_path: Path) -> None:
    """As a tag and in an assignment; a path that leads away, or to nothing, is refused."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "notes.md").write_text("$(note)\n")
    (tmp_path / "secret").write_text("secret")
    variables = {FOLDER: str(tmp_path / "inside"), "path": "notes.md"}
    assert render('{% readfile "notes.md" %}{%- readfile path -%} .', variables) == "$(note)\n$(note)\n."
    assert render("{% assign t = readfile path %}{{ t | strip }}", variables) == "$(note)"
    assert render_command("echo {% readfile path %}", variables) == "echo '$(note)\n'"
    for path in ("../secret", str(tmp_path / "secret"), "nobody"):
        with pytest.raises(ValueRefused, match=r"is not below the folder|can't be read"):
            render("{% readfile path %}", {**variables, "path": path})


def test_what_is_no_file_or_too_long_is_refused(tmp_path: Path) -> None:
    """A name that can't be one, a pipe nobody writes into, and a file beyond the limit; at the limit it is whole."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"a" * (VALUE_BYTES_MAX + 1))
    (tmp_path / "full").write_bytes(b"a" * VALUE_BYTES_MAX)
    for path, reason in (
        ("a\0b", "the file 'a b' can't be read: embedded null byte"),
        ("\ud800", "the file ' ' can't be read: 'utf-8' codec can't encode character"),
        ("pipe", "the file 'pipe' can't be read: it is no regular file"),
        ("n" * 5000, "…' can't be read: File name too long"),
        ("long", f"the file 'long' has more than {VALUE_BYTES_MAX} bytes, and is not read"),
    ):
        with pytest.raises(ValueRefused, match=re.escape(reason)):
            render("{{ path | readfile }}", {FOLDER: str(tmp_path), "path": path})
    assert len(render("{{ 'full' | readfile }}", {FOLDER: str(tmp_path)})) == VALUE_BYTES_MAX


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("{}%-? :|!&='\"\\ nabrw.()[]"), max_size=60))
def test_any_text_comes_to_something(text: str) -> None:
    """Nothing but a refusal comes of a text that can't be meant, and what holds no template is left alone."""
    assert problem(text) is not None
    if "{{" not in text and "{%" not in text:
        assert as_liquid(text) == text


@pytest.mark.parametrize(
    "part", ["{", "{{ a ? ", "{% raw %}", "{{ ' }}", "{% for a in b | ", "{% readfile ", "{{ a || "]
)
def test_long_texts_take_no_time(part: str) -> None:
    """A text of the same part over and over is looked at once."""
    began = time.monotonic()
    as_liquid(part * 50_000)
    assert time.monotonic() - began < 2
