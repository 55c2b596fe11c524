"""Why a job did not run, or not to its end: what it needs failed or was skipped, somebody stopped it, no arc led to it.

Whatever follows from a job's end follows in the same reaction, so the chain from it to the cause is found there.
"""

from __future__ import annotations

from resile.core.actions import Note
from resile.core.event_log import STATUS_NAMES
from resile.core.scheduling.goto import descendants
from resile.core.state import Job
from resile.explain.report import CHAIN_MAX, Link, Tale, one_more
from resile.explain.timeline import Book
from resile.explain.wording import consequence, source
from resile.model.status import TERMINAL, Status


def canceled(book: Book, note: Note) -> None:
    """A job was canceled before it ran, or ended while it did."""
    job = book.state.jobs[note.job]
    book.ends[note.seq], book.reasons[note.job] = note.job, note.because
    tale, told = book.tales.get(note.job), book.open.pop(note.job, None)
    if told is not None:
        told.result = "stopped"
        told.then = consequence(told, stopper=stopper(book, job))
    if tale is not None:
        tale.status = note.status
    cause = job.cause.job if job.cause is not None else _stopped_by(book, job)
    if cause and cause != job.id:
        owner = book.tale(cause)
        name = note.step if owner.scope == note.scope else f"{note.scope}/{note.step}"
        owner.canceled = one_more(owner.canceled, name)
        if tale is not None:
            _trace(book, note, tale, cause)
    elif book.canceled is not None and tale is None:
        book.canceled.names = one_more(book.canceled.names, note.step)
    if tale is not None and not tale.told and not tale.chain:
        tale.why = stopper(book, job)
    book.visited(note.job)


def skipped(book: Book, note: Note) -> None:
    """A job was skipped: by its `when`, by what it needs, because no arc led to it, or by judgement."""
    job, data = book.state.jobs[note.job], note.data
    book.ends[note.seq], book.reasons[note.job] = note.job, note.because
    book.visited(note.job)
    cause = data.get("cause")
    if cause is not None:
        owner = book.tale(cause["job"])
        owner.skipped = one_more(owner.skipped, note.step)
        tale = book.tales.get(note.job)
        if tale is not None:
            tale.status = "skipped"
            _trace(book, note, tale, cause["job"])
        return
    tale = book.tale(note.job)
    tale.status = "skipped"
    if "verdict" not in data:
        tale.why = _reason(book, job, data["reason"])


def _reason(book: Book, job: Job, reason: str) -> str:
    """Why a step was skipped by itself."""
    step = book.state.step_of(job)
    problem = book.problems.pop(job.id, "")
    if step.when is not None and reason.startswith("`when`"):
        place = book.place(job.scope, step.when.origin) if step.when.origin.line else ""
        asked = f"{reason}: {source(step.when.source)}" + (f" ({place})" if place else "")
        return f"{asked}, rejected: {problem}" if problem else asked
    leading = [
        other.name for other in book.state.plan_of(job.scope).steps if any(arc.step == step.name for arc in other.arcs)
    ]
    return f"{reason}; arcs lead there from {', '.join(leading)}" if leading else reason


def _trace(book: Book, note: Note, tale: Tale, cause: int) -> None:
    """The chain from a job that did not run to the one where the trouble began."""
    chain: list[Link] = []
    number = book.ends.get(note.because, 0)
    while number and number != cause and len(chain) < CHAIN_MAX:
        chain.append(_link(book, number))
        number = book.ends.get(book.reasons.get(number, 0), 0)
    tale.chain = [*chain, _link(book, cause)]


def _link(book: Book, number: int) -> Link:
    """One job of a chain as it stands."""
    job = book.state.jobs[number]
    return Link(book.state.step_of(job).name, number, STATUS_NAMES[job.status])


def stopper(book: Book, job: Job) -> str:
    """What stopped a job, or kept its failure from being answered."""
    state = book.state
    number = _stopped_by(book, job)
    if number:
        return f"{state.step_of(state.jobs[number]).name} failed and stopped it"
    if state.canceled:
        return "the run was canceled"
    scope = state.scopes[job.scope]
    while scope.owner:
        if scope.expired or (
            scope.stopped and scope.first_failure is not None and scope.first_failure.kind == "timeout"
        ):
            return f"{scope.name} ran out of time"
        scope = state.scopes[state.jobs[scope.owner].scope]
    return "the run was stopping"


def _stopped_by(book: Book, job: Job) -> int:
    """The job whose failure stopped the scope of a job, or one around it."""
    state = book.state
    scope = state.scopes[job.scope]
    while True:
        if scope.id in book.stoppers:
            return book.stoppers[scope.id]
        if not scope.owner:
            return 0
        scope = state.scopes[state.jobs[scope.owner].scope]


def still_waiting(book: Book, tale: Tale) -> None:
    """What waits for a parked job, directly or not."""
    job = book.state.jobs[tale.job]
    scope, plan = book.state.scopes[job.scope], book.state.plan_of(job.scope)
    for number in sorted(descendants(plan, job.step)):
        if book.state.jobs[scope.first + number].status is Status.blocked:
            tale.waiting = one_more(tale.waiting, plan.steps[number].name)


def never_heard_of(book: Book, job: Job) -> None:
    """Tell of a job of which the log says nothing: it waits, or nobody called for it."""
    state = book.state
    tale = book.tale(job.id)
    tale.status = STATUS_NAMES[job.status]
    if job.status is Status.disabled:
        tale.why = "it only runs when it is called for, and nothing called for it"
        return
    plan, first = state.plan_of(job.scope), state.scopes[job.scope].first
    needed = (state.jobs[first + plan.index[name]] for need in state.step_of(job).needs for name in need.any_of)
    waits = [other for other in needed if other.status not in TERMINAL]
    if waits:
        tale.chain = [_link(book, other.id) for other in waits[:CHAIN_MAX]]
    elif job.step == plan.end:
        tale.why = "it waits for all other steps to end"
