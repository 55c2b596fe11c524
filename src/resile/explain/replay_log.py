"""Folds a log and turns the core's notes and rule traces into reports.

    event --> react --> notes, traces --> step reports (timeline.py), groups of items (grouping.py)

This module makes no decisions of its own: reports about rules come from the core's traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resile.core.actions import Note
from resile.core.events import Event
from resile.core.react import react
from resile.core.rule_trace import RuleTrace
from resile.core.scheduling.arcs import loops_max
from resile.core.state import NO_RULE
from resile.explain import why_not_run
from resile.explain.grouping import close_items, close_scopes, on_item_dead_lettered, on_item_retry
from resile.explain.report import AttemptEvent, AttemptReport, Canceled, Result, RuleReport
from resile.explain.timeline import Timeline
from resile.explain.wording import condition_text, mismatch_of, set_result, shorten
from resile.model.failure import Kind
from resile.model.status import TERMINAL, Status
from resile.model.workflow import Rule, Step

# Why the core skipped a rule, in words; empty where the reason's own name is enough.
_WHY = {"off": "turned off for this run", "spent": "", "no more": "there is no more to grant"}


def replay(timeline: Timeline, event: Event) -> None:
    """Fold one event and report its notes and rule traces."""
    state, actions = react(timeline.state, event)
    state.touched.clear()
    walks = timeline.walks
    for action in actions:
        if type(action) is not Note:
            continue
        while walks and walks[0].seq < action.seq:
            _add_rules(timeline, walks.pop(0))
        if timeline.wanted_name is not None and action.job and action.type != "step_started":
            timeline.report_if_wanted(action.job)
        handler = _HANDLERS.get(action.type)
        if handler is not None:
            handler(timeline, action)
    for walk in walks:
        _add_rules(timeline, walk)
    walks.clear()
    if state.scopes_to_drop or timeline.letters:
        close_scopes(timeline)
    timeline.ends.clear()
    timeline.reasons.clear()


def _on_attempt_failed(timeline: Timeline, note: Note) -> None:
    """An attempt failed, was lost, or was ended on request."""
    data, job = note.data, timeline.state.jobs[note.job]
    if data.get("interrupted"):
        entry = AttemptReport(note.seq, "interrupted", note.attempt, message=data.get("reason", ""))
        set_result(entry, "again")
        timeline.report_of(note.job).add(entry)
        return
    event: AttemptEvent = "lost" if note.type == "attempt_lost" else "failed"
    if data.get("kind") == Kind.CANCELED or job.status is Status.terminated:
        event = "ended"
    elif "after" in data:
        # The command passed, and a check after it failed, which is counted as a failure of its own.
        timeline.report_of(note.job).reopen_passed(note.attempt)
    else:
        timeline.failures += 1
    entry = AttemptReport(
        note.seq,
        event,
        note.attempt,
        data.get("kind", Kind.CANCELED if event == "ended" else Kind.EXIT),
        data.get("exit_code"),
        data.get("signal"),
        data.get("message", ""),
        data.get("signature", ""),
        data.get("child", ""),
        data.get("verdict", ""),
    )
    _close_attempt(timeline, note, entry)
    if job.status not in TERMINAL and not any(walk.job == note.job for walk in timeline.walks):
        set_result(entry, "dropped")
    else:
        timeline.open[note.job] = entry


def _on_attempt_succeeded(timeline: Timeline, note: Note) -> None:
    """An attempt passed; reported only where something failed before it or inside it."""
    if timeline.state.scopes_to_drop:
        close_items(timeline, note.job)
    if note.job not in timeline.reports:
        return
    message = ""
    if "total" in note.data and (note.data["failed"] or note.data["skipped"]):
        message = f"{note.data['failed'] + note.data['skipped']} of {note.data['total']} items failed"
    child, verdict = note.data.get("child", ""), note.data.get("verdict", "")
    _close_attempt(
        timeline, note, AttemptReport(note.seq, "passed", note.attempt, message=message, child=child, verdict=verdict)
    )


def _close_attempt(timeline: Timeline, note: Note, entry: AttemptReport) -> None:
    """Add an attempt to its job's report, with the reports of its items or its child workflow."""
    close_items(timeline, note.job)
    report = timeline.report_of(note.job)
    entry.inside, report.inside = report.inside, []
    entry.items, report.items = report.items, []
    if entry.items:
        timeline.groups = {key: group for key, group in timeline.groups.items() if key[0] != note.job}
    report.add(entry)


def _on_step_started(timeline: Timeline, note: Note) -> None:
    """A remedy gets a new report for each caller."""
    if note.job in timeline.callers and timeline.state.step_of(timeline.state.jobs[note.job]).called_only:
        timeline.reports.pop(note.job, None)


def _on_attempt_started(timeline: Timeline, note: Note) -> None:
    """The next attempt starts: the failure before it has been handled, or a jump back dropped it."""
    entry = timeline.open.pop(note.job, None)
    if entry is not None and not entry.result:
        set_result(entry, "dropped")


