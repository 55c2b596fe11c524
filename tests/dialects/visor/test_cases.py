"""Visor files, case by case: what each comes to, as the order of executions and the exit code.

The numbers are those of the cases that were collected by running Visor; `a.2` is a step that fails twice, `a.9` one
that always fails. Where Visor's programs and its own design disagree, the design is what must hold.
"""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.visor.flows import VisorFlows, flow

SECOND_FAILS = "exec: 'echo a >> trace; test $(grep -cx a trace) -ne 2'"
COUNTS = "exec: './step s; test $(grep -cx s trace) -gt 1 && echo true || echo false'"
LIST = "type: command, exec: 'echo list >> trace; echo ''[\"a\",\"b\",\"c\"]''', forEach: true"
EACH = "exec: 'echo p-{{ outputs.list }} >> trace'"

CASES: list[tuple[str, str, str, int]] = [
    ("B1", "a.2: on_fail: {retry: {max: 5}}\nb < a", "a a a b", 0),
    ("B4", "routing: {max_loops: 2}\na.9: on_fail: {retry: {max: 4}}", "a a a", 1),
    ("B5", "a.99: on_fail: {retry: {max: 20}}", " ".join("a" * 11), 1),
    ("B6", "a.1: on_fail: {run: [fix]}\nb < a\nfix", "a fix a b", 0),
    ("B7", "a.1: on_fail: {run: [fix], retry: {max: 1}}\nb < a\nfix", "a fix a b", 0),
    ("B8", "a.2: on_fail: {run: [fix], retry: {max: 2}}\nb < a\nfix", "a fix a fix a b", 0),
    ("B9", "s\na.9 < s: on_fail: {run: [fix], retry: {max: 1}, goto: s}\nfix.9", "s a fix", 1),
    ("B10", "a.1: on_fail: {run: [f1, f2]}\nf2\nf1", "a f1 f2 a", 0),
    ("B11", "a.1: on_fail: {run: [f1, f2, f1], run_js: 'return [\"f2\", \"f3\", \"f3\"]'}\nf1\nf2\nf3", "a f1 f2 f3 a", 0),
    ("B12", "a.9: on_fail: {run: [f], retry: {max: 2}}\nf", "a f a f a", 1),
    ("B13", "setup\na.1 < setup: on_fail: {goto: setup}\nb < a\nside < setup\nindep", "setup indep a side setup a side b", 0),
    ("B14 up", "s\nm < s\na.1 < m: on_fail: {goto: s}\nz < a", "s m a s m a z", 0),
    ("B14 middle", "s\nm < s\na.1 < m: on_fail: {goto: m}\nz < a", "s m a m a z", 0),
    ("B19", "s\nm < s\na.1 < m: on_fail: {goto: m, goto_js: 'return \"nobody\"'}", "s m a m a", 0),
    ("B20", "setup\na.99 < setup: on_fail: {goto: setup}\nb < a", " ".join(["setup a"] * 11), 1),
    ("B21 three", "routing: {max_loops: 3}\nsetup\na.99 < setup: on_fail: {goto: setup}", " ".join(["setup a"] * 4), 1),
    ("B21 none", "routing: {max_loops: 0}\nsetup\na.99 < setup: on_fail: {goto: setup}", "setup a", 1),
    ("B23", "routing: {max_loops: 4}\nsetup\na.99 < setup: on_fail: {retry: {max: 2}, goto: setup}", "setup a a a setup a setup a", 1),
    ("B24", "routing: {max_loops: 4}\na\nb < a: on_success: {goto: a}\nc < b", "a b a b a b a b a b", 1),
    ("B25", "a\nb < a: on_success: {run: [n], goto_js: 'return loop < 2 ? \"a\" : null'}\nn", "a b n a b n a b n", 0),
    ("B26", "u\nb < u: on_success: {goto_js: 'return attempt === 1 ? \"u\" : null'}\nc < b", "u b u b c", 0),
    ("B27", "s\nm < s\na.1 < m: on_fail: {goto: m, goto_js: 'throw new Error(1)'}", "s m a m a", 0),
    ("B28 null", "s\nm < s\na.1 < m: on_fail: {goto: m, goto_js: 'return null'}", "s m a m a", 0),
    ("B28 number", "s\nm < s\na.1 < m: on_fail: {goto: m, goto_js: 'return 42'}", "s m a m a", 0),
    ("B29", "s\na.1 < s: on_fail: {goto: s, goto_js: 'let n = 0; for (let i = 0; i < 3e9; i++) n += i; return null'}", "s a s a", 0),
    ("B30", "s\na.1 < s: on_fail: {goto: s, goto_js: 'while (true) {}'}", "s a s a", 0),
    ("B31", "s\na.9 < s: on_fail: {goto_js: 'require(\"fs\"); return \"s\"'}", "s a", 1),
    ("B32", "s\na.1 < s: on_fail: {goto: s, run_js: '\"use strict\"; outputs.s = 1; return []'}", "s a s a", 0),
    ("B33", "routing: {defaults: {on_fail: {retry: {max: 2}}}}\na.2\nb < a", "a a a b", 0),
    ("B33 own key", "routing: {defaults: {on_fail: {retry: {max: 2}}}}\na.9: on_fail: {retry: {max: 1}}", "a a", 1),
    ("B33 opted out", "routing: {defaults: {on_fail: {retry: {max: 2}}}}\na.2: on_fail: null\nb < a", "a", 1),
    ("B34", "s\na.1 < s: on_fail: {goto: s}\nx1\nx2 < x1\nx3 < x2\nx4 < x3", "s x1 a x2 s x3 a x4", 0),
    ("B35", "s\na.1 < s: on_fail: {goto: s}\nb.1 < s: on_fail: {goto: s}\nc < a, b", "s a b s a b c", 0),
    ("B36", "routing: {max_loops: 4}\nr.2: on_fail: {retry: {max: 4}}\ns2 < r\ns.9 < s2: on_fail: {goto: s2}", "r r r s2 s s2 s s2 s", 1),
    ("B37", "routing: {max_loops: 1}\na.1: on_fail: {run: [f1, f2, f3]}\nf1\nf2\nf3", "a f1 f2 f3 a", 0),
    ("B38", "a.1: on_fail: {run: [fix]}\npre\nfix < pre\nafter < fix", "a pre fix after a", 0),
    ("B39", "a.1: on_fail: {run: [fix], retry: {max: 1}}\nfix < a", "a fix a", 0),
    ("B40", "s\nm < s\na.1 < m: on_fail: {goto: s, transitions: [{when: 'attempt > 5', to: s}, {when: 'true', to: m}]}", "s m a m a", 0),
    ("B40 stop", "s\na.1 < s: on_fail: {goto: s, transitions: [{when: 'true', to: null}]}", "s a", 1),
    ("B41", "s\na.1 < s: on_fail: {goto: s, transitions: [{when: nobody.x, to: null}]}", "s a s a", 0),
    ("B42 one", "a.9\nb\nf < a|b", "a b f", 1),
    ("B42 none", "a.9\nb.9\nf < a|b", "a b", 1),
    ("B43", "a.9: continue_on_failure: true\nb < a: exec: 'echo code-{{ outputs.a.exit_code }} >> trace'", "a code-1", 0),
    ("B44", "a: if: 'false'\nb < a\nc\nd < c: if: nobody.x > 1", "c", 0),
    ("B45", "a: exec: './step a; echo $(grep -cx a trace)', fail_if: output < 3, on_fail: {retry: {max: 2}}\nb < a: exec: 'echo b-{{ outputs.a }} >> trace'", "a a a b-3", 0),
    ("B46 closed", "a: fail_if: output.no.field\nb < a", "a", 1),
    ("B47", "fail_if: 'true'\na\nb < a", "a b", 0),
    ("B48", "a: failure_conditions: {stop: {condition: 'true', halt_execution: true}}\nslow\nb < slow", "a", 1),
    ("B49", "a: failure_conditions: {stop: {condition: 'true', halt_execution: true}}, on_fail: {retry: {max: 3}}\nb < a", "a", 1),
    ("B50", "a: type: script, content: throw new Error('no'), on_fail: {run: [fix], retry: {max: 2}}\nfix", "fix fix", 1),
    ("B51", "s\na < s: type: log, message: '{{ 1 | divided_by: 0 }}', on_fail: {run: [fix]}\nfix", "s fix", 1),
    ("B59", "max_parallelism: 2\na\nb", "a b", 0),
    ("B62", f"list: {LIST}\np < list: {EACH}\nq < p: exec: 'echo q-{{{{ outputs.list }}}} >> trace'", "list p-a q-a p-b q-b p-c q-c", 0),
    ("B63", f"list: {LIST}\np < list: {EACH}, if: 'outputs.list !== \"b\"'", "list p-a p-c", 0),
    ("B64 empty", "list: type: command, exec: 'echo []', forEach: true\np < list\nn < p: fanout: reduce", "n", 0),
    ("B64 one", f"list: type: command, exec: echo one, forEach: true\np < list: {EACH}", "p-one", 0),
    ("B64 failed", "list.9: forEach: true\np < list", "list", 1),
    ("B65", "o: type: command, exec: 'echo [1,2]', forEach: true\ni < o: exec: 'echo ''[\"x\",\"y\"]''', forEach: true\np < i: exec: 'echo {{ outputs.o }}{{ outputs.i }} >> trace'", "1x 1y 2x 2y", 0),
    ("B67", f"list: {LIST}, on_finish: {{run: [agg], goto_js: 'return loop < 1 ? \"list\" : null'}}\np < list: {EACH}\nagg", "list p-a p-b p-c agg list p-a p-b p-c agg", 0),
    ("B68", f"list: {LIST}, on_finish: {{run: [agg]}}\np < list: {EACH}\nq < list: exec: 'echo q >> trace'\nagg", "list p-a q p-b q p-c q agg", 0),
    ("B66", f"list: {LIST}, on_success: {{run: [each, agg]}}\neach: exec: 'echo e-{{{{ outputs.list }}}} >> trace', fanout: map\nagg", "list agg e-a e-b e-c", 0),
    ("B68 empty", "list: type: command, exec: 'echo []', forEach: true, on_finish: {run: [agg]}\np < list\nagg", "", 0),
    ("B69", "init: type: memory, operation: set, key: n, value: 0\ninc < init: type: memory, operation: increment, key: n\nchk < inc: exec: 'echo chk-{{ \"n\" | memory_get }} >> trace', on_success: {goto_js: 'return memory.get(\"n\") < 3 ? \"inc\" : null'}", "chk-1 chk-2 chk-3", 0),
    ("B70", f"s: {COUNTS}\ngate < s: if: outputs.s\nx.1 < s: on_fail: {{goto: s}}\nc < gate", "s x s x gate c", 0),
    ("B71", f"a: {SECOND_FAILS}\nb.1 < a: on_fail: {{goto: a}}\nc < b", "a b a", 1),
    ("A13", "a: type: noop, fail_if: 'true', on_fail: {run: [inc, chk]}\ninc: type: memory, operation: increment, key: n\nchk: exec: 'echo n-{{ \"n\" | memory_get }} >> trace'", "n-1", 1),
    ("A35 A36", "p: on_success: {run: [t, u]}\nt: if: 'false'\nu: if: always()", "p u", 0),
    ("A36 remedy", "p.1: on_fail: {run: [t]}\nt: if: 'false'", "p p", 0),
    ("A38", f"list: {LIST}, on_finish: {{run: [t]}}\np < list: {EACH}\nt: if: 'false'", "list p-a p-b p-c", 0),
    ("A57", "a: failure_conditions: {stop: {condition: 'checkName === \"a\"', halt_execution: true}}\nb < a\nc < a", "a", 1),
    ("A62", "a: exec: echo hello, fail_if: 'contains(output, \"X\") || !startsWith(output, \"HE\") || !endsWith(output, \"lo\") || length(output) !== 5 || !success() || failure()'\nb < a", "b", 0),
    ("A64", "a: exec: echo hi\nb < a: if: 'contains([1, 2], 2) && branch === \"unknown\" && filesCount === 0 && outputs[\"a\"] === \"hi\" && event.event_name === \"manual\" && metadata.checkName === \"b\"'", "b", 0),
    ("A72", "a: assume: [true]\nb: assume: [false]\nc: assume: ['true']\nd: assume: true", "a c d", 0),
    ("A81", f"list: {LIST}\np < list: exec: 'echo p >> trace; exit 1'\nq < p\ns < p: type: log, message: hi", "list p p p", 1),
    ("A84 A86", f"list: {LIST}\np < list: {EACH}, fail_if: 'outputs.list === \"b\"'\nq < p: exec: 'echo q-{{{{ outputs.list }}}} >> trace'\nr < q: exec: 'echo r >> trace'", "list p-a q-a r p-b p-c q-c r", 1),
    ("A85", f"list: {LIST}\np < list: {EACH}\nb < list: exec: 'echo b >> trace', fail_if: 'outputs.list === \"b\"'\nc < p, b: exec: 'echo c-{{{{ outputs.list }}}} >> trace'", "list p-a b c-a p-b b p-c b c-c", 1),
    ("A98", "list: type: command, exec: 'echo [1, 2]', forEach: true\np < list: exec: 'echo {{ outputs.list }}', schema: {type: number, maximum: 1}\nq < p: exec: 'echo q-{{ outputs.list }} >> trace'", "q-1", 1),
    ("B72", "a.1: on_fail: {run: [fix]}\nfix: tags: [slow]\nother: tags: [slow]", "a fix a", 0),
]  # fmt: skip


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder."""
    return VisorFlows(tmp_path)


@pytest.mark.parametrize(("text", "order", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_case(flows: VisorFlows, text: str, order: str, code: int) -> None:
    """Each file runs exactly these steps in this order and exits so."""
    ran = flows.run(flow(text), code)
    assert " ".join(ran.order) == order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B15\ns\na < s: on_fail: {goto: u}\nu", "`u` does not come before `a`, and `goto` leads back"),
        ("B16\na: on_fail: {goto: b}\nb < a", "`b` comes after `a`, and `goto` leads back"),
        ("B17\na: on_fail: {goto: a}", "`a` can't go back to itself"),
        ("B18\na: on_fail: {goto: nobody}", "there is no step `nobody`"),
        ("B21\nrouting: {max_loops: -1}\na", "`-1` is out of bounds: expected a whole number from 0 to 10000"),
        ("B22\nrouting: {max_loops: abc}\na", "expected a whole number from 0 to 10000, not `abc`"),
        ("B44\na: if: 'this is not valid ++'", "the condition is not an expression that can run"),
        ("B46\na: fail_if: 'x ++ y'", "`fail_if` is not an expression that can run"),
        ("B52\na < b\nb < a", "these steps wait for each other: `a` (3:3) needs `b` (4:3) needs `a`"),
        ("B52\na < nobody", "there is no step `nobody`"),
        ("B53\na: type: command", "a `command` step needs `exec`"),
        ("B53\na: on_finish: {run: [b]}\nb", "`a` has `on_finish` but `forEach` is not true"),
        ("B54\na: on_fail: {retry: {max: '2'}}", "expected a whole number from 0 to 1000, not the text `2`"),
        ("B54\na: on_fail: {retries: 2}", "on_fail has no key `retries`"),
        ("B54\na: tmeout: 5", "a command step has no key `tmeout`"),
        ("B76\na: exec: 'echo {{ x'", "this is no template that can be rendered"),
    ],
)
def test_case_that_is_refused(flows: VisorFlows, text: str, message: str) -> None:
    """What can't be meant is refused before anything runs, with exit code 2."""
    (found,) = flows.refused(flow(text.partition("\n")[2]))
    assert found.startswith(message)
    assert not (flows.folder / "trace").exists()


