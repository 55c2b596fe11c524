"""The ladder: a failure walks the job's rules in order; the first that matches and has budget left answers it.

    rule = match -> limit -> wait -> repair -> then

    climb --> [ask its code] --> reserve --> wait --> repair (repair.py) --> carry out --> retry, recovered, ...
      ^                                                   |
      +------- the rules below it <-- a handler failed ---+

A spent rule no longer matches and the walk goes on. Below the last rule the failure stands.
"""

from __future__ import annotations

from typing import Literal

from resile.core.actions import Action, AnswerRoute, SetTimer
from resile.core.event_log import STATUS_NAMES, note_job
from resile.core.recovery.backoff import delay_seconds
from resile.core.recovery.matching import ladder_of, matches
from resile.core.rule_trace import Passed, PassedOver, Walk, listeners
from resile.core.scheduling.dependencies import fail, keep_route, record_route, spend, succeed
from resile.core.scheduling.goto import is_ancestor, jump
from resile.core.scheduling.ready_queue import enqueue
from resile.core.scheduling.reservations import granted, rest, stir
from resile.core.scheduling.scopes import stop_scope
from resile.core.state import NO_RULE, Cause, Error, Failed, Job, State
from resile.model.failure import Failure, Kind
from resile.model.rules import Rule
from resile.model.status import Status
from resile.model.workflow import Step


def climb(state: State, out: list[Action], at: float, job: Job, failure: Failure, first: int = 0) -> None:
    """Find the rule that answers this failure, from rule number `first` on, and begin to do as it says."""
    step = state.step_of(job)
    if job.error is None:
        job.error = Error(at, job.attempt, step.name, failure)
    if state.first_failure is None:
        # Of fan-outs and child workflows, which fail without an attempt of their own.
        state.first_failure = Failed(step.name, job.attempt, failure.kind, failure.exit_code, failure.message)
    rules = ladder_of(step)
    passed: list[Passed] = []
    for number in range(first, len(rules)):
        rule = rules[number]
        why = _passed_over(state, job, number, failure)
        if why:
            passed.append(Passed(number, why, _spent(job, step, number), _limit(state, rule)))
            continue
        job.rule = number
        _tell(state, job, failure, passed, number)
        if rule.when is not None:
            ask(state, out, job, "rule")
        else:
            _apply(state, out, at, job, rule)
        return
    _tell(state, job, failure, passed, NO_RULE)
    # Those above `first` too: one that was spent before, or whose repair has failed, did match.
    above = (_passed_over(state, job, number, failure) for number in range(first))
    matched = any(why in ("spent", "no more") for why in (*(look.why for look in passed), *above))
    outcome = "MaxRetriesExceeded" if matched else "NoMatchingRule" if step.rules else "NoHandler"
    keep_route(state, at, job, "on_failure", "fail", None, "no rule left")
    fail(state, out, at, job, failure.message, outcome=outcome)


def _passed_over(state: State, job: Job, number: int, failure: Failure) -> PassedOver | Literal[""]:
    """Why a rule does not answer this failure; nothing where it does."""
    step = state.step_of(job)
    rule = ladder_of(step)[number]
    if not matches(rule.match, failure):
        return "no match"
    if _off(state, rule):
        return "off"
    if _spent(job, step, number) >= _limit(state, rule):
        return "spent"
    return "" if _can_change(state, job, rule, failure) else "no more"


def _tell(state: State, job: Job, failure: Failure, passed: list[Passed], number: int) -> None:
    """Tell whoever listens how a failure walked the rules."""
    walks = listeners(state)
    if walks is None:
        return
    used = limit = 0
    if number != NO_RULE:
        step = state.step_of(job)
        used, limit = _spent(job, step, number), _limit(state, ladder_of(step)[number])
    walks.append(Walk(state.seq, job.id, failure, tuple(passed), number, used, limit))


def _apply(state: State, out: list[Action], at: float, job: Job, rule: Rule) -> None:
    """This rule answers the failure: have its code evaluated where it has some, else hold the job."""
    asks_calls = rule.repair is not None and rule.repair.calls_js
    if asks_calls or rule.target_js or rule.transitions:
        ask(state, out, job, "calls" if asks_calls else "target")
    else:
        calls = rule.repair.calls if rule.repair is not None else ()
        reserve(state, out, at, job, rule, calls, rule.target)


def rule_answered(state: State, out: list[Action], at: float, job: Job, holds: bool) -> None:
    """The question of a rule is answered: the rule applies, or the walk goes on below it."""
    assert job.error is not None
    if holds:
        _apply(state, out, at, job, ladder_of(state.step_of(job))[job.rule])
    else:
        climb(state, out, at, job, job.error.failure, job.rule + 1)


