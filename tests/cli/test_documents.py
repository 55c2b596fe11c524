"""Every document that a command prints is the Struct that docs/reference/json.md has for it, with its version."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from docs.documents import DOCUMENTS, LINES
from resile.commands.documents.runs import run_document
from resile.engine.replay import ITEMS_LISTED_MAX, dropped_jobs
from resile.model.executor import ExecutorSettings
from resile.model.workflow import Noop, Resources, Step
from resile.store.contract import JobRow, RunRow
from resile.store.memory import MemoryStore
from tests.cli.program import Program
from tests.core.world import World, flow

FLOW = """\
resile: 1
name: all
steps:
  solve: {shell: 'echo x >&2; exit 3', retry: {max: 1}, park: true}
  each: {map: {input: [1, 2], steps: [{id: work, shell: exit 4}]}}
"""
# The commands of the page as they are called after a run of the flow; each changes nothing that a later one needs.
CALLS = {
    "run, resume, rerun, status RUN, judge --resume": ("status", "1"),
    "run --dry-run": ("run", "flow.yaml", "--dry-run"),
    "run --cached --dry-run": ("run", "flow.yaml", "--cached", "--dry-run"),
    "rerun --changed --dry-run": ("rerun", "1", "--changed", "--dry-run"),
    "ls, status": ("ls",),
    "explain": ("explain", "1"),
    "parked": ("parked", "1"),
    "logs": ("logs", "1"),
    "logs --export": ("logs", "1", "--export", "there"),
    "metrics": ("metrics", "1"),
    "recover, watch --recover": ("recover", "1", "--dry-run"),
    "resources": ("resources", "1"),
    "slurm status, slurm cancel": ("slurm", "status", "1"),
    "dlq list": ("dlq", "list", "1"),
    "dlq show": ("dlq", "show", "1", "0"),
    "dlq stats": ("dlq", "stats", "1"),
    "dlq export FILE": ("dlq", "export", "1", "letters"),
    "judge": ("judge", "1", "solve", "skip"),
    "cancel": ("cancel", "1"),
    "dlq retry --dry-run": ("dlq", "retry", "1", "--dry-run"),
    "dlq retry": ("dlq", "retry", "1"),
    "dlq purge": ("dlq", "purge", "1", "--yes"),
    "reset": ("reset", "1"),
    "rehearse": ("rehearse", "flow.yaml", "solve", "--fail", "exit:3"),
    "check": ("check", "flow.yaml"),
    "migrate": ("migrate", "flow.yaml"),
    "init": ("init", "first.yaml"),
    "prune": ("prune", "--keep-last", "9"),
    "submit": ("submit", "flow.yaml"),
    "token create": ("token", "create", "ci", "--role", "viewer"),
    "token ls": ("token", "ls"),
    "token revoke": ("token", "revoke", "ci"),
    "config": ("config",),
    "graph": ("graph", "1"),
    "db check": ("db", "check"),
    "version": ("version",),
    "any command that ends with an error": ("status", "99"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command of the page prints with --json, and what `events list` and `dlq export` do."""
    program = Program(tmp_path_factory.mktemp("documents"))
    program.call("run", program.write(FLOW), code=4)
    # A Slurm that knows of no job.
    for command in ("squeue", "scontrol"):
        path = program.folder / "bin" / command
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    program.env["PATH"] = f"{program.folder}/bin:{program.env['PATH']}"
    lines = {"events list, events follow": ("events", "list", "1"), "dlq export": ("dlq", "export", "1")}
    found = {name: program.call(*words, "--json").stdout for name, words in lines.items()}
    return found | {name: program.call(*words, "--json").stdout for name, words in CALLS.items()}


def is_complete(value: Any, kind: Any) -> bool:
    """Has an object, and each one inside it, the fields of its Struct and no others?"""
    decoded = msgspec.convert(value, kind)
    return bool(msgspec.to_builtins(decoded) == value)


def test_every_document_is_called_for() -> None:
    """The calls of this file cover the page."""
    assert CALLS.keys() == DOCUMENTS.keys()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_are_their_structs(answers: dict[str, str], name: str) -> None:
    """A document has its version and exactly the fields of its Struct."""
    document = msgspec.json.decode(answers[name])
    assert document["version"] == 1
    assert is_complete(document, DOCUMENTS[name])


@pytest.mark.parametrize("name", LINES)
def test_lines_are_their_structs(answers: dict[str, str], name: str) -> None:
    """Each line has exactly the fields of its Struct."""
    lines = answers[name].splitlines()
    assert lines
    assert all(is_complete(msgspec.json.decode(line), LINES[name]) for line in lines)


def test_what_a_long_list_of_jobs_leaves_out_is_counted() -> None:
    """Of many items the jobs of those that went well are left out and counted, disabled ones apart."""
    state = World(flow()).start().state
    state.last_scope, state.items = 2, ITEMS_LISTED_MAX + 1
    first = max(state.jobs) + 1
    statuses = {"m[0]": (5, 5), "m[1]": (5, 6), "m[2]": (5, 9)}
    rows = [
        JobRow(first + place, f"s{place}", scope, status)
        for place, (scope, status) in enumerate((scope, one) for scope, both in statuses.items() for one in both)
    ]
    store = MemoryStore()
    run = store.create_run(RunRow(id=0, workflow="x", dialect="native", definition="", status="running"), b"", rows)
    gone = dropped_jobs(store, run, state)
    assert ([row.scope for row in gone.rows], gone.omitted) == (["m[1]", "m[1]"], 3)


@pytest.mark.parametrize(("executor", "place"), [(ExecutorSettings(directory="/x"), "a block"), (None, "a worker")])
def test_what_a_step_waits_for_is_what_its_run_has(executor: ExecutorSettings | None, place: str) -> None:
    """On a cluster that is a block of nodes, on a server a worker."""
    asks = Step(name="a", action=Noop(), resources=Resources(cpus=2, memory_bytes=1000))
    world = World(flow(asks, executor=executor)).start()
    row = RunRow(id=1, workflow="t", dialect="native", definition="", status="running")
    assert (
        run_document(row, world.state, "running", 0.0).jobs[0].waits_for == f"{place} with 2 CPUs, 1000 bytes of memory"
    )
