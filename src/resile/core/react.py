"""The door: `react(state, event) -> (state, actions)`. Run state changes here and nowhere else.

The table below is the specification of which event does what; docs/state-machine.md is generated from it.
The state is changed in place and returned, because a run of 100,000 jobs can't be copied for each event; it is
pure all the same: no clock, no IO, no chance, and the same events always give the same state and actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resile.core.actions import (
    Action,
    AnswerArcs,
    AnswerCondition,
    AnswerRoute,
    AnswerValue,
    FindAttempt,
    KillAttempt,
    SetTimer,
    StopEngine,
)
from resile.core.event_log import note_job, note_pair, note_run
from resile.core.events import (
    ArcsAnswered,
    AttemptAdopted,
    AttemptEnded,
    AttemptStarted,
    AttemptWithdrawn,
    CancelRequested,
    Capacity,
    ConditionAnswered,
    EpochStarted,
    Event,
    GroupsRead,
    ItemsRead,
    Judged,
    Redriven,
    RouteAnswered,
    RunResumed,
    RunStarted,
    TimerFired,
    ValueAnswered,
)
from resile.core.recovery.ladder import climb, repair_or_go, route_answered, rule_answered
from resile.core.recovery.repair import expired, succeeded, success_answered
from resile.core.scheduling.dependencies import fail, finish, keep_route, settle, stopping, take_arcs
from resile.core.scheduling.epochs import begin_epoch, open_root
from resile.core.scheduling.finish import converge, end_job
from resile.core.scheduling.goto import drop_stale
from resile.core.scheduling.ready_queue import dispatch, enqueue
from resile.core.scheduling.reservations import release
from resile.core.scheduling.reserve_ahead import set_back
from resile.core.scheduling.scopes import stop_scope
from resile.core.state import ROOT, SUCCESS, Error, Failed, Job, State
from resile.model.failure import Failure, Kind
from resile.model.fanout import FanOut
from resile.model.status import CANCELED, PENDING, PENDING_FAILED, RECOVERING, RUNNING, SKIPPED, TERMINATED
from resile.model.workflow import Child

OVERRIDES = ("completed", "failed")
_UNDER_WAY = (PENDING, RUNNING, RECOVERING)
# Asked for by their very type here and in the runtime: isinstance takes several times as long to say no to a Struct.
_HOSTING = frozenset((FanOut, Child))


def react(state: State, event: Event) -> tuple[State, list[Action]]:
    """Fold one event into the state; what the world must do because of it."""
    out: list[Action] = []
    before = state.seq
    if state.scopes_to_drop:
        for scope in state.scopes_to_drop:
            state.forget(scope)
        state.scopes_to_drop = []
    HANDLERS[type(event)](state, event, out)
    if state.agenda:
        # Here and below: what only repairs, fan-outs and child workflows need is loaded when the first of them comes.
        from resile.core.scheduling.wakeups import follow_up

        while state.agenda:
            follow_up(state, out, event.at, state.jobs[state.agenda.pop(0)])
    # That a reserved attempt runs makes nothing free and nothing ready.
    if type(event) is not AttemptStarted:
        dispatch(state, out)
        converge(state, out, event.at)
        if state.phase == "ending":
            dispatch(state, out)
    state.last_at = event.at
    if state.seq == before:
        # An event that nobody needs to read of still has its place in the log.
        state.seq += 1
    return state, out


def _run_started(state: State, event: RunStarted, out: list[Action]) -> None:
    """Open the root scope and wake every step that waits for nothing."""
    state.started_at = event.at
    state.inputs = event.inputs
    state.options = event.options
    state.phase = "running"
    _use(state, event.capacity)
    seq = note_run(state, out, event.at, "playbook_started", "running", 0, workflow=state.workflow.name)
    seq = note_run(state, out, event.at, "workflow_initialized", "running", seq, steps=len(state.workflow.steps))
    open_root(state, out, seq)
    if state.canceled:
        # Canceled before it could start: everything ends as it is, and `end` runs.
        stop_scope(state, out, event.at, state.scopes[ROOT], seq)


def _run_resumed(state: State, event: RunResumed, out: list[Action]) -> None:
    """A new engine: repeat every order whose answer is still owed."""
    if state.phase == "ended":
        out.append(StopEngine(state.verdict or "failed", state.seq))
        return
    fresh_epoch = state.capacity is None
    _use(state, event.capacity)
    because = state.seq
    if not fresh_epoch:
        because = note_run(state, out, event.at, "run_resumed", "running", state.seq, engine=event.engine)
    if state.redrive is not None and state.redrive.reading:
        from resile.core.fanout.redrive import read_more

        out.append(read_more(state, state.redrive))
    owed: list[Job] = []
    for job in state.jobs.values():
        if job.pending_question == "when":
            out.append(AnswerCondition(job.id, because))
        elif job.pending_question == "arcs":
            out.append(AnswerArcs(job.id, because))
        elif job.pending_question == "value":
            out.append(AnswerValue(job.id, job.attempt, because))
        elif job.pending_question:
            out.append(AnswerRoute(job.id, job.rule, job.pending_question, because))
        elif job.hosting:
            from resile.core.fanout.timers_and_items import host_again

            host_again(state, out, job, because)
        elif job.status is RECOVERING and job.timer_at:
            out.append(SetTimer(job.id, job.attempt, job.timer_at, because, repair=not job.active))
        elif job.status is PENDING or job.status is RUNNING:
            owed.append(job)
    # In the order of their reservation: no early attempt is told of before what it waited for.
    owed.sort(key=lambda job: job.queue_number)
    out += [FindAttempt(job.id, job.attempt, because) for job in owed]


def _use(state: State, capacity: Capacity) -> None:
    """Take over what the engine has to offer."""
    state.capacity = capacity
    taken = {gpu for job in state.jobs.values() for gpu in job.gpus}
    state.gpus_free = [gpu for gpu in range(capacity.gpus) if gpu not in taken]


def _attempt_started(state: State, event: AttemptStarted, out: list[Action]) -> None:
    """A reserved attempt runs."""
    job = _expected(state, event.job, event.attempt)
    if job is not None and job.status is PENDING:
        _announce(state, out, event.at, job, event.pid)


def _attempt_adopted(state: State, event: AttemptAdopted, out: list[Action]) -> None:
    """An attempt that outlived its engine is watched again."""
    job = _expected(state, event.job, event.attempt)
    if job is None:
        return
    if job.status is PENDING:
        _announce(state, out, event.at, job, event.pid)
    note_job(state, out, event.at, "attempt_adopted", job, {"pid": event.pid})
    if stopping(state, job) and not state.is_end(job):
        out.append(KillAttempt(job.id, job.attempt, job.last_event_seq))


def _announce(state: State, out: list[Action], at: float, job: Job, pid: int) -> None:
    """Note the start of a step (once for each visit) and of this attempt."""
    job.status = RUNNING
    if not job.start_recorded:
        job.start_recorded = True
        state.set_began(job, at)
        note_pair(state, out, at, "step_started", "attempt_started", job, {"pid": pid} if pid else {}, job.because)
    else:
        note_job(state, out, at, "attempt_started", job, {"pid": pid} if pid else {})


def _attempt_ended(state: State, event: AttemptEnded, out: list[Action]) -> None:
    """An attempt came to an outcome: success follows the arcs, failure climbs the ladder."""
    job = _expected(state, event.job, event.attempt)
    if job is None:
        return
    outcome = event.outcome
    if job.status is PENDING:
        _announce(state, out, event.at - outcome.usage.wall_seconds, job, event.pid)
    release(state, job)
    job.exit_code = outcome.exit_code
    step = state.step_of(job)
    if outcome.failure is None and type(step.action) in _HOSTING:
        _host(state, out, event, job)
        return
    if outcome.values:
        state.frame_of(job.scope).values.update(outcome.values)
        if outcome.failure is None and state.is_end(job):
            _override(state, job, outcome.values.get("workflow_status"))
    if outcome.memory:
        state.memory = {**state.memory, **outcome.memory}
    if outcome.failure is None:
        note_job(state, out, event.at, "attempt_succeeded", job, _usage(event))
        if not drop_stale(state, out, event.at, job):
            succeeded(state, out, event.at, job)
        return
    failure = outcome.failure
    kind = "attempt_lost" if failure.kind == Kind.LOST else "attempt_failed"
    note_job(state, out, event.at, kind, job, _usage(event) | _evidence(failure))
    if event.canceled:
        settle(state, out, event.at, job, TERMINATED, {"message": failure.message})
        return
    if drop_stale(state, out, event.at, job):
        return
    if state.first_failure is None:
        state.first_failure = Failed(step.name, job.attempt, failure.kind, failure.exit_code, failure.message)
    if stopping(state, job) and not state.is_end(job):
        fail(state, out, event.at, job, failure.message)
    else:
        climb(state, out, event.at, job, failure)


def _override(state: State, job: Job, verdict: Any) -> None:
    """What an `end` says about the verdict of its workflow, if it does."""
    if verdict not in OVERRIDES:
        return
    if job.scope == ROOT:
        state.override = verdict
    else:
        state.scopes[job.scope].override = verdict


def _host(state: State, out: list[Action], event: AttemptEnded, job: Job) -> None:
    """Open what a fan-out or a child workflow runs, now that an attempt has prepared that."""
    at, values = event.at, event.outcome.values
    from resile.core.fanout.child_workflow import begin_child
    from resile.core.fanout.fanout import begin_items

    if drop_stale(state, out, at, job):
        return
    if stopping(state, job):
        settle(state, out, at, job, TERMINATED, {})
    elif isinstance(state.step_of(job).action, FanOut):
        begin_items(state, out, at, job, values["items"], at - event.outcome.usage.wall_seconds)
    else:
        begin_child(state, out, at, job, values, at - event.outcome.usage.wall_seconds)


def _usage(event: AttemptEnded) -> dict[str, Any]:
    """The measured part of an attempt's note."""
    outcome = event.outcome
    usage = outcome.usage
    data: dict[str, Any] = {
        "exit_code": outcome.exit_code,
        "wall_seconds": round(usage.wall_seconds, 6),
        "cpu_seconds": round(usage.cpu_seconds, 6),
        "rss_bytes_max": usage.rss_bytes_max,
    }
    if outcome.memory:
        data["memory"] = outcome.memory
    if outcome.remarks:
        data["remarks"] = list(outcome.remarks)
    return data