def _spent(job: Job, step: Step, number: int) -> int:
    """How much of a rule's limit is used: its own firings, or those of all rules that the step itself has."""
    fired, rules = job.fired or {}, ladder_of(step)
    if rules[number].limit_of == "rule":
        return fired.get(number, 0)
    first = len(rules) - len(step.rules)
    return sum(times for which, times in fired.items() if which >= first)


def _off(state: State, rule: Rule) -> bool:
    """Is this kind of rule turned off for the run (`--no-failure-routing`)?"""
    routing = rule.then == "goto" or (rule.then == "retry" and rule.routing)
    return routing and not state.options.failure_routing


def _limit(state: State, rule: Rule) -> int:
    """How often a rule may fire: `--retry-max` caps what the file calls retry."""
    asked = state.options.retry_max
    return min(rule.limit, asked) if asked is not None and rule.retries_anyway else rule.limit


def ask(state: State, out: list[Action], job: Job, about: Literal["rule", "calls", "target"]) -> None:
    """Have a job's rule evaluated: whether it applies, which steps to run, or where to go."""
    stir(state, job)
    job.status = Status.recovering
    job.pending_question = about
    out.append(AnswerRoute(job.id, job.rule, about, job.last_event_seq))


def route_answered(
    state: State, out: list[Action], at: float, job: Job, calls: tuple[str, ...] | None, target: str, stop: bool
) -> None:
    """A rule's code has answered: apply the rule, or go on below it where nothing came of it."""
    assert job.error is not None
    rule = ladder_of(state.step_of(job))[job.rule]
    if rule.repair is not None and rule.repair.calls_js:
        wanted = tuple(dict.fromkeys((*rule.repair.calls, *(calls or ()))))
        if wanted or rule.retries_anyway:
            reserve(state, out, at, job, rule, wanted, rule.target)
            return
    elif not stop and (where := valid_target(state, out, at, job, target, rule.target)):
        reserve(state, out, at, job, rule, (), where)
        return
    climb(state, out, at, job, job.error.failure, job.rule + 1)


def valid_target(state: State, out: list[Action], at: float, job: Job, asked: str, static: str) -> str:
    """Where code wants to go if it may, else the static target; an answer that is no ancestor is recorded."""
    if asked and is_ancestor(state, job, asked):
        return asked
    if asked:
        problem = f"goto_js: {asked!r} is no ancestor of this step"
        note_job(state, out, at, "expression_rejected", job, {"problem": problem})
    return static


def reserve(
    state: State, out: list[Action], at: float, job: Job, rule: Rule, calls: tuple[str, ...], target: str
) -> None:
    """Spend the rule and hold the job: from here on nobody else can start it, and a crash resumes at this point."""
    action = "run" if calls and rule.then == "retry" else rule.then
    if rule.cost and not spend(state, out, at, job, rule.cost, "on_failure", action):
        return
    fired = (job.fired or {}).get(job.rule, 0) + 1
    job.fired = {**(job.fired or {}), job.rule: fired}
    job.calls, job.target = calls, target
    job.status = Status.recovering
    text = origin_text(state, job, rule)
    if rule.then == "goto":
        record_route(state, out, at, job, "on_failure", "goto", target, text)
    elif not _told_later(rule):
        keep_route(state, at, job, "on_failure", rule.then, None, text)
    if rule.then == "retry":
        job.attempt += 1
        job.attempt_counted = True
        delay = 0.0
        if rule.wait is not None:
            delay = delay_seconds(rule.wait, fired, f"{state.workflow_of(job.scope).name}/{state.step_of(job).name}")
        _escalate(state, job, rule)
        data = {
            "rule": text,
            "then": "retry",
            "delay_seconds": delay,
            "next_attempt": job.attempt,
            "outcome": "Retried",
        }
        if rule.change is not None:
            data |= {"memory_bytes": job.memory_bytes, "runtime_seconds": job.runtime_seconds}
        seq = note_job(state, out, at, "retry_scheduled", job, data)
        if delay > 0:
            stir(state, job)
            job.timer_at = at + delay
            out.append(SetTimer(job.id, job.attempt, job.timer_at, seq))
            return
    repair_or_go(state, out, at, job)


def repair_or_go(state: State, out: list[Action], at: float, job: Job) -> None:
    """The wait is over: run the repair where the rule has one, else carry the rule out."""
    from resile.core.recovery.repair import begin_repair

    rule = ladder_of(state.step_of(job))[job.rule]
    if rule.repair is not None and (rule.repair.steps or job.calls):
        begin_repair(state, out, at, job, rule.repair.steps, rule.repair.timeout_seconds)
    else:
        carry_out(state, out, at, job, rule)


