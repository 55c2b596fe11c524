"""Jinja templates that would take too long or too much: each ends at a limit, and fails its step."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from resile.languages.bounded import TooMuch, call_bounded
from resile.languages.jinja.cost import are_small
from resile.languages.jinja.plain_values import as_result
from resile.languages.jinja.sql import render_sql
from resile.languages.jinja.templates import holds, parse, render, render_command, render_data, render_url
from resile.languages.jinja.undefined import result_not_there
from resile.languages.references import MISSING, ValueRefused
from tests.dialects.noetl.playbooks import Run

CPU_SECONDS_MAX = 0.6
VALUES = {"t": "a" * 100_000, "l": list(range(50_000)), "n": 10**9, "s": "%1000000000d", "d": as_result({"data": [1]})}
BOMBS = [
    "{{ 'a' * 10**9 }}",
    "{{ 10**(10**10) }}",
    "{{ ((10**300)**13)|string * 10**6 }}",
    "{{ 'a'.center(10**9) }}",
    "{{ 'a' | center(10**9) }}",
    "{{ 'a'.ljust(n) }}",
    "{{ s % 1 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ s | format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=n) }}",
    "{{ 'a' | indent(10**9, true) }}",
    "{{ t | replace('a', t) }}",
    "{{ t.replace('a', t) }}",
    "{{ t.join(l | map('string')) }}",
    "{{ l | join(t) }}",
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for i in l %}{% for j in l %}x{% endfor %}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% set x = i * j %}{% endfor %}{% endfor %}",
    "{% set x = t %}" + "{% set x = x ~ x %}" * 40 + "{{ x | length }}",
    "{% set x = [t] %}" + "{% set x = x + x %}" * 40 + "{{ x | length }}",
    "{% set x = 3 %}" + "{% set x = x * x %}" * 40 + "{{ x }}",
    "{{ l | batch(10**9, t) | list }}",
    "{{ l | slice(10**8) | list }}",
    "{{ l | map('string') | map('center', 10**6) | join }}",
    "{{ 'a' | wordwrap(1) | center(10**10) }}",
    "{{ (t ~ ' ') * 30 | urlize }}",
    "{{ l | sort | unique | map('string') | sort | groupby('x') }}",
    "{{ l | chosen('i', 'i in l', l=l) }}",
    "{{ l | tojson(indent=10**6) }}",
    "{{ (l | string) * 100 | pprint }}",
]
COMMAND = r"""echo 'it'\''s' '2' '' 'true' '{"a":[1]}' """


def find(name: str) -> Any:
    """The values of the bombs."""
    return VALUES.get(name, MISSING)


@pytest.mark.parametrize("text", BOMBS)
def test_a_bomb_is_refused_at_a_limit(text: str) -> None:
    """It raises, after little CPU time, and this process has not grown."""
    before, memory = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueRefused):
        render(text, find)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_SECONDS_MAX
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 64 * 1024


def test_what_the_refusals_say() -> None:
    """The message names the template, and the limit."""
    with pytest.raises(ValueRefused) as slow:
        render(BOMBS[17], find)
    assert slow.value.message == f"the template `{BOMBS[17]}` can't be rendered: it takes more than 150 ms of CPU time"
    with pytest.raises(ValueRefused) as large:
        render("{{ 'a'.center(10**9) }}", find)
    assert large.value.message == (
        "the template `{{ 'a'.center(10**9) }}` can't be rendered: it needs more than 64 MB of memory"
    )


def test_bounded_templates_give_what_plain_ones_give() -> None:
    """Values come back with their types, are quoted and encoded for their places, and errors are the same."""
    loop = "{% for i in l %}{{ i }},{% endfor %}"
    values: dict[str, Any] = {"l": ["it's", 2, None, True, {"a": [1]}], "d": as_result({"data": [1]}), "x": "a/b ?"}
    values["absent"] = result_not_there("absent")

    def look(name: str) -> Any:
        return values.get(name, MISSING)

    assert parse(loop).cost == "any"
    assert render(loop, look) == 'it\'s,2,,true,{"a":[1]},'
    assert render_command("echo {% for i in l %}{{ i }} {% endfor %}", look) == COMMAND
    assert render_data("{{ l | list }}", look) == values["l"]
    assert render("{{ 2 ** 70 }}", look) == str(2**70)
    assert render_url("http://h/{{ x.replace('a', 'c') }}", look) == "http://h/c/b%20%3F"
    assert render_sql("select '{{ x.replace('a', \"'\") }}'", look) == "select '''/b ?'"
    assert render_data("{{ d.data | list }}", look) == [1]
    assert not holds("absent.x.get('a')", look)
    with pytest.raises(ValueRefused, match="more than 64 bits"):
        render_data("{{ 2 ** 70 }}", look)
    with pytest.raises(ValueRefused, match=r"`l\.x\.get` is not defined"):
        render("{{ l.x.get('a') }}", look)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("{{ a.b[0] | default('x') }}", "plain"),
        ("{{ a == 1 and b }} {% if a %}x{% endif %}", "plain"),
        ("{{ now() }} {{ a * 2 % 3 }}", "plain"),
        ("{{ a | tojson }}", "plain"),
        ("{{ a.get('x') | list | join(', ') }}", "linear"),
        ("{{ a | map(attribute='x') | selectattr('y') | sum }}", "linear"),
        ("{{ a | tojson(indent=9) }}", "any"),
        ("{{ a | map('center', 9) }}", "any"),
        ("{{ a | join(b) }}", "any"),
        ("{{ a() }}", "any"),
        ("{{ a.center(9) }}", "any"),
        ("{% set a = 1 %}", "any"),
        ("{% for i in a %}{% endfor %}", "any"),
    ],
)
def test_what_needs_a_process(text: str, cost: str) -> None:
    """What most texts are made of is rendered at once; what can grow is not."""
    assert parse(text).cost == cost


def test_small_values() -> None:
    """Values count by their parts and their text, however they are nested."""
    assert are_small([{"a": ["x"] * 1_000}, 5, None])
    assert not are_small([["x"] * 2_001])
    assert not are_small([{"a": ["x" * 1_000] * 100}])
    assert not are_small([[["x"] * 50] * 50])


def test_a_bounded_call_by_itself() -> None:
    """Results of any size come back, signals for the engine do not end it, and its limits hold in native code."""
    assert call_bounded(lambda: ["x" * 3_000_000, {"a": (1, None)}]) == ["x" * 3_000_000, {"a": (1, None)}]

    def shrug() -> list[int]:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        return [1]

    assert call_bounded(shrug) == [1]
    with pytest.raises(TooMuch, match="150 ms of CPU time"):
        call_bounded(lambda: str(pow(7, 10**9)))
    with pytest.raises(TooMuch, match="64 MB of memory"):
        call_bounded(lambda: len("a" * 10**9))


def test_a_bomb_in_a_playbook_fails_its_step(tmp_path: Path) -> None:
    """The step fails as a step does, and the others go on."""
    run = Run(
        tmp_path,
        """
        workload: {n: 1000000000}
        workflow:
          - step: start
            tool: {kind: python, code: "def main(x): return x", args: {x: "{{ 'a' | center(workload.n) }}"}}
            next: end
        """,
        code=1,
    )
    assert run.message().endswith("can't be rendered: it needs more than 64 MB of memory")
