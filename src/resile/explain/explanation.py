"""`explain(store, row, …)`: which steps of a run failed, which rule in which line was applied, and with what result.

The log is read as a stream and folded as the engine folds it; the report is bounded (report.py). With a step, or an
item such as `process[3]`, the report covers it in full, and otherwise only the jobs that contain it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import Struct, structs

from resile.core.events import Event
from resile.explain.replay_log import replay
from resile.explain.report import NESTED_FIELDS, Explanation, ItemGroup, ItemReport, Names, StepReport, all_reports
from resile.explain.timeline import Timeline
from resile.explain.why_not_run import add_waiting, explain_unlogged
from resile.explain.wording import list_names
from resile.model import codec
from resile.model.nested import names_of
from resile.model.status import EXIT_CODES, STATUS_NAMES, RunStatus
from resile.model.workflow import Child, FanOut, Step, Workflow
from resile.store.contract import RunRow, Store

R = TypeVar("R", bound=Struct)

NAMES_MAX = 10_000
# Version of the document: it rises when a field is removed or changes its meaning.
VERSION = 1


def explain(store: Store, row: RunRow, status: RunStatus, wanted: str | None = None) -> Explanation | None:
    """Explain a run, or one step, job or item of it; None where it has none of that name."""
    workflow = codec.decode(store.definition(row.definition))
    events = (entry.event for entry in store.entries(row.id))
    return explain_events(workflow, events, row.id, status, wanted)


def explain_events(
    workflow: Workflow, events: Iterable[Event], run: int, status: RunStatus, wanted: str | None = None
) -> Explanation | None:
    """Explain a run from its definition and the events of its log."""
    timeline = Timeline(workflow, wanted)
    for event in events:
        replay(timeline, event)
    if wanted is not None:
        for job in list(timeline.state.jobs.values()):
            if job.id not in timeline.reports and timeline.is_wanted(job):
                explain_unlogged(timeline, job)
    _settle(timeline)
    reports = (
        [report for report in timeline.top_level if _is_notable(report)]
        if wanted is None
        else _steps_for(timeline, wanted)
    )
    if wanted is not None and not reports:
        return None
    return Explanation(
        VERSION,
        run,
        timeline.state.workflow.name,
        status,
        None if status == "running" else EXIT_CODES[status],
        timeline.state.epoch,
        timeline.resumed,
        _verdict_reason(timeline, status),
        timeline.failures,
        timeline.canceled,
        reports,
        timeline.omitted,
        timeline.state.inputs,
    )


def _settle(timeline: Timeline) -> None:
    """Set the status of jobs that have not ended, and list the jobs that wait for parked ones."""
    for number, report in timeline.reports.items():
        job = timeline.state.jobs.get(number)
        if job is None:
            continue
        report.status = STATUS_NAMES[job.status]
        if report.status == "pending_failed":
            add_waiting(timeline, report)


def _is_notable(report: StepReport) -> bool:
    plain = all(entry.event == "passed" and not entry.inside and not entry.items for entry in report.attempts)
    return not plain or bool(report.inside or report.items or report.status == "skipped")


def _verdict_reason(timeline: Timeline, status: RunStatus) -> str:
    """The reason for the status of a run."""
    match status:
        case "failed" if timeline.state.aborted:
            return timeline.state.aborted
        case "failed" if timeline.failed_steps:
            return f"{list_names(timeline.failed_steps)} failed"
        case "completed" if timeline.failed_steps:
            return f"`{timeline.state.workflow.end.name}` says so, although {list_names(timeline.failed_steps)} failed"
        case "failed" if timeline.state.override:
            return f"`{timeline.state.workflow.end.name}` says so"
        case "canceled" if timeline.canceled is not None:
            reason = f": {timeline.canceled.reason}" if timeline.canceled.reason else ""
            return f"{timeline.canceled.by or 'somebody'} asked for it{reason}"
        case "parked":
            parked = [report.name for report in timeline.reports.values() if report.status == "pending_failed"]
            return f"{list_names(parked)} wait{'s' if len(parked) == 1 else ''} for judgement"
        case _:
            return ""


def _steps_for(timeline: Timeline, wanted: str) -> list[StepReport]:
    """The reports of the wanted step, job or item, and of the cause that kept it from running."""
    found = _narrow(timeline.top_level, wanted)
    reported = {report.job for report in all_reports(found)}
    causes = {report.chain[-1].job for report in all_reports(found) if report.chain} - reported
    return found + [timeline.reports[number] for number in sorted(causes) if number in timeline.reports]


def _narrow(reports: list[R], wanted: str) -> list[R]:
    """The wanted reports, and those that contain wanted ones, reduced to these."""
    narrowed: list[R] = []
    for report in reports:
        if _is_wanted(report, wanted):
            narrowed.append(report)
            continue
        nested = {name: getattr(report, name) for name in NESTED_FIELDS if hasattr(report, name)}
        kept: dict[str, Any] = {name: _narrow(inner, wanted) for name, inner in nested.items()}
        if not any(kept.values()):
            continue
        match report:
            case StepReport():
                kept |= {"canceled": None, "skipped": None, "omitted": 0}
            case ItemGroup():
                items = [item for item in kept["items"] if wanted == item.item or wanted.startswith(f"{item.item}/")]
                if items:
                    kept = {"items": items, "names": Names(len(items), [item.item for item in items])}
        narrowed.append(structs.replace(report, **kept))
    return narrowed


def _is_wanted(report: Struct, wanted: str) -> bool:
    """Is this the report of the wanted step, job or item?"""
    match report:
        case StepReport():
            return wanted in (str(report.job), *names_of(report.scope, report.step))
        case ItemReport():
            return wanted == report.item
        case _:
            return False


def explainable_names(workflow: Workflow) -> list[str]:
    """The names that `explain` accepts: steps, those of child workflows after their parents, first items of maps."""
    found: list[str] = []
    _collect_names(workflow.steps, "", found)
    return found


def _collect_names(steps: tuple[Step, ...], prefix: str, found: list[str]) -> None:
    """Collect the names of steps and of the steps inside them, at most NAMES_MAX."""
    for step in steps:
        if len(found) >= NAMES_MAX:
            return
        found.append(prefix + step.name)
        match step.action:
            case Child():
                _collect_names(step.action.workflow.steps, f"{prefix}{step.name}/", found)
            case FanOut():
                item = f"{prefix}{step.action.scope or step.name}[0]"
                found.append(item)
                _collect_names(step.action.steps, f"{item}/", found)
