"""Folding a log once more and listening to the core: its notes say what happened, its walks say which rules it asked.

    event --> react --> notes, walks --> tales (book.py), items (items.py)

Nothing is decided here a second time: every word about a rule is what the core did with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resile.core.actions import Note
from resile.core.events import Event
from resile.core.react import react
from resile.core.recovery.ladder import origin_text
from resile.core.rule_trace import Walk
from resile.core.scheduling.dependencies import loops_max
from resile.core.state import NO_RULE
from resile.explain import why_not_run
from resile.explain.grouping import dead_lettered, items_over, retried, scopes_over
from resile.explain.report import Canceled, Result, RuleTold, Told, What
from resile.explain.timeline import Book
from resile.explain.wording import consequence, mismatch, question, source
from resile.model.rules import Rule
from resile.model.status import TERMINAL, Status
from resile.model.workflow import Step

# Turned off, spent and at their ceiling: what is to be said of it besides the word.
_WHY = {"off": "turned off for this run", "spent": "", "no more": "there is no more to grant"}


def hear(book: Book, event: Event) -> None:
    """Fold one event and take down what is worth telling of it."""
    state, actions = react(book.state, event)
    state.touched.clear()
    walks = book.walks
    for action in actions:
        if type(action) is not Note:
            continue
        while walks and walks[0].seq < action.seq:
            _walked(book, walks.pop(0))
        if book.sought is not None and action.job and action.type != "step_started":
            book.want(action.job)
        handler = _HANDLERS.get(action.type)
        if handler is not None:
            handler(book, action)
    for walk in walks:
        _walked(book, walk)
    walks.clear()
    if state.scopes_to_drop or book.letters:
        scopes_over(book)
    book.ends.clear()
    book.reasons.clear()


def _attempt_failed(book: Book, note: Note) -> None:
    """An attempt failed, was lost, or was ended on request."""
    data, job = note.data, book.state.jobs[note.job]
    if data.get("interrupted"):
        told = Told(note.seq, "interrupted", note.attempt, result="again")
        told.then = consequence(told)
        book.tale(note.job).add(told)
        return
    what: What = "lost" if note.type == "attempt_lost" else "failed"
    if data.get("kind") == "canceled" or job.status is Status.terminated:
        what = "ended"
    else:
        book.failures += 1
    told = Told(
        note.seq,
        what,
        note.attempt,
        data.get("kind", "canceled" if what == "ended" else "exit"),
        data.get("exit_code"),
        data.get("signal"),
        data.get("message", ""),
        data.get("signature", ""),
        data.get("child", ""),
        data.get("verdict", ""),
    )
    _close_attempt(book, note, told)
    if job.status not in TERMINAL and not any(walk.job == note.job for walk in book.walks):
        told.result = "dropped"
        told.then = consequence(told)
    else:
        book.open[note.job] = told


def _attempt_succeeded(book: Book, note: Note) -> None:
    """An attempt passed; worth telling where something had failed before it, or inside of it."""
    if book.state.scopes_to_drop:
        items_over(book, note.job)
    if note.job not in book.tales:
        return
    message = ""
    if "total" in note.data and (note.data["failed"] or note.data["skipped"]):
        message = f"{note.data['failed'] + note.data['skipped']} of {note.data['total']} items failed"
    child, verdict = note.data.get("child", ""), note.data.get("verdict", "")
    _close_attempt(book, note, Told(note.seq, "passed", note.attempt, message=message, child=child, verdict=verdict))


def _close_attempt(book: Book, note: Note, told: Told) -> None:
    """What happened inside of an attempt, in its items or its child workflow, belongs to it."""
    items_over(book, note.job)
    tale = book.tale(note.job)
    told.inside, tale.inside = tale.inside, []
    told.items, tale.items = tale.items, []
    if told.items:
        book.groups = {key: group for key, group in book.groups.items() if key[0] != note.job}
    tale.add(told)


def _step_started(book: Book, note: Note) -> None:
    """A step that was called for has a tale of its own with each caller."""
    if note.job in book.callers and book.state.step_of(book.state.jobs[note.job]).called_only:
        book.tales.pop(note.job, None)


def _attempt_started(book: Book, note: Note) -> None:
    """The next attempt: whatever failed before it has been answered, or a jump back came between."""
    told = book.open.pop(note.job, None)
    if told is not None and not told.result:
        told.result = "dropped"
        told.then = consequence(told)


def _walked(book: Book, walk: Walk) -> None:
    """A failure walked the rules of its job, from the first or from below one that did not help."""
    job = book.state.jobs[walk.job]
    told = book.open.get(walk.job)
    if told is None:
        return
    failure = walk.failure
    told.kind, told.exit_code, told.signature = failure.kind, failure.exit_code, failure.signature
    if book.is_wanted(job):
        told.stdout, told.stderr = failure.stdout, failure.stderr
    before = book.answering(walk.job)
    if before is not None and before.repair != "failed":
        rule = book.rule(job, book.asked[walk.job])
        before.answer, before.why = "declined", _declined(book.state.step_of(job), rule)
    told.result = ""
    # What every step answers to a lost attempt says nothing about other failures.
    implicit = 0 if failure.kind == "lost" else book.implicit(job)
    for look in walk.passed:
        if look.rule >= implicit:
            rule = book.rule(job, look.rule)
            why = mismatch(rule.match, failure) if look.why == "no match" else _WHY[look.why]
            text = origin_text(book.state, job, rule)
            told.rules.append(RuleTold(text, rule.then, look.why, why, look.used, look.limit))
    if walk.rule != NO_RULE:
        rule = book.rule(job, walk.rule)
        text = origin_text(book.state, job, rule)
        why = "every step has this rule" if walk.rule < book.implicit(job) else ""
        told.rules.append(RuleTold(text, rule.then, "answers", why, walk.used + 1, walk.limit))
        book.asked[walk.job] = walk.rule


def _declined(step: Step, rule: Rule) -> str:
    """Why a rule that was asked did not answer after all."""
    if rule.when is not None:
        return f"its condition is not met: {source(question(step, rule.when))}"
    if rule.repair is not None and rule.repair.calls_js:
        return "its code named no step to run"
    return "its code named no step to go to"


def _retry(book: Book, note: Note) -> None:
    """A rule answers with another attempt; or an item runs again."""
    data = note.data
    if "item" in data:
        retried(book, note)
        return
    rule = book.answering(note.job)
    if rule is None:
        return
    rule.next_attempt, rule.memory_bytes = data["next_attempt"], data.get("memory_bytes", 0)
    if data["delay_seconds"]:
        rule.wait_seconds = data["delay_seconds"]
    if data.get("runtime_seconds"):
        rule.runtime_seconds = data["runtime_seconds"]
    _resolve(book, note, "retry", leave_open=True)


def _resolve(book: Book, note: Note, result: Result, *, leave_open: bool = False, **why: Any) -> None:
    """The open failure of a job came to this."""
    told = book.open.get(note.job)
    if told is None:
        return
    job = book.state.jobs[note.job]
    rule = book.answering(note.job)
    if rule is not None and result in ("retry", "goto") and book.rule(job, book.asked[job.id]).cost:
        rule.loops, rule.loops_max = book.state.scopes[job.scope].loops, loops_max(book.state, job)
    told.result = result
    told.then = consequence(told, **why)
    if not leave_open:
        del book.open[note.job]


def _repair_started(book: Book, note: Note) -> None:
    """A rule's repair began."""
    rule = book.answering(note.job)
    if rule is not None:
        rule.repair = "running"
        rule.calls = list(note.data["calls"])


