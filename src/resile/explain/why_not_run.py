"""Why a job did not run or was stopped: a need failed or was skipped, a user canceled the run, no arc led to it.

The consequences of a job's end follow in the same reaction, so the chain of causes is found there.
"""

from __future__ import annotations

from resile.core.actions import Note
from resile.core.scheduling.goto import descendants
from resile.core.state import Job
from resile.explain.report import CHAIN_MAX, Link, StepReport, add_name
from resile.explain.timeline import Timeline
from resile.explain.wording import set_result, shorten
from resile.model.failure import Kind
from resile.model.status import STATUS_NAMES, TERMINAL, Status


def on_step_canceled(timeline: Timeline, note: Note) -> None:
    """A job was canceled before it ran, or killed while it ran."""
    job = timeline.state.jobs[note.job]
    timeline.ends[note.seq], timeline.reasons[note.job] = note.job, note.because
    report, entry = timeline.reports.get(note.job), timeline.open.pop(note.job, None)
    if entry is not None:
        set_result(entry, "stopped", stopper=stopper_of(timeline, job))
    if report is not None:
        report.status = note.status
    cause = job.cause.job if job.cause is not None else _stopping_job_of(timeline, job)
    if cause and cause != job.id:
        owner = timeline.report_of(cause)
        name = note.step if owner.scope == note.scope else f"{note.scope}/{note.step}"
        owner.canceled = add_name(owner.canceled, name)
        if report is not None:
            _set_chain(timeline, note, report, cause)
    elif timeline.canceled is not None and report is None:
        timeline.canceled.names = add_name(timeline.canceled.names, note.step)
    if report is not None and not report.attempts and not report.chain:
        report.why = stopper_of(timeline, job)
    timeline.end_call_of(note.job)


def on_step_skipped(timeline: Timeline, note: Note) -> None:
    """A job was skipped: by its `when`, by a skipped need, because no arc led to it, or by judgement."""
    job, data = timeline.state.jobs[note.job], note.data
    timeline.ends[note.seq], timeline.reasons[note.job] = note.job, note.because
    timeline.end_call_of(note.job)
    cause = data.get("cause")
    if cause is not None:
        owner = timeline.report_of(cause["job"])
        owner.skipped = add_name(owner.skipped, note.step)
        report = timeline.reports.get(note.job)
        if report is not None:
            report.status = "skipped"
            _set_chain(timeline, note, report, cause["job"])
        return
    report = timeline.report_of(note.job)
    report.status = "skipped"
    if "verdict" not in data:
        report.why = _skip_reason_of(timeline, job, data["reason"])


def _skip_reason_of(timeline: Timeline, job: Job, reason: str) -> str:
    """Why a step was skipped, where no other job is the cause."""
    step = timeline.state.step_of(job)
    problem = timeline.problems.pop(job.id, "")
    if step.when is not None and reason.startswith("`when`"):
        place = timeline.place_of(job.scope, step.when.origin) if step.when.origin.line else ""
        asked = f"{reason}: {shorten(step.when.source)}" + (f" ({place})" if place else "")
        return f"{asked}, rejected: {problem}" if problem else asked
    leading = [
        other.name
        for other in timeline.state.plan_of(job.scope).steps
        if any(arc.step == step.name for arc in other.arcs)
    ]
    return f"{reason}; arcs lead there from {', '.join(leading)}" if leading else reason


def _set_chain(timeline: Timeline, note: Note, report: StepReport, cause: int) -> None:
    """Set the chain from a job that did not run to its cause."""
    chain: list[Link] = []
    number = timeline.ends.get(note.because, 0)
    while number and number != cause and len(chain) < CHAIN_MAX:
        chain.append(_link_of(timeline, number))
        number = timeline.ends.get(timeline.reasons.get(number, 0), 0)
    report.chain = [*chain, _link_of(timeline, cause)]


def _link_of(timeline: Timeline, number: int) -> Link:
    job = timeline.state.jobs[number]
    return Link(timeline.state.step_of(job).name, number, STATUS_NAMES[job.status])


def stopper_of(timeline: Timeline, job: Job) -> str:
    """The reason why a job was stopped, or why its failure met no rule."""
    state = timeline.state
    number = _stopping_job_of(timeline, job)
    if number:
        return f"{state.step_of(state.jobs[number]).name} failed and stopped it"
    if state.canceled:
        return "the run was canceled"
    scope = state.scopes[job.scope]
    while scope.owner:
        if scope.expired or (
            scope.stopped and scope.first_failure is not None and scope.first_failure.kind == Kind.TIMEOUT
        ):
            return f"{scope.name} ran out of time"
        scope = state.scopes[state.jobs[scope.owner].scope]
    return "the run was stopping"


def _stopping_job_of(timeline: Timeline, job: Job) -> int:
    """The job whose failure stopped the scope of a job, or a scope around it; 0 where there is none."""
    state = timeline.state
    scope = state.scopes[job.scope]
    while True:
        if scope.id in timeline.stoppers:
            return timeline.stoppers[scope.id]
        if not scope.owner:
            return 0
        scope = state.scopes[state.jobs[scope.owner].scope]


def add_waiting(timeline: Timeline, report: StepReport) -> None:
    """List the jobs that wait for a parked job, directly or not."""
    job = timeline.state.jobs[report.job]
    scope, plan = timeline.state.scopes[job.scope], timeline.state.plan_of(job.scope)
    for number in sorted(descendants(plan, job.step)):
        if timeline.state.jobs[scope.first + number].status is Status.blocked:
            report.waiting = add_name(report.waiting, plan.steps[number].name)


def explain_unlogged(timeline: Timeline, job: Job) -> None:
    """Explain a job with no log entries: it is still waiting, or it is a remedy that was never called."""
    state = timeline.state
    report = timeline.report_of(job.id)
    report.status = STATUS_NAMES[job.status]
    if job.status is Status.disabled:
        report.why = "it only runs when it is called for, and nothing called for it"
        return
    plan, first = state.plan_of(job.scope), state.scopes[job.scope].first
    needed = (state.jobs[first + plan.index[name]] for need in state.step_of(job).needs for name in need.any_of)
    waits = [other for other in needed if other.status not in TERMINAL]
    if waits:
        report.chain = [_link_of(timeline, other.id) for other in waits[:CHAIN_MAX]]
    elif job.step == plan.end:
        report.why = "it waits for all other steps to end"
