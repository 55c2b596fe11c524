"""What `run`, `resume` and `rerun` say about a workflow file: the warnings of `check`, and that it has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from resile.commands.load import STDIN_NAME, CompileOptions, load, read_source, shown_secrets
from resile.errors import ResileError
from resile.model.codec import sha256_hex
from resile.model.limits import size
from resile.model.status import Status

if TYPE_CHECKING:
    from resile.core.state import State
    from resile.errors import Diagnostic
    from resile.model.workflow import Workflow
    from resile.store.contract import RunRow, Store

WARNINGS_MAX = 20
NAMES_SHOWN_MAX = 5


def learned_lines(learned: dict[str, int]) -> list[str]:
    """What was learned about the memory of steps, one line for each; at most WARNINGS_MAX lines."""
    lines = [f"{name} asks for {size(count)}: what it needed in earlier runs" for name, count in learned.items()]
    return lines[:WARNINGS_MAX]


def cluster_lines(workflow: Workflow, *, is_local: bool = False) -> list[str]:
    """What a caller should know of a run whose file schedules its nodes; `is_local`: the caller chose this machine."""
    if workflow.executor is None:
        schedules = workflow.cluster is not None and bool(workflow.cluster.allocations)
        if schedules and not is_local:
            return ["the file schedules nodes, and no Slurm is here: the jobs run here"]
        return []
    if not workflow.executor.on_order or workflow.executor.provider != "slurm":
        return []
    return ["the jobs run on Slurm, in allocations that the file schedules; `--executor local` runs them here"]


def warning_lines(warnings: Iterable[Diagnostic], file: str) -> list[str]:
    """One line for each warning; a file with very many shows the first ones."""
    found = list(warnings)
    lines = [
        f"{finding.where}: {finding.message}" + (f"; {finding.hint}" if finding.hint else "")
        for finding in found[:WARNINGS_MAX]
    ]
    if len(found) > WARNINGS_MAX:
        lines.append(f"{len(found) - WARNINGS_MAX} more warnings; `resile check {file}` shows them")
    return lines


def kept_lines(state: State, inputs: Mapping[str, Any], number: int) -> list[str]:
    """Notices for a rerun of the failed steps with other inputs: it keeps completed steps that use these inputs."""
    import re

    from resile.commands.start.uses import texts_of

    others = [name for name, value in inputs.items() if state.inputs.get(name) != value]
    used = re.compile(rf"\binputs\s*(?:\.\s*|\[\s*['\"])(?:{'|'.join(map(re.escape, others))})(?![\w-])")
    kept = [
        step.name
        for step in state.workflow.steps
        if others
        and (job := state.job_named(step.name)) is not None
        and job.status is Status.completed
        and any(map(used.search, texts_of(step)))
    ]
    if not kept:
        return []
    names = ", ".join(kept[:NAMES_SHOWN_MAX])
    if len(kept) > NAMES_SHOWN_MAX:
        names += f" and {len(kept) - NAMES_SHOWN_MAX} more"
    return [f"completed with the old inputs, and kept: {names}; `resile rerun {number}` runs all steps again"]


def notices_of(store: Store, row: RunRow, state: State) -> list[str]:
    """Notices for a caller who continues an existing run: its file has changed, or has warnings."""
    workflow = state.workflow
    path = os.path.normpath(os.path.join(row.directory, workflow.file))
    file = workflow.file if row.directory == os.getcwd() else path
    data = read_source(path) if state.source and workflow.file != STDIN_NAME else None
    if data is None:
        return warning_lines(shown_secrets(workflow), file)
    if sha256_hex(data) != state.source:
        changed = f"{file} has changed since run {row.id} started, and this run goes on with the file as it was"
        return [f"{changed}; to use the new one: resile run {file}", *warning_lines(shown_secrets(workflow), file)]
    if workflow.dialect == "python":
        # Compiling it would run the program.
        return warning_lines(shown_secrets(workflow), file)
    try:
        return warning_lines(load(file, store, CompileOptions(workflow.dialect)).warnings, file)
    except ResileError:
        # Another file that this one names has changed; the run has its own copy of all of them.
        return warning_lines(shown_secrets(workflow), file)
