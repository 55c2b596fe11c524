"""The ladder: a failure meets the job's rules in order; the first that matches and has budget left answers it.

    rule = match -> limit -> wait -> repair -> then

    climb --> [ask its code] --> hold --> wait --> repair (repair.py) --> carry out --> retry, recovered, ...
      ^                                               |
      +------- the rules below it <-- a step failed --+

A spent rule no longer matches and the climb goes on. After the last rule the job is failed.
"""

from __future__ import annotations

from typing import Literal

from resile.core.actions import SetTimer
from resile.core.reaction import Reaction
from resile.core.recovery.backoff import delay_seconds
from resile.core.recovery.matching import matches
from resile.core.recovery.repair import ask, begin_repair, close_repair, origin_text, valid_target
from resile.core.rule_trace import RuleSkipped, RuleTrace, SkipReason, trace_of
from resile.core.scheduling.arcs import fail, spend, succeed
from resile.core.scheduling.goto import jump
from resile.core.scheduling.reservations import mark_active, mark_idle, resources_for
from resile.core.scheduling.scopes import stop_siblings
from resile.core.state import NO_RULE, Error, Failed, Job, State
from resile.core.transitions import set_status
from resile.model.failure import Failure, Kind
from resile.model.rules import NO_RULE_LEFT, Escalation
from resile.model.status import PENDING_FAILED, RECOVERING
from resile.model.workflow import Rule


def climb(reaction: Reaction, job: Job, failure: Failure, first: int = 0) -> None:
    """Find the rule that answers this failure, from rule number `first` on, and begin to apply it."""
    state = reaction.state
    step, rules = state.step_of(job), state.rules_of(job)
    if job.error is None:
        job.error = Error(reaction.at, job.attempt, step.name, failure)
    if state.first_failure is None:
        # Fan-outs and child workflows fail without an attempt, so their failure is recorded here.
        state.first_failure = Failed(step.name, job.attempt, failure.kind, failure.exit_code, failure.message)
    skipped: list[RuleSkipped] = []
    for number in range(first, len(rules)):
        rule = rules[number]
        why = _reason_to_skip(state, job, number, failure)
        if why:
            skipped.append(RuleSkipped(number, why, _uses_of(state, job, number), _limit_of(state, rule)))
            continue
        job.rule = number
        _trace(state, job, failure, skipped, number)
        if rule.when is not None:
            ask(reaction, job, "rule")
        else:
            _apply(reaction, job, rule)
        return
    _trace(state, job, failure, skipped, NO_RULE)
    reaction.summarize_route(job, "on_failure", "fail", None, NO_RULE_LEFT)
    fail(reaction, job, failure.message, outcome=_outcome_of(state, job, failure, len(rules)))


def _outcome_of(state: State, job: Job, failure: Failure, last: int) -> str:
    """The outcome of a failure that none of the rules before number `last` answers any more.

    A rule that was spent before, or whose repair failed, did match.
    """
    if any(_reason_to_skip(state, job, number, failure) in ("spent", "no more") for number in range(last)):
        return "MaxRetriesExceeded"
    implicit = len(state.rules_of(job)) - len(state.step_of(job).rules)
    return "NoMatchingRule" if last > implicit else "NoHandler"


def _reason_to_skip(state: State, job: Job, number: int, failure: Failure) -> SkipReason | Literal[""]:
    """Why a rule does not answer this failure; empty where it does."""
    rule = state.rules_of(job)[number]
    if not matches(rule.match, failure):
        return "no match"
    if _is_off(state, rule):
        return "off"
    if _uses_of(state, job, number) >= _limit_of(state, rule):
        return "spent"
    return "no more" if rule.change is not None and _larger_grant(state, job, rule.change, failure) is None else ""


def _trace(state: State, job: Job, failure: Failure, skipped: list[RuleSkipped], number: int) -> None:
    """Record how a failure met the rules, where tracing is enabled."""
    traces = trace_of(state)
    if traces is None:
        return
    used = limit = 0
    if number != NO_RULE:
        used, limit = _uses_of(state, job, number), _limit_of(state, state.rules_of(job)[number])
    traces.append(RuleTrace(state.seq, job.id, failure, tuple(skipped), number, used, limit))


def _uses_of(state: State, job: Job, number: int) -> int:
    """How much of a rule's limit is used: by its own firings, or by those of all rules of the step itself."""
    fired, rules = job.fired or {}, state.rules_of(job)
    if rules[number].limit_of == "rule":
        return fired.get(number, 0)
    first = len(rules) - len(state.step_of(job).rules)
    return sum(times for which, times in fired.items() if which >= first)