def _repair_finished(book: Book, note: Note) -> None:
    """A repair is over."""
    rule = book.answering(note.job)
    if rule is not None:
        rule.repair = "passed" if note.data["ok"] else "failed"
        rule.problem = note.data.get("problem", "")


def _route_taken(book: Book, note: Note) -> None:
    """A jump, or a step that is called for."""
    data = note.data
    if data["action"] == "run":
        called = book.state.job_named(data["target"], book.state.jobs[note.job].scope)
        if called is not None:
            book.callers.setdefault(called.id, []).append(note.job)
    elif data["trigger"] == "on_failure":
        rule = book.answering(note.job)
        if rule is not None:
            rule.target = data["target"]
        _resolve(book, note, "goto")


def _budget(book: Book, note: Note) -> None:
    """A rule, or a jump after a success, had no budget left."""
    rule = book.answering(note.job)
    if rule is not None:
        rule.answer = "no budget"
        _resolve(book, note, "no budget", message=note.data["message"])
    frame = book.state.frame_of(book.state.jobs[note.job].scope)
    book.stoppers.setdefault(frame.id, note.job)


def _rejected(book: Book, note: Note) -> None:
    """An expression was wrong."""
    told, problem = book.open.get(note.job), note.data["problem"]
    if told is not None:
        told.problems.append(problem)
        return
    book.problems[note.job] = problem
    if book.state.jobs[note.job].status is not Status.skipped:
        book.tale(note.job).add(Told(note.seq, "rejected", note.attempt, message=problem))


