"""Routing, case by case: what each configuration comes to, as the order of executions and the exit code.

The numbers are those of the cases that were collected by running Visor; `a.2` is a step that fails twice, `a.9` one
that always fails.
"""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import re

import pytest

from tests.runs.ladder.flows import Flows


def flow(text: str) -> str:
    """The workflow that a short text stands for: one step in a line, `name.times <needs: keys`."""
    lines = ["resile: 1"]
    steps = ["steps:"]
    for line in text.strip().split("\n"):
        step = re.fullmatch(r"(?!routing)(\w+)(?:\.(\d+))?(?: < ([\w|, ]+))?(?:: (.*))?", line)
        if step is None:
            lines.append(line)
            continue
        name, times, needs, keys = step.groups()
        given = [f"shell: ./step {name} {times or 0}"] if not re.match(r"(shell|validate)", keys or "") else []
        given += [f'needs: ["{needs.replace(", ", chr(34) + ", " + chr(34))}"]'] if needs else []
        steps.append(f"  {name}: {{{', '.join([*given, *([keys] if keys else [])])}}}")
    return "\n".join([*lines, *steps]) + "\n"


SECOND_FAILS = "shell: echo a >> trace; test $(grep -cx a trace) -ne 2"
COUNTS = "shell: ./step s; test $(grep -cx s trace) -gt 1 && echo 1 || echo 0, capture: v"

