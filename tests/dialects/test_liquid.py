"""Liquid templates: filters, limits, and values that stay values."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resile.dialects.interpolate import ValueRefused
from resile.dialects.liquid import problem, render, render_command, render_url, value_of

VALUES: dict[str, Any] = {
    "text": "a b",
    "number": 4.0,
    "list": [1, "two", {"k": 3}],
    "map": {"a": {"b": [5, 6]}, "none": ""},
    "json": '{"x": 1}',
    "items": [{"n": 1, "on": True}, {"n": 2}],
    "memory_data": {"": "main", "main": {"k": 7}, "other": {"k": 8, "l": 9}},
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ text }} {{ nobody.at.all }}|", "a b |"),
        ("{{ number }} {{ true }} {{ nil }}", "4 true "),
        ("{{ list }} {{ map }}", '[1,"two",{"k":3}] {"a":{"b":[5,6]},"none":""}'),
        ("{{ list | json }} {{ text | json }} {{ nobody | json }}", '[1,"two",{"k":3}] "a b" null'),
        ("{{ text | to_json }}", '"a b"'),
        ("{% assign x = json | parse_json %}{{ x.x }} {{ text | parse_json }}", "1 a b"),
        ("{{ 'say \"hi\"' | json_escape }}", 'say \\"hi\\"'),
        ("{{ text | base64 }} {{ 'YSBi' | base64_decode }} {{ '*' | base64_decode }}|", "YSBi a b |"),
        ("{{ map | get: 'a.b.1' }} {{ map | get: 'a.x', 'none' }}", "6 none"),
        ("{{ map.none | not_empty }} {{ text | not_empty }}", "false true"),
        ("{{ nobody | coalesce: map.none, text }}", "a b"),
        ("{{ items | where_exp: 'i', 'i.n > 1' | json }}", '[{"n":2}]'),
        ("{{ items | where_exp: 'i', 'i.on' | json }}", '[{"n":1,"on":true}]'),
        ("{{ 'a<b>: c' | safe_label }} {{ list | safe_label_list | json }}", 'ab: c ["1","two","k:3"]'),
        ("{{ 'a\\nb' | unescape_newlines }}", "a\nb"),
        ("{{ 'k' | memory_get }} {{ 'k' | memory_get: 'other' }} {{ 'l' | memory_has }}", "7 8 false"),
        ("{{ 'other' | memory_list | json }}", '["k","l"]'),
        ("{{ text | shell_escape }} {{ text | escape_shell }} {{ text | shell_escape_double }}", "a b a b a b"),
        ("{% capture c %}<{{ text }}>{% endcapture %}{{ c | upcase }}", "<A B>"),
        ("{%- liquid\n assign y = 1\n echo y\n-%}", "1"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
    ],
)
def test_rendering(template: str, expected: str) -> None:
    """Each filter and each kind of value comes out as it should."""
    assert problem(template) == ""
    assert render(template, VALUES) == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ x", "expected '}}'"),
        ("{% if x %}", "expected tag endif"),
        ("{{ x | nobody }}", "there is no filter `nobody`"),
        ("{{ x | chat_history }}", "the filter `chat_history` needs a chat"),
        ("{% include 'x' %}", "the tag `include` is not run here"),
        ("{% cycle 'a', 'b' %}", "the tag `cycle` is not run here"),
        ("{{ x y }}", "expected end of expression, found word (line 1 of the text)"),
        ("{{ a | split: '\\n' }}\n\n{{ x y }}", "found word (line 3 of the text)"),
        ("{% for a, b in map %}{% endfor %}", "expected in, found ','"),
    ],
)
def test_what_can_never_be_rendered(template: str, reason: str) -> None:
    """A template that does not parse, or that asks for what is not there, is refused with the reason."""
    assert reason in problem(template)
    with pytest.raises(ValueRefused, match="the template can't be rendered"):
        render(template, {})


def test_nothing_runs_without_end() -> None:
    """A loop that goes on too long is refused."""
    with pytest.raises(ValueRefused, match="loop"):
        render("{% for a in (1..1000) %}{% for b in (1..1000) %}x{% endfor %}{% endfor %}", {})


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=20))
def test_a_shell_reads_exactly_the_value(value: str) -> None:
    """Bare, in both kinds of quotes, and in a substitution."""
    template = "printf '%s.' {{ v }} \"{{ v }}\" '{{ v }}' \"$(printf '%s.' {{ v }})\" {% if v %}{{ v }}{% endif %}"
    command = render_command(template, {"v": value})
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert done.stdout.decode() == f"{value}.{value}.{value}.{value}..{value}." if value else "....."


def test_a_capture_is_one_value() -> None:
    """What a template puts together is quoted as a whole."""
    template = "{% capture c %}rm -rf {{ v }}{% endcapture %}echo {{ c }}"
    assert render_command(template, {"v": "$HOME"}) == "echo 'rm -rf $HOME'"


def test_what_belongs_to_the_shell_stays() -> None:
    """Variables of the shell are no references of ours."""
    assert render_command("echo ${HOME} $1 {{ v }} ${value0}", {"v": "x"}) == "echo ${HOME} $1 'x' ${value0}"


def test_a_backslash_before_a_value_is_refused() -> None:
    """It would take the value's first character for itself."""
    with pytest.raises(ValueRefused, match="backslash"):
        render_command("echo \\{{ v }}", {"v": "x"})


def test_urls_are_encoded() -> None:
    """A value can't leave its place; the caller's own variable may name the server."""
    variables = {"v": "a/../b?c=d", "env": {"HOST": "http://h"}, "whole": "http://x/y"}
    assert render_url("http://h/{{ v }}/z", variables) == "http://h/a%2F..%2Fb%3Fc%3Dd/z"
    assert render_url("${HOST}/{{ v }}", variables) == "http://h/a%2F..%2Fb%3Fc%3Dd"
    assert render_url("{{ whole }}", variables) == "http://x/y"


def test_one_output_keeps_its_type() -> None:
    """A text that is one output is the value itself."""
    assert value_of(" {{ list }} ", VALUES) == [1, "two", {"k": 3}]
    assert value_of("{{ nobody }}", VALUES) is None
    assert value_of("n {{ number }}", VALUES) == "n 4"