def test_b53_a_file_without_a_version(flows: VisorFlows) -> None:
    """A file must say its version."""
    assert flows.refused("steps: {a: {type: noop}}") == ["the file has no `version`"]


@pytest.mark.parametrize(
    ("mode", "bases"), [("fixed", [0.04, 0.04, 0.04]), ("exponential", [0.04, 0.08, 0.16])], ids=["B2", "B3"]
)
def test_backoff_is_waited_for(flows: VisorFlows, mode: str, bases: list[float]) -> None:
    """Each retry waits for its delay and up to 15 % of the first one, always the same."""
    backoff = f"{{mode: {mode}, delay_ms: 40}}"
    ran = flows.run(flow(f"a.9: on_fail: {{retry: {{max: 3, backoff: {backoff}}}}}"), 1)
    delays = [event["data"]["delay_seconds"] for event in ran.of("retry_scheduled")]
    assert all(0 <= delay - base <= 0.04 * 0.15 for delay, base in zip(delays, bases, strict=True)), delays
    again = flows.run(flow(f"a.9: on_fail: {{retry: {{max: 3, backoff: {backoff}}}}}"), 1)
    assert [event["data"]["delay_seconds"] for event in again.of("retry_scheduled")] == delays


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.9: on_fail: {retry: {max: 2}}", "on_fail retry"),
        ("a.9: on_fail: {run: [f]}\nf", "on_fail run"),
        ("s\na.9 < s: on_fail: {goto: s}", "on_fail goto"),
        ("s\na < s: on_success: {goto: s}", "on_success goto"),
        ("l: exec: 'echo [1]', forEach: true, on_finish: {goto: l}\np < l: exec: 'true'", "on_finish goto"),
    ],
)
def test_a5_a6_every_transition_costs(flows: VisorFlows, text: str, message: str) -> None:
    """A spent budget ends the run with one message, whatever spent it."""
    ran = flows.run(flow(f"routing: {{max_loops: 0}}\n{text}"), 1)
    expected = f"Routing loop budget exceeded (max_loops=0) during {message}"
    assert [event["data"]["message"] for event in ran.of("loop_budget_exceeded")] == [expected]


