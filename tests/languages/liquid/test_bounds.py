"""Liquid templates that would take too long or too much: each ends at a limit, and fails its step."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from resile.languages.braces import Lazy
from resile.languages.liquid.templates import render, render_command, render_url, value_of
from resile.languages.references import MISSING, ValueRefused

CPU_SECONDS_MAX = 0.6
VALUES: dict[str, Any] = {"t": "a" * 100_000, "l": list(range(50_000)), "n": 300_000_000}
BOMBS = [
    "{% assign x = 3 %}" + "{% assign x = x | times: x %}" * 40 + "{{ x }}",
    "{{ (1..300000000) | join: ',' }}",
    "{{ (1..n) }}",
    "{{ (1..n) | size }}{% for i in (1..n) %}{% for j in (1..n) %}x{% endfor %}{% endfor %}",
    "{% assign x = t %}" + "{% assign x = x | append: x %}" * 40 + "{{ x | size }}",
    "{{ t | replace: 'a', t }}",
    "{{ t | replace: 'a', t | size }}",
    "{{ l | join: t | size }}",
    "{% for i in l %}{{ l | sort | reverse | join: t | size }}{% endfor %}",
]


@pytest.mark.parametrize("text", BOMBS)
def test_a_bomb_is_refused_at_a_limit(text: str) -> None:
    """It raises, after little CPU time, and this process has not grown."""
    before, memory = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueRefused):
        render(text, VALUES)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_SECONDS_MAX
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 64 * 1024


def test_what_the_refusals_say() -> None:
    """The message names the template, and the limit."""
    with pytest.raises(ValueRefused) as large:
        render("{{ t | replace: 'a', t | size }}", VALUES)
    assert large.value.message == (
        "the template `{{ t | replace: 'a', t | size }}` can't be rendered: it needs more than 64 MB of memory"
    )


def test_bounded_templates_give_what_plain_ones_give() -> None:
    """Values come back with their types, are quoted and encoded for their places, and errors are the same."""
    values = {"l": ["it's", 2, None, True, {"a": [1]}, 2.5], "x": "a/b ?"}
    assert render("{% for i in l %}{{ i }},{% endfor %}", values) == 'it\'s,2,,true,{"a":[1]},2.5,'
    command = render_command("echo {% for i in l %}{{ i }} {% endfor %}", values)
    assert command == r"""echo 'it'\''s' '2' '' 'true' '{"a":[1]}' '2.5' """
    assert value_of("{{ l | reverse | reverse }}", values) == values["l"]
    assert value_of("{{ absent | first | append: '' | default: absent }}", values) is None
    assert render_url("http://h/{{ x | replace: 'a', 'c' }}", values) == "http://h/c%2Fb%20%3F"
    with pytest.raises(ValueRefused, match="divided by"):
        render("{{ 1 | divided_by: 0 }}{{ l | join }}", values)


def test_only_what_a_template_names_is_computed() -> None:
    """The value of a step is computed before the other process begins, and no other value is."""
    asked: list[str] = []

    def make(name: str) -> Any:
        asked.append(name)
        return {"b": [1, 2]} if name in ("a", "k-1", "c") else MISSING

    outputs = Lazy(lambda: ["a", "k-1", "c"], make)
    assert render("{{ outputs.a.b | join: '+' }}{{ outputs['k-1'].b | join: '-' }}", {"outputs": outputs}) == "1+21-2"
    assert set(asked) == {"a", "k-1"}
    asked.clear()
    assert render("{{ outputs[x].b | join: '+' }}", {"outputs": outputs, "x": "c"}) == "1+2"
    assert set(asked) == {"a", "k-1", "c"}