def _parked(book: Book, note: Note) -> None:
    """A failure waits for judgement."""
    book.tale(note.job)
    _resolve(book, note, "parked")


def _judged(book: Book, note: Note) -> None:
    """Somebody has judged it."""
    data = note.data
    by = f" by {data['by']}" if data["by"] else ""
    reason = f": {data['reason']}" if data["reason"] else ""
    book.tale(note.job).add(Told(note.seq, "judged", note.attempt, message=f"{data['verdict']}{by}{reason}"))


def _failed(book: Book, note: Note) -> None:
    """A step stays failed, or its failure is tolerated."""
    data, job = note.data, book.state.jobs[note.job]
    book.ends[note.seq] = note.job
    tale = book.tale(note.job)
    tale.status, tale.tolerated = "failed", bool(data.get("tolerated"))
    told, message = book.open.get(note.job), data.get("message", "")
    if told is not None:
        stopper = "" if told.rules or "outcome" in data or data.get("tolerated") else why_not_run.stopper(book, job)
        result: Result = "tolerated" if tale.tolerated else "stopped" if stopper else "failed"
        _resolve(book, note, result, message=message, outcome=data.get("outcome", ""), stopper=stopper)
    elif not tale.told or (tale.told[-1].what != "judged" and tale.told[-1].result != "no budget"):
        book.failures += 1
        _close_attempt(book, note, Told(note.seq, "after", note.attempt, message=message, result="failed"))
    scope = book.state.scopes[job.scope]
    if scope.stopped:
        book.stoppers.setdefault(scope.id, note.job)
    book.visited(note.job)


def _succeeded(book: Book, note: Note) -> None:
    """A step came to a good end."""
    book.visited(note.job)
    tale = book.tales.get(note.job)
    if tale is None:
        return
    rule = book.answering(note.job)
    if rule is not None and rule.then in ("recovered", "fallback"):
        _resolve(book, note, "recovered" if rule.then == "recovered" else "fallback")
    tale.status, tale.recovered = "completed", note.type == "step_recovered"
    if tale.inside or tale.items:
        # What follows a success is over as well.
        _close_attempt(book, note, Told(note.seq, "after", note.attempt))


def _cancel_requested(book: Book, note: Note) -> None:
    """Somebody wants the run to stop."""
    book.canceled = book.canceled or Canceled(note.data.get("by", ""), note.data.get("reason", ""))


def _circuit(book: Book, note: Note) -> None:
    """The circuit of a fan-out opened."""
    message = f"the circuit opened after {note.data['failures']} failures in a row"
    book.tale(note.job).add(Told(note.seq, "circuit", message=message))


def _redriven(book: Book, note: Note) -> None:
    """Dead letters were tried again."""
    data = note.data
    left = data["failed"] + data["held"]
    message = (
        f"the dead letters were tried again: {left} left" if left else "the dead letters were tried again: none left"
    )
    _close_attempt(book, note, Told(note.seq, "redriven", message=message))


def _resumed(book: Book, note: Note) -> None:
    """The run goes on, or again; that a redrive begins or goes on is no matter of the run."""
    if "epoch" in note.data:
        book.start_over()
    elif book.state.phase != "redriving":
        book.resumed += 1


def _ended(book: Book, note: Note) -> None:
    """The verdict."""
    book.failed_steps = list(note.data["failed_steps"])


_HANDLERS: dict[str, Callable[[Book, Note], None]] = {
    "step_started": _step_started,
    "attempt_started": _attempt_started,
    "attempt_failed": _attempt_failed,
    "attempt_lost": _attempt_failed,
    "attempt_succeeded": _attempt_succeeded,
    "retry_scheduled": _retry,
    "repair_started": _repair_started,
    "repair_finished": _repair_finished,
    "route_taken": _route_taken,
    "loop_budget_exceeded": _budget,
    "expression_rejected": _rejected,
    "step_parked": _parked,
    "step_judged": _judged,
    "step_failed": _failed,
    "step_completed": _succeeded,
    "step_recovered": _succeeded,
    "step_canceled": why_not_run.canceled,
    "step_skipped": why_not_run.skipped,
    "item_dead_lettered": dead_lettered,
    "circuit_opened": _circuit,
    "redrive_finished": _redriven,
    "cancel_requested": _cancel_requested,
    "run_resumed": _resumed,
    "workflow_completed": _ended,
    "workflow_failed": _ended,
    "workflow_canceled": _ended,
}