CASES: list[tuple[str, str, str, int]] = [
    ("B1", "a.2: on_failure: {retry: 5}\nb < a", "a a a b", 0),
    ("B4", "routing: {max_loops: 2}\na.9: on_failure: {retry: 4, run: [f]}\nf", "a f a f a", 1),
    ("B4 plain retries are free", "routing: {max_loops: 2}\na.9: on_failure: {retry: 4}", "a a a a a", 1),
    ("B6", "a.1: on_failure: {run: [fix]}\nb < a\nfix", "a fix a b", 0),
    ("B6 in vain", "a.9: on_failure: {run: [fix]}\nb < a\nfix", "a fix a", 1),
    ("B7", "a.1: on_failure: {run: [fix], retry: 1}\nb < a\nfix", "a fix a b", 0),
    ("B8", "a.2: on_failure: {run: [fix], retry: 2}\nb < a\nfix", "a fix a fix a b", 0),
    ("B9", "s\na.9 < s: on_failure: {run: [fix], retry: 1, goto: s}\nfix.9", "s a fix", 1),
    ("B10", "a.1: on_failure: {run: [f1, f2]}\nf2\nf1", "a f1 f2 a", 0),
    ("B12", "a.9: on_failure: {run: [f], retry: 2}\nf", "a f a f a", 1),
    ("B13", "setup\na.1 < setup: on_failure: {goto: setup}\nb < a\nside < setup\nindep", "setup indep a side setup a side b", 0),
    ("B14 up", "s\nm < s\na.1 < m: on_failure: {goto: s}\nz < a", "s m a s m a z", 0),
    ("B14 middle", "s\nm < s\na.1 < m: on_failure: {goto: m}\nz < a", "s m a m a z", 0),
    ("B20", "setup\na.99 < setup: on_failure: {goto: setup}\nb < a", " ".join(["setup a"] * 11), 1),
    ("B21 three", "routing: {max_loops: 3}\nsetup\na.99 < setup: on_failure: {goto: setup}", " ".join(["setup a"] * 4), 1),
    ("B21 none", "routing: {max_loops: 0}\nsetup\na.99 < setup: on_failure: {goto: setup}", "setup a", 1),
    ("B23", "routing: {max_loops: 2}\nsetup\na.99 < setup: on_failure: {retry: 2, goto: setup}", "setup a a a setup a setup a", 1),
    ("B24", "routing: {max_loops: 4}\na\nb < a: on_success: {goto: a}\nc < b", "a b a b a b a b a b", 1),
    ("B33", "routing: {defaults: {on_fail: {retry: 2}}}\na.2\nb < a", "a a a b", 0),
    ("B33 opted out", "routing: {defaults: {on_fail: {retry: 2}}}\na.2: on_failure: false\nb < a", "a", 1),
    ("B33 own", "routing: {defaults: {on_fail: {retry: 2}}}\na.9: on_failure: {retry: 1}\nb < a", "a a", 1),
    ("B33 merged", "routing: {defaults: {on_fail: {retry: 1}}}\ns\na.9 < s: on_failure: {shell: ./step h, fail_workflow: true}", "s a a h", 1),
    ("B33 remedy", "routing: {defaults: {on_fail: {run: [fix]}}}\na.1\nb.1 < a\nfix", "a fix a b fix b", 0),
    ("B33 goto", "routing: {defaults: {on_fail: {goto: s}}}\ns\na.1 < s\nu", "s u a s a", 0),
    ("B34", "s\na.1 < s: on_failure: {goto: s}\nx1\nx2 < x1\nx3 < x2\nx4 < x3", "s x1 a x2 s x3 a x4", 0),
    ("B35", "s\na.1 < s: on_failure: {goto: s}\nb.1 < s: on_failure: {goto: s}\nc < a, b", "s a b s a b c", 0),
    ("B37", "routing: {max_loops: 1}\na.1: on_failure: {run: [f1, f2, f3]}\nf1\nf2\nf3", "a f1 f2 f3 a", 0),
    ("B38", "a.1: on_failure: {run: [fix]}\npre\nfix < pre\nafter < fix", "a pre fix after a", 0),
    ("B39", "a.1: on_failure: {run: [fix], retry: 1}\nfix < a", "a fix a", 0),
    ("B42 one", "a.9\nb\nf < a|b", "a b f", 1),
    ("B42 none", "a.9\nb.9\nf < a|b", "a b", 1),
    ("B43", "a.9: on_failure: true\nb < a: shell: 'echo code-${steps.a.exit_code} >> trace'", "a code-1", 0),
    ("B44", "a: when: false\nb < a\nc", "c", 0),
    ("B45", "a: validate: ./step a 2, retry: 2\nb < a", "a a a b", 0),
    ("B70", f"s: {COUNTS}\ngate < s: when: '${{v}}'\nx.1 < s: on_failure: {{goto: s}}\nc < gate", "s x s x gate c", 0),
    ("B71", f"a: {SECOND_FAILS}\nb.1 < a: on_failure: {{goto: a}}\nc < b", "a b a", 1),
    ("B71 own route", f"a: {SECOND_FAILS}, on_failure: {{retry: 1}}\nb.1 < a: on_failure: {{goto: a}}\nc < b", "a b a a b c", 0),
    ("a list keeps its order around a remedy", "a.1: on_failure: {run: [fix]}\nfix\nb < a", "a fix a b", 0),
    ("retry beside on_failure", "a.1: retry: 2, on_failure: {run: [fix]}\nfix", "a fix a", 0),
    ("tolerated in the end", "s\na.9 < s: on_failure: {run: [f], fail_workflow: false}\nb < a\nf", "s a f a b", 0),
    ("a handler, then goto", "routing: {max_loops: 1}\ns\na.9 < s: on_failure: {shell: ./step h 9, goto: s, handler_failure_fatal: false}", "s a h s a", 1),
    ("goto inside a handler", "a.1: on_failure: {commands: [{id: one, shell: ./step one}, {shell: ./step two 1, on_failure: {goto: one}}]}", "a one two one two", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "order", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_case(flows: Flows, text: str, order: str, code: int) -> None:
    """Each configuration runs exactly these steps in this order and exits so."""
    ran = flows.run(flow(text), code)
    assert " ".join(ran.order) == order


JS_CASES: list[tuple[str, str, str, int]] = [
    ("B11", "a.1: on_failure: {run: [f1, f2, f1], run_js: 'return [\"f2\", \"f3\", \"f3\"]'}\nf1\nf2\nf3", "a f1 f2 f3 a", 0),
    ("B11 empty", "s\na.9 < s: on_failure: {run_js: 'return []', goto: s}\nrouting: {max_loops: 1}", "s a s a", 1),
    ("B11 empty with retry", "a.9: on_failure: {run_js: 'return []', retry: 1}", "a a", 1),
    ("B11 unknown", "s\na.9 < s: on_failure: {run_js: 'return [\"nobody\"]', fail_workflow: false}", "s a", 0),
    ("B19", "s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: 'return \"nobody\"'}", "s m a m a", 0),
    ("B25", "a\nb < a: on_success: {run: [n], goto_js: 'return loop < 2 ? \"a\" : null'}\nn", "a b n a b n a b n", 0),
    ("B26", "u\nb < u: on_success: {goto_js: 'return attempt === 1 ? \"u\" : null'}\nc < b", "u b u b c", 0),
    ("B27", "s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: 'throw new Error(1)'}", "s m a m a", 0),
    ("B28 null", "s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: 'return null'}", "s m a m a", 0),
    ("B28 number", "s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: 'return 42'}", "s m a m a", 0),
    ("B28 valid", "s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: 'return \"s\"'}", "s m a s m a", 0),
    ("B29", "s\na.1 < s: on_failure: {goto: s, goto_js: 'let n = 0; for (let i = 0; i < 3e9; i++) n += i; return null'}", "s a s a", 0),
    ("B30", "s\na.1 < s: on_failure: {goto: s, goto_js: 'while (true) {}'}", "s a s a", 0),
    ("B31", "s\na.9 < s: on_failure: {goto_js: 'require(\"fs\"); return \"s\"'}", "s a", 1),
    ("B32", "s\na.1 < s: on_failure: {goto: s, run_js: '\"use strict\"; outputs.s = 1; return []'}", "s a s a", 0),
    ("B40", "s\nm < s\na.1 < m: on_failure: {goto: s, transitions: [{when: 'attempt > 5', to: s}, {when: 'true', to: m}]}", "s m a m a", 0),
    ("B40 stop", "s\na.1 < s: on_failure: {goto: s, transitions: [{when: 'true', to: null}]}", "s a", 1),
    ("B41", "s\na.1 < s: on_failure: {goto: s, transitions: [{when: nobody.x, to: null}]}", "s a s a", 0),
    ("B44 invalid", "a\nc < a: when: nobody.x > 1\nd < c", "a", 1),
    ("a spoken step waits", "a.1: on_failure: {run_js: 'return error.exitCode > 0 ? [\"fix\"] : []'}\nfix", "a fix a", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "order", "code"), [case[1:] for case in JS_CASES], ids=[case[0] for case in JS_CASES])
def test_case_with_code(flows: Flows, text: str, order: str, code: int) -> None:
    """The same where JavaScript decides: a valid answer counts, anything else leaves it to the static keys."""
    ran = flows.run(flow(text), code)
    assert " ".join(ran.order) == order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B15\ns\na < s: on_failure: {goto: u}\nu", "`u` does not come before `a`, and `goto` leads back"),
        ("B16\na: on_failure: {goto: b}\nb < a", "`b` comes after `a`, and `goto` leads back"),
        ("B17\na: on_failure: {goto: a}", "`a` can't go back to itself"),
        ("B18\na: on_failure: {goto: nobody}", "there is no step `nobody`"),
        ("B21\nrouting: {max_loops: -1}\na", "`-1` is out of bounds: expected a whole number from 0 to 10000"),
        ("B22\nrouting: {max_loops: abc}\na", "expected a whole number from 0 to 10000, not `abc`"),
        ("B46\na: when: 'x ++ y'", "`when` is not an expression that can run"),
        ("B52\na < b\nb < a", "these steps wait for each other: `a` (3:3) needs `b` (4:3) needs `a`"),
        ("B52\na < nobody", "there is no step `nobody`"),
        ("B54\na: on_failure: {retry: {max: '2'}}", "expected a whole number from 0 to 1000, not the text `2`"),
        ("B54\na: on_failure: {retries: 2}", "on_failure has no key `retries`"),
    ],
)
def test_case_that_is_refused(flows: Flows, text: str, message: str) -> None:
    """What can't be meant is refused before anything runs, with exit code 2."""
    (found,) = flows.refused(flow(text.partition("\n")[2]).removeprefix("resile: 1\n"))
    assert found.startswith(message)
    assert not (flows.folder / "trace").exists()