def test_b9_the_message_names_the_remedy(flows: VisorFlows) -> None:
    """A remedy that fails ends it."""
    ran = flows.run(flow("a.9: on_fail: {run: [fix], retry: {max: 1}}\nfix.9"), 1)
    (failed,) = [event for event in ran.of("step_failed") if event["step"] == "a"]
    assert failed["data"]["message"] == "remediation step 'fix' failed"


def test_b47_a_global_condition_is_a_remark(flows: VisorFlows) -> None:
    """The log says so, and nothing fails."""
    ran = flows.run(flow("fail_if: output === 'x'\na: exec: echo x\nb: exec: echo y"))
    remarks = {event["step"]: event["data"].get("remarks") for event in ran.of("attempt_succeeded")}
    assert remarks["a"] == ["global_fail_if: failure condition met: output === 'x'"]
    assert remarks["b"] is None


def test_b48_a_halt_cancels_the_others(flows: VisorFlows) -> None:
    """What had not started is canceled because of the step that halted."""
    text = "a: failure_conditions: {stop: {condition: 'true', message: enough, halt_execution: true}}\nb\nc < b"
    ran = flows.run(flow(text), 1)
    assert (ran.status["a"], ran.status["c"]) == ("failed", "canceled")
    assert ran.failed == "Execution halted: enough"


