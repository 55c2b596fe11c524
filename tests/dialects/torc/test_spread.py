"""How failures spread, above all where Torc gets it wrong: nothing stays blocked, nothing runs that must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.torc.runs import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A folder to run workflows in."""
    return Runs(tmp_path)


def graph(*jobs: str) -> str:
    """A workflow of jobs, each `name [words of ./step] < needs`."""
    lines = ["name: t", "jobs:"]
    for job in jobs:
        words, _, needed = job.partition("<")
        name = words.split()[0]
        lines.append(f"  - {{name: {name}, command: ./step {words.strip()}, depends_on: [{needed.strip()}]}}")
    return "\n".join(lines) + "\n"


def test_a_diamond_whose_root_fails(runs: Runs) -> None:
    """All that stands below a failed root is canceled, the far corner too, and the run ends."""
    ran = runs.run(graph("a a 9", "b1 < a", "b2 < a", "c < b1, b2"), 1)
    assert ran.order == ["a"]
    assert ran.status == {"a": "failed", "b1": "canceled", "b2": "canceled", "c": "canceled", "end": "completed"}
    causes = {job["step"]: job["cause"] for job in ran.document["jobs"] if job["status"] == "canceled"}
    assert causes == {name: {"step": "a", "job": 1, "status": "failed"} for name in ("b1", "b2", "c")}


def test_a_canceled_need_is_not_satisfied_by_another(runs: Runs) -> None:
    """A job one of whose needs was canceled does not run when its other need succeeds later."""
    ran = runs.run(graph("a a 9", "b < a", "d", "c < b, d"), 1)
    assert ran.order == ["a", "d"]
    assert ran.status["c"] == "canceled"


def test_a_chain_of_150_jobs(runs: Runs) -> None:
    """A failure at the head of a long chain cancels all the rest of it."""
    ran = runs.run(graph("j0 j0 9", *(f"j{number} < j{number - 1}" for number in range(1, 150))), 1)
    assert ran.order == ["j0"]
    assert ran.document["steps"] == {
        "total": 150, "completed": 0, "recovered": 0, "tolerated": 0, "failed": 1, "canceled": 149, "skipped": 0,
        "parked": 0,
    }  # fmt: skip


def test_terminated_with_exit_code_0(runs: Runs) -> None:
    """A job that is asked to end and exits with 0 did not succeed: what waits for it is canceled."""
    at, never = runs.program.gate("at"), runs.program.gate("never")
    command = 'trap "echo asked >> trace; exit 0" TERM; echo here > at; read line < never'
    text = f"name: t\njobs:\n  - {{name: a, command: '{command}', supports_termination: true}}\n"
    runs.program.write(text + "  - {name: b, command: ./step b, depends_on: [a]}\n")
    with runs.program.start("run", "flow.yaml", "--json") as started:
        at.wait()
        runs.program.call("cancel", "1", code=0)
        assert started.end() == 3
    document = runs.program.json("status", "1", code=0)
    assert {job["step"]: job["status"] for job in document["jobs"]} == {
        "a": "terminated", "b": "canceled", "end": "completed",
    }  # fmt: skip
    assert (runs.folder / "trace").read_text() == "asked\n"
    assert never is not None


@pytest.mark.parametrize(("terminable", "trace"), [("true", ["asked"]), ("false", None)])
def test_a_runtime_that_is_over(runs: Runs, terminable: str, trace: list[str] | None) -> None:
    """A job has no more than its runtime; it fails though it exits with 0, and without time to end it is killed."""
    text = f"""
name: t
resource_requirements: [{{name: r, num_cpus: 1, memory: 1m, runtime: PT0.4S}}]
jobs:
  - name: a
    command: trap "echo asked >> trace; exit 0" TERM; while read -t 60 line < /dev/null || true; do :; done
    supports_termination: {terminable}
    resource_requirements: r
  - {{name: b, command: ./step b, depends_on: [a]}}
"""
    ran = runs.run(text, 1)
    assert ran.status == {"a": "failed", "b": "canceled", "end": "completed"}
    assert ran.of("attempt_failed")[0]["data"]["kind"] == "timeout"
    assert trace is None or ran.order == trace
    assert ran.document["duration_seconds"] < 8


def test_a_job_that_runs_though_its_needs_failed(runs: Runs) -> None:
    """With `cancel_on_blocking_job_failure: false` a job waits for the end of others, good or bad."""
    text = graph("a a 9", "b < a", "d", "c < b, d") + "    cancel_on_blocking_job_failure: false\n"
    text = text.replace("c, depends_on: [b, d]}\n    cancel", "c, depends_on: [b, d], cancel").rstrip() + "}\n"
    ran = runs.run(text, 1)
    assert ran.order == ["a", "d", "c"]
    assert ran.status == {
        "a": "failed", "b": "canceled", "d": "completed", "c": "completed", "end": "completed",
    }  # fmt: skip