def test_b9_the_message_names_the_remedy(flows: Flows) -> None:
    """A remedy that fails ends it."""
    ran = flows.run(flow("a.9: on_failure: {run: [fix], retry: 1}\nfix.9"), 1)
    (failed,) = [event for event in ran.of("step_failed") if event["step"] == "a"]
    assert failed["data"]["message"] == "remediation step 'fix' failed"


def test_b20_a_spent_budget_has_one_message(flows: Flows) -> None:
    """The run fails, its end says why, and what was left is canceled."""
    ran = flows.run(flow("routing: {max_loops: 1}\ns\na.9 < s: on_failure: {goto: s}\nb < a"), 1)
    message = "Routing loop budget exceeded (max_loops=1) during on_failure goto"
    assert [event["data"]["message"] for event in ran.of("loop_budget_exceeded")] == [message]
    assert ran.status == {"s": "completed", "a": "failed", "b": "canceled", "end": "completed"}
    assert ran.of("workflow_failed")[0]["data"]["reason"] == message


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ("{mode: fixed, delay_ms: 60}", [0.06, 0.06, 0.06]),
        ("{mode: exponential, delay_ms: 40}", [0.04, 0.08, 0.16]),
        ("{type: linear, initial: 20ms, increment: 10ms}", [0.03, 0.04, 0.05]),
        ("{type: fibonacci, initial: 20ms}", [0.02, 0.02, 0.04]),
        ("{type: exponential, initial: 50ms, multiplier: 3, max_delay: 100ms}", [0.05, 0.1, 0.1]),
    ],
)
def test_b2_b3_backoff_is_waited_for(flows: Flows, backoff: str, delays: list[float]) -> None:
    """Each retry is scheduled with its delay, and no attempt starts before it has passed."""
    ran = flows.run(flow(f"a.9: on_failure: {{retry: {{max: 3, backoff: {backoff}}}}}"), 1)
    scheduled = ran.of("retry_scheduled")
    assert [round(event["data"]["delay_seconds"], 6) for event in scheduled] == delays
    starts = [event["at"] for event in ran.of("attempt_started") if event["step"] == "a"][1:]
    waits = [_seconds(start) - _seconds(event["at"]) for start, event in zip(starts, scheduled, strict=True)]
    assert all(wait >= delay - 0.002 for wait, delay in zip(waits, delays, strict=True)), waits


