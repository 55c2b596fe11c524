"""The event sequences of NoETL's design, each from a real run: its test cases, its future paths, and the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.dialects.noetl.playbooks import COMPLETED, FAILED, PROLOGUE, Run, failed, ok, written

OK = "{kind: shell, cmds: ['true']}"
BAD = "{kind: shell, cmds: ['exit 3']}"


def test_success(tmp_path: Path) -> None:
    """Steps that all go well lead to an `end` that says so."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {OK}, next: a}}
          - {{step: a, tool: {OK}, next: [{{step: end}}]}}
          - {{step: end, tool: {OK}}}
        """,
    )
    assert run.lines() == [*PROLOGUE, *ok("start"), *ok("a"), *ok("end"), *COMPLETED]
    assert run.told("step_started", "end") == {"from": ["a"]}
    meta = run.told("workflow_completed")
    assert meta == run.told("playbook_completed")
    assert (meta["evaluated_by_end_step"], meta["total_steps"], meta["failed_steps_count"]) == (True, 2, 0)


def test_failure(tmp_path: Path) -> None:
    """A step that fails leads to `end`, its own arcs are not followed, and the run has failed."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {OK}, next: boom}}
          - step: boom
            tool: {{kind: python, code: "def main(): return 1 / 0"}}
            next: after
          - {{step: after, tool: {OK}, next: end}}
          - {{step: end, tool: {OK}}}
        """,
        code=1,
    )
    skipped = ["step_skipped after SKIPPED"]
    assert run.lines() == [*PROLOGUE, *ok("start"), *failed("boom"), *skipped, *ok("end"), *FAILED]
    told = run.told("step_failed", "boom")
    said = "exit code 1: ZeroDivisionError: division by zero"
    assert (told["routed_to_end"], told["original_failed_step"]) == (True, "boom")
    assert (told["failure_reason"], told["attempts"]) == (said, 1)
    action = run.told("action_failed", "boom")
    assert (action["will_retry"], action["error"]) == (False, said)
    assert run.told("step_skipped", "after")["reason"] == "upstream_failed"
    assert run.told("step_started", "end") == {
        "from": ["boom"],
        "routed_to_end": True,
        "original_failed_step": "boom",
        "failed_steps": ["boom"],
    }
    meta = run.told("workflow_failed")
    assert (meta["evaluated_by_end_step"], meta["total_steps"], meta["failed_steps"]) == (True, 3, ["boom"])
    assert (meta["end_step_failed"], meta["skipped_steps_count"], meta["cancelled_steps_count"]) == (False, 1, 0)
    assert meta["error"] == "Workflow failed at steps: boom"
    assert run.told("playbook_failed")["error"] == "Playbook failed: boom"
    assert run.message() == "exit code 1: ZeroDivisionError: division by zero"


def test_implicit_routing(tmp_path: Path) -> None:
    """A step without `next` leads to `end`."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {OK}, next: step1}}
          - {{step: step1, tool: {OK}}}
          - {{step: End, tool: {OK}}}
        """,
    )
    assert run.lines() == [*PROLOGUE, *ok("start"), *ok("step1"), *ok("end"), *COMPLETED]
    assert run.told("step_started", "end") == {"from": ["step1"], "implicit_route": True, "reason": "no_next"}


def test_implicit_end(tmp_path: Path) -> None:
    """A playbook without an `end` gets one."""
    run = Run(tmp_path, f"workflow: [{{step: start, tool: {OK}, next: [step1]}}, {{step: step1, tool: {OK}}}]")
    assert run.lines() == [*PROLOGUE, *ok("start"), *ok("step1"), *ok("end"), *COMPLETED]
    assert run.told("step_started", "end")["auto_injected"] is True
    assert run.told("action_completed", "end")["result"] == {"status": "aggregated"}


FORK = """
workflow:
  - {{step: start, tool: {{kind: noop}}, next: [{{step: a}}, {{step: b}}]}}
  - {{step: a, tool: {{kind: shell, cmds: ['read line < a.gate']}}, next: end}}
  - {{step: b, {b}, next: end}}
  - {{step: end, tool: {{kind: noop}}}}
