"""The resources that the attempts in a run's log used, by step, and the requests to suggest for the next run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from resile.commands.documents.recovery import Granted
from resile.commands.documents.resources import AttemptSeries, RunResources, StepResources, Suggested
from resile.core.events import AttemptEnded, EpochStarted
from resile.core.state import State
from resile.engine.monitoring.series import read_series
from resile.engine.paths import epoch_folder
from resile.engine.replay import fold_log, row_of
from resile.errors import ResileError
from resile.model.failure import Usage
from resile.model.nested import path_part, step_name
from resile.model.workflow import Child, FanOut, Step
from resile.store.contract import RunRow
from resile.store.server_tables import SharedStore

MEBIBYTE = 1 << 20
# A suggestion is the peak that 95 % of the attempts stayed within, times this factor.
MARGIN = 1.2
# The epoch, the job and the attempt.
Tried = tuple[int, int, int]
_INDEXES = r"\[\d+\]"


class _Used(Struct):
    """The resources that the attempts of one step used."""

    usages: list[Usage]
    jobs: set[int]


def resources_of(store: SharedStore, run: int, only: str = "") -> RunResources:
    """The resources that each step of a run used, or one of the steps."""
    with store.reading():
        row = row_of(store, run)
        state = fold_log(store, row)
        names = {job.id: path_of(job.scope, job.step) for job in store.jobs(run)}
        sampled = _samples(row, state.epoch)
        used = _used_by_step(store, run, names, sampled)
    if only and not any(_is_named(name, only) for name in names.values()):
        hint = f"`resile status {run}` lists its steps"
        raise ResileError("no-such-step", f"run {run} has no step {only!r}", hint=hint)
    series: dict[str, list[AttemptSeries]] = {}
    for (_, job, _), found in sampled.items():
        if job in names:
            series.setdefault(names[job], []).extend(found)
    steps = _definitions(state)
    return RunResources(
        run=run,
        workflow=row.workflow,
        steps=[
            _step_of(state, name, found, steps.get(name), series.get(name, []))
            for name, found in used.items()
            if not only or _is_named(name, only)
        ],
    )


def path_of(scope: str, step: str) -> str:
    """The path of a step; all items of a map share it."""
    return step_name(re.sub(_INDEXES, "", scope), step)


def _is_named(name: str, only: str) -> bool:
    return only in (name, name.rpartition("/")[2])


def _used_by_step(
    store: SharedStore, run: int, names: dict[int, str], sampled: Mapping[Tried, list[AttemptSeries]]
) -> dict[str, _Used]:
    """The resources that the attempts of each step used, in the order of the steps.

    Attempts of maps and child workflows are left out, because no process of theirs was measured.
    """
    used: dict[str, _Used] = {}
    epoch = 1
    for entry in store.entries(run):
        event = entry.event
        if isinstance(event, EpochStarted):
            epoch += 1
        elif isinstance(event, AttemptEnded) and event.job in names and event.outcome.usage.rss_bytes_max:
            found = used.setdefault(names[event.job], _Used([], set()))
            found.usages.append(_with_samples(event.outcome.usage, sampled.get((epoch, event.job, event.attempt), ())))
            found.jobs.add(event.job)
    order = list(dict.fromkeys(names[job] for job in sorted(names)))
    return {name: used[name] for name in order if name in used}


def _with_samples(usage: Usage, series: Iterable[AttemptSeries]) -> Usage:
    """The usage of an attempt, with the peak of its samples if that is larger: these are of all processes together."""
    peak = max((rss_bytes for one in series for _, rss_bytes, _ in one.samples), default=0)
    return replace(usage, rss_bytes_max=max(usage.rss_bytes_max, peak))


def _definitions(state: State) -> dict[str, Step]:
    """The steps of a run's definition by path, those of maps and child workflows included."""
    return dict(_walk((*state.workflow.steps, state.workflow.end), ""))


def _walk(steps: Iterable[Step], prefix: str) -> Iterator[tuple[str, Step]]:
    """Each of these steps with its path, followed by those inside it."""
    for step in steps:
        yield prefix + (path_part(step.name) if prefix else step.name), step
        inside = f"{prefix}{path_part(step.name)}/"
        if isinstance(step.action, FanOut):
            yield from _walk(step.action.steps, inside)
        elif isinstance(step.action, Child):
            yield from _walk((*step.action.workflow.steps, step.action.workflow.end), inside)


def _step_of(state: State, name: str, used: _Used, step: Step | None, series: list[AttemptSeries]) -> StepResources:
    """The document of one step."""
    asked = step.resources if step is not None else None
    memory = asked.memory_bytes if asked is not None else 0
    seconds = asked.runtime_seconds if asked is not None else None
    grants = [grant for path, grant in state.grants.items() if re.sub(_INDEXES, "", path) == name]
    grants += [state.jobs[job] for job in used.jobs if job in state.jobs]  # type: ignore[misc]
    peaks = sorted(usage.rss_bytes_max for usage in used.usages)
    p95 = percentile(peaks, 95)
    return StepResources(
        step=name,
        attempts=len(peaks),
        requested=Granted(memory_bytes=memory or None, runtime_seconds=seconds),
        granted=Granted(
            memory_bytes=max([memory, *(grant.memory_bytes for grant in grants)]) or None,
            runtime_seconds=max([seconds or 0.0, *(grant.runtime_seconds for grant in grants)]) or None,
        ),
        peak_bytes=peaks[-1],
        p95_bytes=p95,
        cpu_seconds=round(sum(usage.cpu_seconds for usage in used.usages), 3),
        wall_seconds=round(sum(usage.wall_seconds for usage in used.usages), 3),
        io_bytes=sum(usage.io_bytes for usage in used.usages),
        suggested=Suggested(memory_bytes=suggested_bytes(p95)),
        series=series,
    )


def percentile(ordered: list[int], percent: int) -> int:
    """The smallest value that this percentage of the values does not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def suggested_bytes(p95: int) -> int:
    """The memory to request if 95 % of the attempts stayed within `p95`: a margin more, in whole mebibytes."""
    return math.ceil(p95 * MARGIN / MEBIBYTE - 1e-9) * MEBIBYTE


def _samples(row: RunRow, epochs: int) -> dict[Tried, list[AttemptSeries]]:
    """The samples of each attempt: several series if one engine after another has watched it."""
    found: dict[Tried, list[AttemptSeries]] = {}
    for epoch in range(1, epochs + 1):
        for one in read_series(epoch_folder(row.output, row.id, epoch)):
            series = AttemptSeries(job=one.job, attempt=one.attempt, samples=list(one.samples))
            found.setdefault((epoch, one.job, one.attempt), []).append(series)
    return found