def test_b55_a_timeout_is_in_milliseconds_and_its_group_is_killed(flows: VisorFlows) -> None:
    """Three attempts time out; nothing they started is left."""
    shell = "sleep 61.5 & echo $! >> pids; echo a >> trace; wait"
    ran = flows.run(flow(f"a: exec: '{shell}', timeout: 300, on_fail: {{retry: {{max: 2}}}}"), 1)
    assert ran.order == ["a", "a", "a"]
    assert [event["data"]["kind"] for event in ran.of("attempt_failed")] == ["timeout"] * 3
    for pid in (flows.folder / "pids").read_text().split():
        assert not Path(f"/proc/{pid}").exists(), f"{pid} is alive"


def test_b56_two_megabytes_are_fine(flows: VisorFlows) -> None:
    """A long output is a value like any other."""
    text = "a: exec: head -c 2000000 /dev/zero | tr '\\\\0' x\nb < a: exec: 'echo {{ outputs.a | size }} >> trace'"
    assert flows.run(flow(text)).order == ["2000000"]


def test_b57_a_signal_has_its_number(flows: VisorFlows) -> None:
    """After kill -9 the exit code is 137 and the signal 9."""
    ran = flows.run(flow("a: exec: kill -9 $$"), 1)
    (failed,) = ran.of("attempt_failed")
    assert (failed["data"]["exit_code"], failed["data"]["signal"]) == (137, 9)