def _evidence(failure: Failure) -> dict[str, Any]:
    """The readable part of a failed attempt's note."""
    data: dict[str, Any] = {"kind": failure.kind, "message": failure.message, "signature": failure.signature}
    if failure.signal is not None:
        data["signal"] = failure.signal
    return data


def _attempt_withdrawn(state: State, event: AttemptWithdrawn, out: list[Action]) -> None:
    """A reservation came to nothing through no fault of the step: it is ready again, at no cost."""
    job = _expected(state, event.job, event.attempt)
    if job is None:
        return
    was_early = job.early
    release(state, job)
    if was_early and not event.started and not stopping(state, job):
        set_back(state, job)
        return
    if event.started:
        note_job(state, out, event.at, "attempt_lost", job, {"interrupted": True})
    else:
        job.attempt -= 1
    if stopping(state, job) and not state.is_end(job):
        status = TERMINATED if event.started else CANCELED
        settle(state, out, event.at, job, status, {})
    else:
        enqueue(state, job, job.last_event_seq or job.because)


def _condition_answered(state: State, event: ConditionAnswered, out: list[Action]) -> None:
    """A step's `when` is known: run it, or skip it and what needs it."""
    job = state.jobs.get(event.job)
    if job is None or job.pending_question != "when":
        return
    if event.problem:
        note_job(state, out, event.at, "expression_rejected", job, {"problem": event.problem})
    if event.value:
        job.pending_question = ""
        enqueue(state, job, job.because)
    else:
        settle(state, out, event.at, job, SKIPPED, {"reason": "`when` is false"})