def carry_out(state: State, out: list[Action], at: float, job: Job, rule: Rule) -> None:
    """The last part of a rule, after its repair."""
    assert job.error is not None
    failure = job.error.failure
    if _told_later(rule):
        keep_route(state, at, job, "on_failure", rule.then, None, origin_text(state, job, rule))
    match rule.then:
        case "retry":
            job.error = None
            enqueue(state, job, job.last_event_seq)
        case "recovered":
            job.repaired = True
            job.error = None
            succeed(state, out, at, job)
        case "fallback":
            job.repaired = True
            job.error = None
            job.output_job = state.scopes[job.repair_scope].first + len(state.plan_of(job.repair_scope).steps) - 1
            succeed(state, out, at, job)
        case "tolerate" if state.scopes[job.scope].kind == "item":
            # Whatever it says about the workflow: what stays failed fails its item.
            fail(state, out, at, job, failure.message)
        case "tolerate":
            job.tolerated = True
            succeed(state, out, at, job)
        case "goto":
            jump(state, out, at, job, job.target)
        case "park":
            rest(state, job)
            state.parked += 1
            job.status = Status.pending_failed
            note_job(state, out, at, "step_parked", job, {"message": failure.message})
            _make_room(state, job)
        case "fail":
            fail(state, out, at, job, failure.message)
            scope = state.scopes[job.scope]
            if rule.halts and not scope.stopped:
                cause = Cause(state.step_of(job).name, job.id, STATUS_NAMES[job.status])
                stop_scope(state, out, at, scope, job.last_event_seq, cause)


def _make_room(state: State, job: Job) -> None:
    """An item that waits for a judgement lets others begin: the fan-outs around a parked job look again."""
    around = state.scopes[job.scope]
    while around.owner:
        if around.kind == "item":
            state.agenda.append(around.owner)
        around = state.scopes[state.jobs[around.owner].scope]


def repair_failed(state: State, out: list[Action], at: float, job: Job, message: str) -> None:
    """A repair did not work: as its rule says, go on, leave the failure to the rules below, or stop climbing."""
    assert job.error is not None
    rule = ladder_of(state.step_of(job))[job.rule]
    assert rule.repair is not None
    if rule.repair.on_failure == "ignore":
        carry_out(state, out, at, job, rule)
        return
    if _told_later(rule):
        keep_route(state, at, job, "on_failure", "repair", None, origin_text(state, job, rule))
    if job.attempt_counted:
        job.attempt_counted = False
        job.attempt -= 1
    if rule.repair.on_failure == "fail":
        fail(state, out, at, job, message, outcome="Error")
    else:
        job.fired = {**(job.fired or {}), job.rule: rule.limit}
        climb(state, out, at, job, job.error.failure, job.rule + 1)


def _told_later(rule: Rule) -> bool:
    """What such a rule comes to depends on its repair, so its line in the summary waits for that."""
    return rule.repair is not None and rule.then not in ("retry", "goto")


def origin_text(state: State, job: Job, rule: Rule) -> str:
    """Where a rule of a job stands and what it says, as the summary prints it."""
    origin = rule.origin
    file = origin.file or state.workflow_of(job.scope).file
    return f"{file}:{origin.line}:{origin.column} {rule.text}" if origin.line else rule.text


def _can_change(state: State, job: Job, rule: Rule, failure: Failure) -> bool:
    """A rule that asks for more is spent when there is no more to ask for."""
    return rule.change is None or _more(state, job, rule, failure) is not None


def _more(state: State, job: Job, rule: Rule, failure: Failure) -> tuple[int, float] | None:
    """Memory and runtime after one more round, or None where both are at their ceiling."""
    change, resources = rule.change, granted(state, job)
    if change is None or resources is None:
        return None
    memory, runtime = resources.memory_bytes, resources.runtime_seconds or 0.0
    if failure.kind == Kind.TIMEOUT:
        ceiling = change.runtime_seconds_max
        grown = min(runtime * change.factor, ceiling) if ceiling else runtime * change.factor
        return (memory, grown) if grown > runtime else None
    most = change.memory_bytes_max
    larger = min(int(memory * change.factor), most) if most else int(memory * change.factor)
    return (larger, runtime) if larger > memory else None


def _escalate(state: State, job: Job, rule: Rule) -> None:
    """Grant a job more for its next attempt."""
    assert job.error is not None
    more = _more(state, job, rule, job.error.failure)
    if more is not None:
        job.memory_bytes, job.runtime_seconds = more