def _is_off(state: State, rule: Rule) -> bool:
    """Is this kind of rule turned off for the run (`--no-failure-routing`)?"""
    routing = rule.then == "goto" or (rule.then == "retry" and rule.routing)
    return routing and not state.options.failure_routing


def _limit_of(state: State, rule: Rule) -> int:
    """How often a rule may fire; `--retry-max` caps rules that the file calls retry."""
    asked = state.options.retry_max
    return min(rule.limit, asked) if asked is not None and rule.retries_anyway else rule.limit


def _apply(reaction: Reaction, job: Job, rule: Rule) -> None:
    """Apply the rule that answers a failure: have its code evaluated if it has some, else hold the job."""
    asks_calls = rule.repair is not None and rule.repair.calls_js
    if asks_calls or rule.target_js or rule.transitions:
        ask(reaction, job, "calls" if asks_calls else "target")
    else:
        calls = rule.repair.calls if rule.repair is not None else ()
        _hold(reaction, job, rule, calls, rule.target)


def apply_rule_answer(reaction: Reaction, job: Job, holds: bool) -> None:
    """Take the value of a rule's condition: apply the rule, or climb on below it."""
    assert job.error is not None
    if holds:
        _apply(reaction, job, reaction.state.rules_of(job)[job.rule])
    else:
        climb(reaction, job, job.error.failure, job.rule + 1)


def apply_route_answer(reaction: Reaction, job: Job, calls: tuple[str, ...] | None, target: str, stop: bool) -> None:
    """Take the answer of a rule's code: go on with the rule, or climb on below it where the answer is unusable."""
    assert job.error is not None
    rule = reaction.state.rules_of(job)[job.rule]
    if rule.repair is not None and rule.repair.calls_js:
        wanted = tuple(dict.fromkeys((*rule.repair.calls, *(calls or ()))))
        if wanted or rule.retries_anyway:
            _hold(reaction, job, rule, wanted, rule.target)
            return
    elif not stop and (where := valid_target(reaction, job, target, rule.target)):
        _hold(reaction, job, rule, (), where)
        return
    climb(reaction, job, job.error.failure, job.rule + 1)


def _hold(reaction: Reaction, job: Job, rule: Rule, calls: tuple[str, ...], target: str) -> None:
    """Spend the rule and hold the job: from here on nothing else starts it, and a crash resumes at this point."""
    state = reaction.state
    action = "run" if calls and rule.then == "retry" else rule.then
    if rule.cost and not spend(reaction, job, rule.cost, "on_failure", action):
        return
    fired = (job.fired or {}).get(job.rule, 0) + 1
    job.fired = {**(job.fired or {}), job.rule: fired}
    job.calls, job.target = calls, target
    set_status(job, RECOVERING)
    text = origin_text(state, job, rule)
    if rule.then == "goto":
        reaction.note_route(job, "on_failure", "goto", target, text)
    elif not _is_recorded_after_repair(rule):
        reaction.summarize_route(job, "on_failure", rule.then, None, text)
    if rule.then != "retry" or not _schedule_retry(reaction, job, rule, fired, text):
        repair_or_carry_out(reaction, job)


def _schedule_retry(reaction: Reaction, job: Job, rule: Rule, fired: int, text: str) -> bool:
    """Count the next attempt and set the timer of its wait; False where there is no wait."""
    state = reaction.state
    job.attempt += 1
    job.attempt_state = "counted"
    delay = 0.0
    if rule.wait is not None:
        identity = f"{state.workflow_of(job.scope).name}/{state.step_of(job).name}"
        delay = delay_seconds(rule.wait, fired, identity)
    data = {
        "rule": text,
        "then": "retry",
        "delay_seconds": delay,
        "next_attempt": job.attempt,
        "loops": state.scopes[job.scope].loops,
        "outcome": "Retried",
    }
    if rule.change is not None:
        assert job.error is not None
        larger = _larger_grant(state, job, rule.change, job.error.failure)
        if larger is not None:
            job.memory_bytes, job.runtime_seconds = larger
        data |= {"memory_bytes": job.memory_bytes, "runtime_seconds": job.runtime_seconds}
    seq = reaction.note("retry_scheduled", job, data)
    if delay <= 0:
        return False
    mark_active(state, job)
    job.timer_at = reaction.at + delay
    reaction.order(SetTimer(job.id, job.attempt, job.timer_at, seq))
    return True