def _arcs_answered(state: State, event: ArcsAnswered, out: list[Action]) -> None:
    """The conditions on a step's arcs are known: take those that hold."""
    job = state.jobs.get(event.job)
    if job is None or job.pending_question != "arcs":
        return
    job.pending_question = ""
    if event.problem:
        note_job(state, out, event.at, "expression_rejected", job, {"problem": event.problem})
    if event.memory:
        state.memory = {**state.memory, **event.memory}
    if event.refused and not stopping(state, job):
        job.tolerated = False
        job.error = Error(event.at, job.attempt, state.step_of(job).name, Failure(Kind.CONTRACT, event.refused))
        if state.first_failure is None:
            name = state.step_of(job).name
            state.first_failure = Failed(name, job.attempt, Kind.CONTRACT, job.exit_code, event.refused)
        fail(state, out, event.at, job, event.refused)
    elif stopping(state, job) or take_arcs(state, out, event.at, job, event.values, event.given):
        finish(state, out, event.at, job)


def _timer_fired(state: State, event: TimerFired, out: list[Action]) -> None:
    """A wait is over: go on with the rule; or the time of a repair, an item, a child or an open circuit is."""
    host = state.jobs.get(event.job)
    if host is not None and host.hosting:
        from resile.core.fanout.timers_and_items import host_timer

        host_timer(state, event, out, host)
        return
    job = _expected(state, event.job, event.attempt)
    if job is None or job.status is not RECOVERING:
        return
    if event.repair:
        expired(state, out, job)
    elif job.active:
        job.timer_at = 0.0
        repair_or_go(state, out, event.at, job)


def _items_read(state: State, event: ItemsRead, out: list[Action]) -> None:
    """Another chunk of a fan-out's items."""
    from resile.core.fanout.timers_and_items import items_read

    items_read(state, event, out)


def _redriven(state: State, event: Redriven, out: list[Action]) -> None:
    """Dead letters of a run that has ended are tried again."""
    from resile.core.fanout.timers_and_items import redriven

    redriven(state, event, out)