def test_b58_fail_fast_cancels_what_is_left(flows: VisorFlows) -> None:
    """Retries run first; then the first failure that stands cancels the rest."""
    text = flow("a.9: on_fail: {retry: {max: 1}}\nb\nc < b\nd < c").replace("steps:", "fail_fast: true\nsteps:")
    ran = flows.run(text, 1)
    assert ran.order[:1] == ["a"]
    assert ran.order.count("a") == 2
    assert ran.status["d"] == "canceled"


def test_b60_items_run_side_by_side(flows: VisorFlows) -> None:
    """Two items that wait for each other both come to their end."""
    each = "exec: \"{% if outputs.list == 'a' %}cat pipe{% else %}echo hi > pipe{% endif %}\", timeout: 10000"
    text = flow(f"list: type: command, exec: 'mkfifo pipe; echo ''[\"a\",\"b\"]''', forEach: true\np < list: {each}")
    flows.program.write(text)
    document = flows.program.json("run", "flow.yaml", "--max-parallel", "2")
    assert document["maps"]["p"]["successful"] == 2


def test_b75_environments_reach_the_command(flows: VisorFlows) -> None:
    """Those of the file and of the step, with variables of the caller in them."""
    text = flow("env: {ONE: '1'}\na: exec: 'echo $ONE-$TWO-$THREE >> trace', env: {TWO: '${WHO}!', THREE: $NOBODY}")
    flows.program.env["WHO"] = "me"
    assert flows.run(text).order == ["1-me!-${NOBODY}"]


def test_b61_only_the_failed_item_is_tried_again(flows: VisorFlows) -> None:
    """The others run once."""
    each = "exec: './step p{{ outputs.list }} {% if outputs.list == \"b\" %}2{% endif %}', on_fail: {retry: {max: 4}}"
    ran = flows.run(flow(f"list: {LIST}\np < list: {each}"))
    assert sorted(ran.order) == ["list", "pa", "pb", "pb", "pb", "pc"]