"""


def test_parallel_paths_meet_once(tmp_path: Path) -> None:
    """Two paths that begin at one step run beside each other, and `end` runs once, after both."""
    (tmp_path / "a.gate").write_text("go\n")
    run = Run(tmp_path, FORK.format(b=f"tool: {OK}"), "--max-parallel", "2")
    lines = run.lines()
    assert lines[:7] == [*PROLOGUE, *ok("start")]
    assert run.lines("a") == ok("a")
    assert run.lines("b") == ok("b")
    assert lines[17:] == [*ok("end"), *COMPLETED]
    assert sorted(run.told("step_started", "end")["from"]) == ["a", "b"]


def test_an_ordinary_failure_lets_the_others_finish(tmp_path: Path) -> None:
    """Where one of two paths fails the other one runs to its end, and then `end` runs once."""
    (tmp_path / "a.gate").write_text("go\n")
    run = Run(tmp_path, FORK.format(b=f"tool: {BAD}"), "--max-parallel", "2", code=1)
    lines = run.lines()
    assert lines[:7] == [*PROLOGUE, *ok("start")]
    assert run.lines("a") == ok("a")
    assert run.lines("b") == failed("b")
    assert lines[17:] == [*ok("end"), *FAILED]
    assert run.told("step_started", "end")["original_failed_step"] == "b"


def test_a_critical_failure_cancels_the_others(tmp_path: Path) -> None:
    """Where a critical step fails what runs beside it is told to stop, and leads to `end` as well."""
    os.mkfifo(tmp_path / "a.gate")
    os.mkfifo(tmp_path / "b.gate")
    waits = "tool: {kind: shell, cmds: ['echo > b.gate', 'read line < a.gate']}"
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {{kind: noop}}, next: [a, b]}}
          - {{step: a, {waits}, next: after}}
          - {{step: b, critical: true, tool: {{kind: shell, cmds: ['read line < b.gate', 'exit 3']}}}}
          - {{step: after, tool: {OK}}}
        """,
        "--max-parallel",
        "2",
        code=1,
    )
    lines = run.lines()
    assert run.lines("b") == failed("b")
    assert run.lines("a")[:2] == ok("a")[:2]
    assert run.lines("a")[-1] == "step_cancelled a CANCELLED"
    assert run.lines("after") == ["step_cancelled after CANCELLED"]
    assert lines[-7:] == [*ok("end"), *FAILED]
    assert run.statuses()["a"] == "terminated"
    assert run.told("workflow_failed")["failed_steps"] == ["b"]


def test_no_matching_case_leads_to_end(tmp_path: Path) -> None:
    """A step none of whose cases leads anywhere leads to `end`; it never hangs."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {OK}
            case: [{{when: "{{{{ event.name == 'call.done' and response == 'other' }}}}", then: {{next: a}}}}]
          - {{step: a, tool: {OK}}}
          - {{step: end, tool: {OK}}}
        """,
    )
    assert run.lines() == [*PROLOGUE, *ok("start"), "step_skipped a SKIPPED", *ok("end"), *COMPLETED]
    assert run.told("step_started", "end") == {"from": ["start"], "implicit_route": True, "reason": "no_match"}


def test_an_end_that_fails(tmp_path: Path) -> None:
    """If `end` itself fails the run has failed, and is over."""
    run = Run(tmp_path, f"workflow: [{{step: start, tool: {OK}}}, {{step: end, tool: {BAD}}}]", code=1)
    assert run.lines() == [*PROLOGUE, *ok("start"), *failed("end"), *FAILED]
    assert run.told("workflow_failed")["end_step_failed"] is True


LOOP = """
workflow:
  - step: start
    loop: {{in: "{{{{ [2, 1, 0] }}}}", iterator: n, mode: {mode}}}
    tool: {{kind: python, code: "def main(n): return {top} / n"}}
"""


def iteration(status: str, *, action: str = "completed") -> list[str]:
    """The events of one item of the loop `start`."""
    return [
        "action_started start RUNNING",
        f"action_{action} start {status}",
        f"step.exit start {status}",
        f"iteration_completed start {status}",
    ]


def test_a_loop(tmp_path: Path) -> None:
    """A loop begins, each of its items is told of, and it is over when all of them are."""
    run = Run(tmp_path, LOOP.format(mode="sequential", top=4).replace("[2, 1, 0]", "[2, 1]"))
    begun = ["step_started start STARTED", "iterator_started start STARTED"]
    over = ["iterator_completed start COMPLETED", "step.exit start COMPLETED", "step_completed start COMPLETED"]
    items = iteration("COMPLETED") * 2
    assert run.lines() == [*PROLOGUE, *begun, *items, *over, *ok("end"), *COMPLETED]
    assert run.told("iterator_started", "start") == {"total": 2}
    told = [event["data"]["index"] for event in run.events if event["type"] == "iteration_completed"]
    assert told == [0, 1]
    counts = run.told("iterator_completed", "start")
    assert (counts["successful"], counts["failed"]) == (2, 0)