def _groups_read(state: State, event: GroupsRead, out: list[Action]) -> None:
    """The next fan-outs whose dead letters are tried again."""
    from resile.core.fanout.timers_and_items import groups_read

    groups_read(state, event, out)


def _route_answered(state: State, event: RouteAnswered, out: list[Action]) -> None:
    """The code of a rule, or of `on_success`, has said what to run or where to go."""
    job = state.jobs.get(event.job)
    if job is None or job.pending_question != event.about:
        return
    job.pending_question = ""
    for problem in event.problems:
        note_job(state, out, event.at, "expression_rejected", job, {"problem": problem})
    if event.about == "rule":
        rule_answered(state, out, event.at, job, not event.stop)
    elif job.rule == SUCCESS:
        success_answered(state, out, event.at, job, event.about, event.calls, event.target, event.stop)
    else:
        route_answered(state, out, event.at, job, event.calls, event.target, event.stop)


def _value_answered(state: State, event: ValueAnswered, out: list[Action]) -> None:
    """What a child workflow gave is known to be as it must be, or not."""
    from resile.core.fanout.child_workflow import child_judged

    job = state.jobs.get(event.job)
    if job is not None and job.pending_question == "value" and job.attempt == event.attempt:
        job.pending_question = ""
        child_judged(state, out, event.at, job, event.outcome)


def _judged(state: State, event: Judged, out: list[Action]) -> None:
    """Somebody decided about a parked failure: try again, go on without it, or let it fail."""
    job = state.jobs.get(event.job)
    if job is None or job.status is not PENDING_FAILED:
        return
    data = {"verdict": event.verdict, "by": event.by, "reason": event.reason}
    note_job(state, out, event.at, "step_judged", job, data)
    keep_route(state, event.at, job, "judge", event.verdict, None, event.reason or "judge")
    match event.verdict:
        case "retry":
            state.parked -= 1
            job.memory_bytes = event.memory_bytes or job.memory_bytes
            job.runtime_seconds = event.runtime_seconds or job.runtime_seconds
            # Whoever judges can be asked again, so the rule that parked the job is not spent by it.
            job.fired = {number: count for number, count in (job.fired or {}).items() if number != job.rule}
            job.error = None
            enqueue(state, job, job.last_event_seq)
        case "skip":
            job.dependents_go_on = True
            names = [capture.name for capture in state.step_of(job).capture]
            if event.output is not None:
                names = names or [state.step_of(job).name]
            given = dict.fromkeys(names, "" if event.output is None else event.output)
            frame = state.frame_of(job.scope)
            frame.values = {**frame.values, **given}
            settle(state, out, event.at, job, SKIPPED, data)
        case "fail":
            fail(state, out, event.at, job, event.reason or "judged a failure")


def _cancel_requested(state: State, event: CancelRequested, out: list[Action]) -> None:
    """Stop everything but `end`; asked again while `end` runs, stop that too."""
    if state.phase == "ended":
        return
    if state.phase == "redriving":
        from resile.core.fanout.redrive import stop

        stop(state, out, event.at)
        return
    again = state.canceled
    state.canceled = True
    note = {"by": event.by, "reason": event.reason}
    because = note_run(state, out, event.at, "cancel_requested", "running", state.seq, **note)
    if state.phase == "running":
        stop_scope(state, out, event.at, state.scopes[ROOT], because)
    elif again and end_job(state).status in (PENDING, RUNNING):
        out.append(KillAttempt(end_job(state).id, end_job(state).attempt, because))


def _epoch_started(state: State, event: EpochStarted, out: list[Action]) -> None:
    """The same run goes again; budgets and attempt numbers start from the beginning."""
    begin_epoch(state, out, event.at, event.failed_only, event.by)


def _expected(state: State, number: int, attempt: int) -> Job | None:
    """The job this report is about, unless it is late: a result of another attempt changes nothing."""
    job = state.jobs.get(number)
    if job is None or job.attempt != attempt or job.pending_question or job.hosting:
        return None
    return job if job.status in _UNDER_WAY else None


HANDLERS: dict[type, Callable[[State, Any, list[Action]], None]] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    AttemptStarted: _attempt_started,
    AttemptEnded: _attempt_ended,
    AttemptAdopted: _attempt_adopted,
    AttemptWithdrawn: _attempt_withdrawn,
    ConditionAnswered: _condition_answered,
    ArcsAnswered: _arcs_answered,
    TimerFired: _timer_fired,
    ItemsRead: _items_read,
    CancelRequested: _cancel_requested,
    RouteAnswered: _route_answered,
    ValueAnswered: _value_answered,
    EpochStarted: _epoch_started,
    Judged: _judged,
    Redriven: _redriven,
    GroupsRead: _groups_read,
}