def _larger_grant(state: State, job: Job, change: Escalation, failure: Failure) -> tuple[int, float] | None:
    """The memory and runtime of the next attempt, or None where the exhausted one is at its ceiling."""
    resources = resources_for(state, job)
    if resources is None:
        return None
    memory, runtime = resources.memory_bytes, resources.runtime_seconds or 0.0
    if failure.kind == Kind.TIMEOUT:
        ceiling = change.runtime_seconds_max
        longer = min(runtime * change.factor, ceiling) if ceiling else runtime * change.factor
        return (memory, longer) if longer > runtime else None
    most = change.memory_bytes_max
    larger = min(int(memory * change.factor), most) if most else int(memory * change.factor)
    return (larger, runtime) if larger > memory else None


def repair_or_carry_out(reaction: Reaction, job: Job) -> None:
    """After the wait: run the repair if the rule has one, else carry the rule out."""
    rule = reaction.state.rules_of(job)[job.rule]
    if rule.repair is None or not (rule.repair.steps or job.calls):
        _carry_out(reaction, job, rule)
        return
    problem = begin_repair(reaction, job, rule.repair.steps, rule.repair.timeout_seconds)
    if problem is not None:
        after_repair(reaction, job, problem)


def after_repair(reaction: Reaction, job: Job, problem: str) -> None:
    """After a repair: carry the rule out, or follow its `on_failure` where the repair failed."""
    if not close_repair(reaction, job, problem):
        return
    job.visit = "repaired"
    rule = reaction.state.rules_of(job)[job.rule]
    assert rule.repair is not None
    if not problem or rule.repair.on_failure == "ignore":
        _carry_out(reaction, job, rule)
        return
    assert job.error is not None
    if _is_recorded_after_repair(rule):
        text = origin_text(reaction.state, job, rule)
        reaction.summarize_route(job, "on_failure", "repair", None, text)
    if job.attempt_state == "counted":
        job.attempt_state = ""
        job.attempt -= 1
    if rule.repair.on_failure == "fail":
        fail(reaction, job, problem, outcome="Error")
        if rule.halts:
            stop_siblings(reaction, job)
    else:
        job.fired = {**(job.fired or {}), job.rule: rule.limit}
        climb(reaction, job, job.error.failure, job.rule + 1)


def _carry_out(reaction: Reaction, job: Job, rule: Rule) -> None:
    """Carry out a rule's `then`, after its repair."""
    assert job.error is not None
    state, failure = reaction.state, job.error.failure
    if _is_recorded_after_repair(rule):
        reaction.summarize_route(job, "on_failure", rule.then, None, origin_text(state, job, rule))
    match rule.then:
        case "retry":
            job.error = None
            reaction.enqueue(job, job.last_event_seq)
        case "recovered":
            job.visit = "repaired"
            job.error = None
            succeed(reaction, job)
        case "fallback":
            job.visit = "repaired"
            job.error = None
            job.output_job = state.scopes[job.repair_scope].first + len(state.plan_of(job.repair_scope).steps) - 1
            succeed(reaction, job)
        case "tolerate" if state.workflow.edition == 1 and state.scopes[job.scope].kind == "item":
            # In the first edition a failure that remains fails its item, whatever the rule says.
            fail(reaction, job, failure.message)
        case "tolerate":
            job.accepted = "tolerated"
            succeed(reaction, job)
        case "goto":
            jump(reaction, job, job.target)
        case "park":
            _park(reaction, job, failure)
        case "fail":
            fail(reaction, job, failure.message)
            if rule.halts:
                stop_siblings(reaction, job)


def _park(reaction: Reaction, job: Job, failure: Failure) -> None:
    """Park a failure until a user judges it; the fan-outs around it may begin other items meanwhile."""
    state = reaction.state
    mark_idle(state, job)
    state.parked += 1
    set_status(job, PENDING_FAILED)
    reaction.note(
        "step_parked", job, {"message": failure.message, "outcome": _outcome_of(state, job, failure, job.rule)}
    )
    around = state.scopes[job.scope]
    while around.owner:
        if around.kind == "item":
            reaction.wakeups.append(around.owner)
        around = state.scopes[state.jobs[around.owner].scope]


def _is_recorded_after_repair(rule: Rule) -> bool:
    """Does the outcome of this rule depend on its repair, so that the summary records it only afterwards?"""
    return rule.repair is not None and rule.then not in ("retry", "goto")