def _add_rules(timeline: Timeline, walk: RuleTrace) -> None:
    """Add the rules that the core considered for a failure, from the first on, or from below a rule that failed."""
    job = timeline.state.jobs[walk.job]
    entry = timeline.open.get(walk.job)
    if entry is None:
        return
    failure = walk.failure
    entry.kind, entry.exit_code, entry.signature = failure.kind, failure.exit_code, failure.signature
    if timeline.is_wanted(job):
        entry.stdout, entry.stderr = failure.stdout, failure.stderr
    before = timeline.applied_rule_of(walk.job)
    if before is not None and before.repair != "failed":
        rule = timeline.rule_of(job, timeline.asked[walk.job])
        before.decision, before.why = "declined", _decline_reason_of(timeline.state.step_of(job), rule)
    entry.result = ""
    # The implicit rule for lost attempts does not concern other failures.
    implicit = 0 if failure.kind == Kind.LOST else timeline.implicit_rules_of(job)
    for look in walk.skipped:
        if look.rule >= implicit:
            rule = timeline.rule_of(job, look.rule)
            why = mismatch_of(rule.match, failure) if look.why == "no match" else _WHY[look.why]
            entry.rules.append(
                RuleReport(timeline.reference_to(job, rule), rule.then, look.why, why, look.used, look.limit)
            )
    if walk.rule != NO_RULE:
        rule = timeline.rule_of(job, walk.rule)
        why = "every step has this rule" if walk.rule < timeline.implicit_rules_of(job) else ""
        entry.rules.append(
            RuleReport(timeline.reference_to(job, rule), rule.then, "applied", why, walk.used + 1, walk.limit)
        )
        timeline.asked[walk.job] = walk.rule


def _decline_reason_of(step: Step, rule: Rule) -> str:
    """Why a rule declined after its code or condition was evaluated."""
    if rule.when is not None:
        return f"its condition is not met: {shorten(condition_text(step, rule.when))}"
    if rule.repair is not None and rule.repair.calls_js:
        return "its code named no step to run"
    return "its code named no step to go to"


def _on_retry_scheduled(timeline: Timeline, note: Note) -> None:
    """A rule starts another attempt, or an item runs again."""
    data = note.data
    if "item" in data:
        on_item_retry(timeline, note)
        return
    rule = timeline.applied_rule_of(note.job)
    if rule is None:
        return
    rule.next_attempt, rule.memory_bytes = data["next_attempt"], data.get("memory_bytes", 0)
    if data["delay_seconds"]:
        rule.wait_seconds = data["delay_seconds"]
    if data.get("runtime_seconds"):
        rule.runtime_seconds = data["runtime_seconds"]
    _resolve(timeline, note, "retry", leave_open=True)


def _resolve(timeline: Timeline, note: Note, result: Result, *, leave_open: bool = False, **why: Any) -> None:
    """Set the result of a job's open failure."""
    entry = timeline.open.get(note.job)
    if entry is None:
        return
    job = timeline.state.jobs[note.job]
    rule = timeline.applied_rule_of(note.job)
    if rule is not None and result in ("retry", "goto") and timeline.rule_of(job, timeline.asked[job.id]).cost:
        rule.loops, rule.loops_max = timeline.state.scopes[job.scope].loops, loops_max(timeline.state, job)
    set_result(entry, result, **why)
    if not leave_open:
        del timeline.open[note.job]


def _on_repair_started(timeline: Timeline, note: Note) -> None:
    """A rule's repair began."""
    rule = timeline.applied_rule_of(note.job)
    if rule is not None:
        rule.repair = "running"
        rule.calls = list(note.data["calls"])


def _on_repair_finished(timeline: Timeline, note: Note) -> None:
    """A rule's repair ended."""
    rule = timeline.applied_rule_of(note.job)
    if rule is not None:
        rule.repair = "passed" if note.data["ok"] else "failed"
        rule.problem = note.data.get("problem", "")


def _on_route_taken(timeline: Timeline, note: Note) -> None:
    """A jump back, or a call of a remedy."""
    data = note.data
    if data["action"] == "run":
        called = timeline.state.job_named(data["target"], timeline.state.jobs[note.job].scope)
        if called is not None:
            timeline.callers.setdefault(called.id, []).append(note.job)
    elif data["trigger"] == "on_failure":
        rule = timeline.applied_rule_of(note.job)
        if rule is not None:
            rule.target = data["target"]
        _resolve(timeline, note, "goto")


def _on_loop_budget_exceeded(timeline: Timeline, note: Note) -> None:
    """A rule, or a jump after a success, had no budget left."""
    rule = timeline.applied_rule_of(note.job)
    if rule is not None:
        rule.decision = "no budget"
        _resolve(timeline, note, "no budget", message=note.data["message"])
    frame = timeline.state.frame_of(timeline.state.jobs[note.job].scope)
    timeline.stoppers.setdefault(frame.id, note.job)


def _on_expression_rejected(timeline: Timeline, note: Note) -> None:
    """An expression could not be evaluated, or its result is not allowed."""
    entry, problem = timeline.open.get(note.job), note.data["problem"]
    if entry is not None:
        entry.problems.append(problem)
        return
    timeline.problems[note.job] = problem
    if timeline.state.jobs[note.job].status is not Status.skipped:
        timeline.report_of(note.job).add(AttemptReport(note.seq, "rejected", note.attempt, message=problem))


