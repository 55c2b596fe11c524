"""Parallel steps: an ordinary failure lets the others finish, a critical one stops them; `end` runs once and last."""

from __future__ import annotations

from itertools import permutations

from tests.cli.program import Program
from tests.runs.ladder.flows import Flows

PARALLEL = """\
resile: 1
name: parallel
max_parallel: 2
steps:
  bad: {shell: 'read line < gate; exit 1', CRITICAL}
  slow: {shell: 'trap "echo term >> trace; exit 1" TERM; echo up > up; read line < never', grace: 5s}
  queued: {shell: ./step queued}
  end: {shell: 'echo end ${execution.status} ${execution.canceled_steps} >> trace'}
"""


def run(program: Program, text: str) -> tuple[int, dict[str, str], list[str]]:
    """Let `bad` fail while `slow` runs; exit code, status of each step, and the last events."""
    gate, up = program.gate("gate"), program.gate("up")
    program.gate("never")
    program.write(text)
    with program.start("run", "flow.yaml", "--json") as started:
        up.wait()
        gate.open()
        code = started.end()
    document = program.json("status", "1")
    lines = program.call("events", "ls", "1", code=0).stdout.splitlines()
    return code, {job["step"]: job["status"] for job in document["jobs"]}, [line.split()[2] for line in lines]


def test_a_critical_failure_cancels_its_siblings(flows: Flows) -> None:
    """Queued ones never start, running ones get SIGTERM and their grace, and are neither success nor failure."""
    code, status, events = run(flows.program, PARALLEL.replace("CRITICAL", "critical: true"))
    assert code == 1
    assert status == {"bad": "failed", "slow": "terminated", "queued": "canceled", "end": "completed"}
    trace = (flows.folder / "trace").read_text().splitlines()
    assert trace in (["term", f'end failed ["{one}","{other}"]'] for one, other in permutations(["slow", "queued"]))
    assert events[-2:] == ["workflow_failed", "playbook_failed"]
    document = flows.program.json("status", "1")
    assert (document["steps"]["failed"], document["steps"]["canceled"]) == (1, 2)


def test_an_ordinary_failure_lets_its_siblings_finish(flows: Flows) -> None:
    """What runs goes on, what is queued starts, and `end` comes after all of them."""
    text = PARALLEL.replace(", CRITICAL", "").replace(
        "slow: {shell: 'trap \"echo term >> trace; exit 1\" TERM; echo up > up; read line < never', grace: 5s}",
        "slow: {shell: 'echo up > up; ./step slow'}",
    )
    code, status, _ = run(flows.program, text)
    assert code == 1
    assert status == {"bad": "failed", "slow": "completed", "queued": "completed", "end": "completed"}
    assert (flows.folder / "trace").read_text().splitlines()[-1] == "end failed []"


def test_end_runs_once_and_last(flows: Flows) -> None:
    """Several failures at once lead to one `end`, after every other step is done."""
    ran = flows.run(
        "name: x\nsteps:\n  a: {shell: './step a 9'}\n  b: {shell: './step b 9', critical: true}\n"
        "  c: {shell: ./step c, needs: [a]}\n  d: {shell: ./step d, needs: [b]}\n  end: {shell: ./step end}\n",
        1,
    )
    assert ran.order in (["a", "b", "end"], ["b", "end"])
    started = [event["step"] for event in ran.of("step_started")]
    assert started[-1] == "end"
    assert started.count("end") == 1
    last = [event["type"] for event in ran.events if event["step"] not in ("end", None)]
    assert last[-1] in ("step_failed", "step_canceled")


def test_a_critical_step_inside_an_item_concerns_that_item(flows: Flows) -> None:
    """The steps beside it in its item are canceled; the other items go on, and the run completes."""
    ran = flows.run(
        "error_policy: {continue_on_failure: true}\nsteps:\n- id: process\n  map:\n    input: [a, b]\n    steps:\n"
        "      guard: {shell: 'test ${item} = b', critical: true}\n      work: {shell: './step work-${item}'}\n"
    )
    assert ran.order == ["work-b"]
    numbers = ran.document["maps"]["process"]
    assert (numbers["successful"], numbers["failed"]) == (1, 1)


def test_a_critical_map_that_fails_cancels_its_siblings(flows: Flows) -> None:
    """A map is a step like any other: stopped at its first failed item it takes the others along."""
    ran = flows.run(
        "name: x\nsteps:\n  process:\n    critical: true\n"
        "    map: {input: [a, b], error_policy: {on_item_failure: stop}, steps: [{shell: exit 1}]}\n"
        "  later: {shell: ./step later, needs: [first]}\n  first: {noop: true, needs: [process]}\n",
        1,
    )
    assert ran.order == []
    assert ran.status == {"process": "failed", "later": "canceled", "first": "canceled", "end": "completed"}