@pytest.mark.parametrize("mode", ["sequential", "async", "parallel"])
def test_a_loop_with_an_item_that_fails(tmp_path: Path, mode: str) -> None:
    """Where an item fails the others run all the same, and then the step has failed and leads to `end`."""
    run = Run(tmp_path, LOOP.format(mode=mode, top=4), code=1)
    items = [event for event in run.events if event["type"] == "iteration_completed"]
    assert {event["data"]["index"]: event["status"] for event in items} == {0: "COMPLETED", 1: "COMPLETED", 2: "FAILED"}
    over = ["iterator_completed start FAILED", "step.exit start FAILED", "step_failed start FAILED"]
    assert run.lines()[-10:] == [*over, *ok("end"), *FAILED]
    assert run.message() == "exit code 1: ZeroDivisionError: division by zero"


CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: child
  path: kids/child
workload: {n: 1}
workflow:
  - {step: start, tool: {kind: python, code: "def main(n): return {'twice': 8 / (n - 1)}"}, next: last}
  - {step: last, tool: {kind: noop}}
"""
PARENT = """
workflow:
  - {{step: start, tool: {{kind: playbook, path: {path}, args: {{n: {n}}}, return_step: start}}, next: after}}
  - {{step: after, tool: {{kind: python, code: "def main(start): return start['twice']"}}}}
"""


def test_a_playbook_inside_a_playbook(tmp_path: Path) -> None:
    """The step waits for the other playbook, whose whole sequence stands inside its own, and has its result."""
    (tmp_path / "other.yaml").write_text(CHILD)
    run = Run(tmp_path, PARENT.format(path="kids/child", n=3))
    inner = [*PROLOGUE, *ok("start"), *ok("last"), *ok("end"), *COMPLETED]
    outer = ok("start")
    assert run.lines() == [*PROLOGUE, *outer[:2], *inner, *outer[2:], *ok("after"), *ok("end"), *COMPLETED]
    told = run.told("action_completed", "after")
    assert "child_status" not in told
    mine = [event for event in run.events if event["type"] == "action_completed" and event["scope"] == "root"]
    assert mine[0]["data"]["child_status"] == "completed"
    assert run.value("after") == 4.0


def test_a_playbook_inside_a_playbook_that_fails(tmp_path: Path) -> None:
    """A playbook that fails, fails the step that runs it, which leads to its own `end`."""
    (tmp_path / "other.yaml").write_text(CHILD)
    run = Run(tmp_path, PARENT.format(path="other.yaml", n=1), code=1)
    inner = [*PROLOGUE, *failed("start"), "step_skipped last SKIPPED", *ok("end"), *FAILED]
    outer = failed("start")
    skipped = ["step_skipped after SKIPPED"]
    assert run.lines() == [*PROLOGUE, *outer[:2], *inner, *outer[2:], *skipped, *ok("end"), *FAILED]
    mine = [event for event in run.events if event["type"] == "action_failed" and event["scope"] == "root"]
    assert mine[0]["data"]["child_status"] == "failed"
    assert run.told("workflow_failed")["evaluated_by_end_step"] is True


def test_retries_are_told_before_the_failure_stands(tmp_path: Path) -> None:
    """Each failed attempt says whether there is another one, and only the last leads to `end`."""
    retry = "{max_attempts: 3, initial_delay: 0, jitter: false}"
    run = Run(tmp_path, f"workflow: [{{step: start, tool: {BAD}, retry: {retry}}}]", code=1)
    again = ["action_failed start FAILED", "retry_scheduled start PENDING", "action_started start RUNNING"]
    one = failed("start")
    assert run.lines() == [*PROLOGUE, *one[:2], *again, *again, *one[2:], *ok("end"), *FAILED]
    told = [event["data"]["will_retry"] for event in run.events if event["type"] == "action_failed"]
    assert told == [True, True, False]


def test_a_canceled_run_is_told_in_the_same_words(tmp_path: Path) -> None:
    """A filter takes NoETL's names and ours."""
    run = Run(tmp_path, f"workflow: [{{step: start, tool: {OK}}}]")
    words = ("events", "ls", run.id, "--names", "noetl", "--json", "--type", "action_completed")
    assert run.program.call(*words, code=0).stdout.count("\n") == 2
    assert run.program.call("events", "ls", run.id, "--type", "action_completed", code=0).stdout.count("\n") == 2


FAMILY = """
workflow:
  - step: start
    loop: {in: "{{ [3, 1] }}", iterator: n}
    tool: {kind: playbook, path: other.yaml, args: {n: "{{ n }}"}, return_step: start}
"""