def _on_step_parked(timeline: Timeline, note: Note) -> None:
    timeline.report_of(note.job)
    _resolve(timeline, note, "parked")


def _on_step_judged(timeline: Timeline, note: Note) -> None:
    """A parked failure was judged."""
    data = note.data
    by = f" by {data['by']}" if data["by"] else ""
    reason = f": {data['reason']}" if data["reason"] else ""
    timeline.report_of(note.job).add(
        AttemptReport(note.seq, "judged", note.attempt, message=f"{data['verdict']}{by}{reason}")
    )


def _on_step_failed(timeline: Timeline, note: Note) -> None:
    """A step stays failed, or its failure is tolerated."""
    data, job = note.data, timeline.state.jobs[note.job]
    timeline.ends[note.seq] = note.job
    report = timeline.report_of(note.job)
    report.status, report.tolerated = "failed", bool(data.get("tolerated"))
    entry, message = timeline.open.get(note.job), data.get("message", "")
    if entry is not None:
        stopper = (
            "" if entry.rules or "outcome" in data or data.get("tolerated") else why_not_run.stopper_of(timeline, job)
        )
        result: Result = "tolerated" if report.tolerated else "stopped" if stopper else "failed"
        _resolve(timeline, note, result, message=message, outcome=data.get("outcome", ""), stopper=stopper)
    elif not report.attempts or (report.attempts[-1].event != "judged" and report.attempts[-1].result != "no budget"):
        timeline.failures += 1
        _close_attempt(timeline, note, AttemptReport(note.seq, "after", note.attempt, message=message, result="failed"))
    scope = timeline.state.scopes[job.scope]
    if scope.stopped:
        timeline.stoppers.setdefault(scope.id, note.job)
    timeline.end_call_of(note.job)


def _on_step_succeeded(timeline: Timeline, note: Note) -> None:
    """A step completed or recovered."""
    timeline.end_call_of(note.job)
    report = timeline.reports.get(note.job)
    if report is None:
        return
    rule = timeline.applied_rule_of(note.job)
    if rule is not None and rule.then in ("recovered", "fallback"):
        _resolve(timeline, note, "recovered" if rule.then == "recovered" else "fallback")
    report.status, report.recovered = "completed", note.type == "step_recovered"
    if report.inside or report.items:
        # The steps after its success (`on_success`) have ended too.
        _close_attempt(timeline, note, AttemptReport(note.seq, "after", note.attempt))


def _on_cancel_requested(timeline: Timeline, note: Note) -> None:
    timeline.canceled = timeline.canceled or Canceled(note.data.get("by", ""), note.data.get("reason", ""))


def _on_circuit_opened(timeline: Timeline, note: Note) -> None:
    message = f"the circuit opened after {note.data['failures']} failures in a row"
    timeline.report_of(note.job).add(AttemptReport(note.seq, "circuit", message=message))


def _on_redrive_finished(timeline: Timeline, note: Note) -> None:
    """A redrive of dead letters finished."""
    data = note.data
    left = data["failed"] + data["held"]
    message = (
        f"the dead letters were tried again: {left} left" if left else "the dead letters were tried again: none left"
    )
    _close_attempt(timeline, note, AttemptReport(note.seq, "redriven", message=message))


def _on_run_resumed(timeline: Timeline, note: Note) -> None:
    """The run was resumed or rerun; a redrive that starts or continues does not count."""
    if "epoch" in note.data:
        timeline.start_over()
    elif timeline.state.phase != "redriving":
        timeline.resumed += 1


def _on_run_ended(timeline: Timeline, note: Note) -> None:
    timeline.failed_steps = list(note.data["failed_steps"])


_HANDLERS: dict[str, Callable[[Timeline, Note], None]] = {
    "step_started": _on_step_started,
    "attempt_started": _on_attempt_started,
    "attempt_failed": _on_attempt_failed,
    "attempt_lost": _on_attempt_failed,
    "attempt_succeeded": _on_attempt_succeeded,
    "retry_scheduled": _on_retry_scheduled,
    "repair_started": _on_repair_started,
    "repair_finished": _on_repair_finished,
    "route_taken": _on_route_taken,
    "loop_budget_exceeded": _on_loop_budget_exceeded,
    "expression_rejected": _on_expression_rejected,
    "step_parked": _on_step_parked,
    "step_judged": _on_step_judged,
    "step_failed": _on_step_failed,
    "step_completed": _on_step_succeeded,
    "step_recovered": _on_step_succeeded,
    "step_canceled": why_not_run.on_step_canceled,
    "step_skipped": why_not_run.on_step_skipped,
    "item_dead_lettered": on_item_dead_lettered,
    "circuit_opened": _on_circuit_opened,
    "redrive_finished": _on_redrive_finished,
    "cancel_requested": _on_cancel_requested,
    "run_resumed": _on_run_resumed,
    "workflow_completed": _on_run_ended,
    "workflow_failed": _on_run_ended,
    "workflow_canceled": _on_run_ended,
}