def _seconds(at: str | float) -> float:
    """A moment of the log as a number."""
    from datetime import datetime

    return at if isinstance(at, float) else datetime.fromisoformat(at).timestamp()


def test_b55_a_timeout_is_retried_and_its_group_killed(flows: Flows) -> None:
    """Three attempts time out; nothing they started is left."""
    shell = "sleep 61.5 & echo $! >> pids; echo a >> trace; wait"
    ran = flows.run(f"grace: 0\nsteps: {{a: {{shell: '{shell}', timeout: 300ms, retry: 2}}}}\n", 1)
    assert ran.order == ["a", "a", "a"]
    assert [event["data"]["kind"] for event in ran.of("attempt_failed")] == ["timeout"] * 3
    for pid in (flows.folder / "pids").read_text().split():
        assert not _is_alive(pid), f"{pid} is alive"


def _is_alive(pid: str) -> bool:
    """Is there a process with this number that is not a zombie?"""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_b57_a_signal_has_its_number_and_its_rule(flows: Flows) -> None:
    """After kill -9 the exit code is 137 and the signal 9; rules match either."""
    handler = "failure_handlers: {h: {rules: [{signals: KILL, max_retries: 1}, {exit_codes: 137, max_retries: 1}]}}\n"
    ran = flows.run(f"{handler}steps: {{a: {{shell: echo a >> trace; kill -9 $$, failure_handler: h}}}}\n", 1)
    assert ran.order == ["a", "a", "a"]
    assert [(event["data"]["exit_code"], event["data"]["signal"]) for event in ran.of("attempt_failed")] == [
        (137, 9)
    ] * 3
    assert [event["data"]["rule"].partition(" ")[2] for event in ran.of("retry_scheduled")] == [
        "failure_handler h: signals 9",
        "failure_handler h: exit_codes 137",
    ]