def test_playbooks_inside_a_loop_are_each_over(tmp_path: Path) -> None:
    """Each item's playbook has its whole sequence with one last pair, and the item says how that ended."""
    (tmp_path / "other.yaml").write_text(CHILD)
    run = Run(tmp_path, FAMILY, code=1)
    well = [*PROLOGUE, *ok("start"), *ok("last"), *ok("end"), *COMPLETED]
    badly = [*PROLOGUE, *failed("start"), "step_skipped last SKIPPED", *ok("end"), *FAILED]
    one, two = iteration("COMPLETED"), iteration("FAILED", action="failed")
    begun = ["step_started start STARTED", "iterator_started start STARTED"]
    over = ["iterator_completed start FAILED", "step.exit start FAILED", "step_failed start FAILED"]
    items = [*one[:1], *well, *one[1:], *two[:1], *badly, *two[1:]]
    assert run.lines() == [*PROLOGUE, *begun, *items, *over, *ok("end"), *FAILED]
    mine = [
        event["data"]
        for event in run.events
        if event["type"] in ("action_completed", "action_failed") and event["scope"] in ("start[0]", "start[1]")
    ]
    assert [(data["index"], data["child_status"]) for data in mine] == [(0, "completed"), (1, "failed")]
    started = [event for event in run.events if event["type"] == "playbook_started" and event["scope"] is not None]
    assert [event["data"]["parent_step"] for event in started[-2:]] == ["start", "start"]
    assert [data["child_execution_id"] for data in mine] == [f"{run.id}/{event['scope']}" for event in started[-2:]]


TOLD = "- {step: end, tool: {kind: python, code: 'def main(execution): return execution[\"original_failed_step\"]'}}"
KID = """
metadata: {name: kid}
workflow: [{step: inner, tool: {kind: shell, cmds: ['exit 4']}}]
"""


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: shell, cmds: ['exit 4']}",
        "{kind: playbook, path: kid.yaml}",
        "{kind: iterator, collection: [1], element: x, task: {kind: shell, cmds: ['exit 4']}}",
        "{kind: iterator, collection: [1], element: x, task: {kind: playbook, path: kid.yaml}}",
        "[{name: label, kind: shell, cmds: ['exit 4']}]",
    ],
)
def test_who_failed_is_a_step_of_this_playbook(tmp_path: Path, tool: str) -> None:
    """`original_failed_step` is a step of the playbook that asks, by its own name, and not one inside of that."""
    (tmp_path / "kid.yaml").write_text(KID)
    run = Run(tmp_path, f"workflow:\n  - {{step: one, tool: {tool}}}\n  {TOLD}", code=1)
    assert run.value("end") == "one"
    last = [event for event in run.events if event["type"] == "step_started" and event["scope"] == "root"][-1]
    assert (last["step"], last["data"]["original_failed_step"]) == ("end", "one")


def test_the_first_failure_of_a_loop_has_the_name_of_its_step(tmp_path: Path) -> None:
    """`end` is told of the step that the file has, and not of what runs for each of its items."""
    end = TOLD.replace('["original_failed_step"]', '["first_failure"]["step"]')
    run = Run(tmp_path, f"workflow:\n  - {{step: one, loop: {{in: [1], iterator: x}}, tool: {BAD}}}\n  {end}", code=1)
    assert run.value("end") == "one"


def test_who_failed_first(tmp_path: Path) -> None:
    """Of two that failed it is the one that did so before the other, wherever they stand in the file."""
    program = Program(tmp_path)
    go = program.gate("go")
    program.write(
        written(
            f"""
            workflow:
              - {{step: start, tool: {{kind: noop}}, next: [one, two]}}
              - {{step: one, tool: {{kind: shell, cmds: ['read line < go', 'exit 4']}}}}
              - {{step: two, tool: {BAD}}}
              {TOLD}
            """
        )
    )
    with program.start("run", "flow.yaml") as started:
        started.until("err", "run 1")
        with program.start("events", "follow", "1") as follower:
            follower.until("out", "step_failed")
        go.open()
        assert started.end() == 1
    assert program.json("status", "1")["outputs"]["end"] == "two"


def test_nobody_failed_where_an_attempt_did_and_the_next_went_well(tmp_path: Path) -> None:
    """A step that was tried again and then went well is not a failed one."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: shell, cmds: ["test -e once || { touch once; exit 1; }"]}
            retry: {max_attempts: 2, initial_delay: 0, jitter: false}
          - {step: end, tool: {kind: python, code: "def main(execution): return [execution['original_failed_step']]"}}
        """,
    )
    assert run.value("end") == [None]
