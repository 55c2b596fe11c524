"""Liquid templates: filters, limits, and values that stay values."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resile.languages.liquid.filters import CONTEXT_FILTERS, FILTERS
from resile.languages.liquid.templates import problem, render, render_command, render_url, value_of
from resile.languages.references import ValueRefused
from resile.model.limits import VALUE_BYTES_MAX
from tests.dialects.visor.flows import VisorFlows

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
        ("{% render 'x' %}", "the tag `render` is not run here"),
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


def nested(levels: int) -> list[Any]:
    """Lists in lists."""
    result: list[Any] = []
    for _ in range(levels):
        result = [result]
    return result


HOSTILE: dict[str, Any] = {
    "half": "\ud800",
    "byte": "a\udcff",
    "nul": "a\0b",
    "large": 10**5000,
    "digits": "9" * 6000,
    "infinite": float("inf"),
    "deep": nested(5000),
    "long": "a b" * 300_000,
    "halves": ["\ud800", {"\ud800": 2**70}],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("filter_name", [*FILTERS, *CONTEXT_FILTERS, "plus", "round", "sort", "url_encode", "escape"])
def test_a_filter_gives_a_text_or_is_refused(filter_name: str, name: str) -> None:
    """Whatever the value is and wherever it stands, with a message that can be written down."""
    variables = {**VALUES, "v": HOSTILE[name]}
    for template in ("v | F", "v | F: v", "text | F: v, v", "list | F: 'i', v", "4 | F: v"):
        try:
            said = render("{{ " + template.replace("F", filter_name) + " }}", variables)
        except ValueRefused as refused:
            said = refused.message
            said.encode()
            assert len(said) < 600
        assert isinstance(said, str)


@pytest.mark.parametrize(
    ("template", "value", "message"),
    [
        ("x {{ v }}", "\ud800", "a value holds half of a character (U+D800), which can't be written"),
        ("{{ v | base64 }}", "\ud800", "a value holds half of a character (U+D800), which can't be written"),
        ("{{ v | uri_escape }}", "\ud800", "a value holds half of a character (U+D800), which can't be written"),
        ("{{ 4 | uniq: v }}", "\ud800", "can't read property '\\ud800' of 4"),
        ("{{ v }}", nested(5000), "it is nested too deeply"),
        ("{{ v | divided_by: 3 }}", 10**500, "integer division result too large for a float"),
    ],
)
def test_what_a_value_does_is_said_with_its_template(template: str, value: Any, message: str) -> None:
    """The message names the template and the reason."""
    with pytest.raises(ValueRefused) as refused:
        render(template, {"v": value})
    assert refused.value.message == f"the template `{template}` can't be rendered: {message}"


@pytest.mark.parametrize(
    ("value", "output", "message"),
    [
        (r"\ud800", "outputs.d.p", "the template `x {{ outputs.d.p }}` can't be rendered: a value holds half of"),
        (r"\ud800", "outputs.d.p | base64", "the template `x {{ outputs.d.p | base64 }}` can't be rendered: a value"),
        (r"a\u0000b", "outputs.d.p | readfile", "the file 'a b' can't be read: embedded null byte"),
    ],
)
def test_a_hostile_value_fails_the_attempt_alone(tmp_path: Path, value: str, output: str, message: str) -> None:
    """The engine goes on: the step fails with kind `contract`, others are run."""
    text = f"""version: '1'
steps:
  d: {{type: script, content: "return {{p: '{value}'}}"}}
  l: {{type: log, depends_on: [d], message: "x {{{{ {output} }}}}"}}
  o: {{type: log, depends_on: [d], message: fine}}
"""
    ran = VisorFlows(tmp_path).run(text.replace("\\u", "\\\\u"), 1)
    assert ran.status == {"d": "completed", "l": "failed", "o": "completed", "end": "completed"}
    assert ran.document["first_failure"]["kind"] == "contract"
    assert ran.failed.startswith(message)


def test_bytes_that_are_no_text_live_on() -> None:
    """They are written as they are, in blocks and lists too, and count as one byte each."""
    template = "{{ v }}{% capture c %}{{ v }}{% endcapture %}{{ c }} {{ l }} {{ l | json }}"
    assert render(template, {"v": "\udcff", "l": ["\udcff"]}) == '\udcff\udcff ["\udcff"] ["\udcff"]'
    assert len(render("{{ v }}", {"v": "\udcff" * VALUE_BYTES_MAX})) == VALUE_BYTES_MAX
    for template in (
        "{{ v }}.",
        "{% capture c %}{{ v }}.{% endcapture %}",
        "{{ w }}{% capture c %}{{ w }}.{% endcapture %}",
    ):
        with pytest.raises(ValueRefused, match="output stream limit reached"):
            render(template, {"v": "a" * VALUE_BYTES_MAX, "w": "a" * (VALUE_BYTES_MAX // 2)})


def test_a_place_in_a_list_is_a_plain_number() -> None:
    """A digit that is no decimal one names nothing."""
    assert render("{{ list | get: '²', 'none' }} {{ list | get: '1' }}", VALUES) == "none two"


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
