"""Writes the rules of a step: in short keys if they express all of it, else rule by rule.

short_keys_for(rules)   retry, on_exit_code, on_failure, park ... as a guess: `emit` compiles the file again and writes
                        the rules of a step in full if the guess was wrong
rules_in_full(rules)    every field of every rule
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resile.dialects.native.failures.handlers import SCRIPT_NAME
from resile.dialects.native.keys.failures import GROWTH, STEP_RULE
from resile.dialects.native.writer.values import backoff, duration, routes, short_form, written_fields
from resile.model.workflow import Repair, Rule, Shell, Step, SuccessActions

Commands = Callable[[tuple[Step, ...], str], Any]
"""Writes the commands of a handler; the text is the prefix of default names."""


def rules_in_full(rules: tuple[Rule, ...], commands: Commands) -> list[Any]:
    """Write all rules with all their fields."""
    return [_rule(rule, commands) for rule in rules]


def _rule(rule: Rule, commands: Commands) -> dict[str, Any]:
    """One rule."""
    written: dict[str, Any] = {"then": rule.then}
    if rule.text != rule.then:
        written["text"] = rule.text
    written |= written_fields(rule.match, STEP_RULE)
    written |= written_fields(rule, STEP_RULE, "when", "limit", "wait")
    if rule.repair is not None:
        written |= _repair(rule.repair, commands)
    if rule.change is not None:
        written["escalate"] = written_fields(rule.change, GROWTH)
    written |= routes(rule.target, rule.target_js, rule.transitions)
    return written | written_fields(rule, STEP_RULE, "limit_of", "cost", "routing", "retries_anyway", "halts")


def _repair(repair: Repair, commands: Commands) -> dict[str, Any]:
    """Write the steps that run before the rule's verdict."""
    written: dict[str, Any] = {}
    if repair.steps:
        written["commands"] = commands(repair.steps, "on_failure")
    written |= _calls(repair.calls, repair.calls_js)
    if repair.timeout_seconds is not None:
        written["timeout"] = duration(repair.timeout_seconds)
    if repair.on_failure != "next" or not written:
        written["on_repair_failure"] = repair.on_failure
    return written


def _calls(calls: tuple[str, ...], code: str) -> dict[str, Any]:
    return ({"run": list(calls)} if calls else {}) | ({"run_js": code} if code else {})


def escalation_of(rule: Rule) -> dict[str, Any] | None:
    """Write `resources.escalate` if the rule comes from it, else return None."""
    if rule.change is None or not rule.text.startswith("escalate"):
        return None
    return written_fields(rule.change, GROWTH) | ({"rounds": rule.limit} if rule.limit != 3 else {})


def success_keys_for(actions: SuccessActions, commands: Commands) -> Any:
    """Write the actions after a success."""
    written: dict[str, Any] = {}
    if actions.steps:
        written["commands"] = commands(actions.steps, "on_success")
    written |= _calls(actions.calls, actions.calls_js)
    written |= routes(actions.target, actions.target_js, actions.transitions)
    jumps = actions.target or actions.target_js or actions.transitions
    if jumps and actions.cost != 1:
        written["cost"] = actions.cost
    if actions.run_cost:
        written["run_cost"] = actions.run_cost
    return short_form(written, "commands")


class _RuleQueue:
    """The rules that are not yet written, in order."""

    def __init__(self, rules: list[Rule]) -> None:
        self.left = rules

    def take(self, holds: Callable[[Rule], bool]) -> Rule | None:
        """Take the next rule if it satisfies a condition."""
        return self.left.pop(0) if self.left and holds(self.left[0]) else None


def short_keys_for(rules: list[Rule], commands: Commands) -> dict[str, Any] | None:
    """The keys that probably compile to these rules, or None if no keys can."""
    walk = _RuleQueue(list(rules))
    written: dict[str, Any] = {}
    by_code: dict[str, Any] = {}
    while (
        rule := walk.take(lambda rule: rule.text.startswith("on_exit_code ") and len(rule.match.codes) == 1)
    ) is not None:
        if rule.repair is not None:
            by_code[str(rule.match.codes[0])] = commands(rule.repair.steps, "on_failure")
    if by_code:
        written["on_exit_code"] = by_code
    answer: dict[str, Any] = _retry(walk)
    key = "on_fail" if any(rule.text.startswith("on_fail:") for rule in rules) else "on_failure"
    answer |= _handler(walk, commands, key)
    goto = walk.take(lambda rule: rule.then == "goto")
    if goto is not None:
        answer |= routes(goto.target, goto.target_js, goto.transitions)
    answer |= _last_answer_of(walk, commands, key)
    parks = walk.take(lambda rule: rule.then == "park" and rule.text == "park") is not None
    continues = walk.take(lambda rule: rule.text == "continue_on_error") is not None
    if walk.left:
        return None
    if answer.keys() == {"retry"}:
        written["retry"] = answer.pop("retry")
    if answer:
        written[key] = _shorten_answer(answer)
    return written | ({"park": True} if parks else {}) | ({"continue_on_error": True} if continues else {})


def _retry(walk: _RuleQueue) -> dict[str, Any]:
    """Write plain retries, and retries after named steps."""
    rule = walk.take(
        lambda rule: rule.then == "retry" and rule.routing and (rule.repair is None or not rule.repair.steps)
    )
    if rule is None:
        return {}
    written: dict[str, Any] = {}
    if rule.text.startswith("retry"):
        wait = {"backoff": backoff(rule.wait)} if rule.wait is not None else {}
        written["retry"] = {"max": rule.limit, **wait} if wait else rule.limit
    return written | (_calls(rule.repair.calls, rule.repair.calls_js) if rule.repair is not None else {})


def _handler(walk: _RuleQueue, commands: Commands, key: str) -> dict[str, Any]:
    """Write the handler that runs before further executions and after the last."""
    written: dict[str, Any] = {}
    again = walk.take(lambda rule: rule.text.startswith(f"{key}: max_attempts "))
    if again is not None:
        written |= _handler_keys(again.repair, commands) | {"max_attempts": again.limit + 1}
    words = tuple(f"{key}: {word}" for word in ("recovery", "custom", "fallback"))
    ends = walk.take(lambda rule: rule.text in words)
    if ends is not None:
        written = _handler_keys(ends.repair, commands) | written
        strategy = ends.text.rpartition(" ")[2]
        if strategy != "recovery":
            written["strategy"] = strategy
    return written


def _handler_keys(repair: Repair | None, commands: Commands) -> dict[str, Any]:
    """Write the commands of a handler, its timeout, and the effect of its failure."""
    if repair is None:
        return {}
    written: dict[str, Any] = {"commands": commands(repair.steps, "on_failure")}
    if repair.timeout_seconds is not None:
        written["timeout"] = duration(repair.timeout_seconds)
    if repair.on_failure == "fail":
        written["handler_failure_fatal"] = True
    return written


def _last_answer_of(walk: _RuleQueue, commands: Commands, key: str) -> dict[str, Any]:
    """Write the last rules: cleanup, accept, tolerate or fail."""
    written: dict[str, Any] = {}
    cleanup = walk.take(lambda rule: rule.text.startswith((f"{key}: cleanup, then", f"{key}: handler, then")))
    if cleanup is not None:
        written |= _handler_keys(cleanup.repair, commands)
        written |= {"strategy": "cleanup"} if cleanup.text.startswith(f"{key}: cleanup") else {"fail_workflow": True}
    if walk.take(lambda rule: rule.text == f"{key}: accept") is not None:
        written["accept"] = True
    elif walk.take(lambda rule: rule.text == "fail_workflow: false") is not None:
        written["fail_workflow"] = False
    elif walk.take(lambda rule: rule.text == f"{key}: tolerate") is not None:
        written["tolerates"] = True
    return written


def _shorten_answer(answer: dict[str, Any]) -> Any:
    """Write `on_failure` in its shortest form."""
    if answer.keys() == {"tolerates"}:
        return True
    commands = answer.get("commands")
    if isinstance(commands, list) and len(commands) == 1 and isinstance(commands[0], str):
        answer = {**answer, "commands": commands[0]}
    return short_form(answer, "commands")


def handler_rule(rule: Rule, folder: str) -> dict[str, Any] | None:
    """Write a rule with the keys of a failure handler, or return None if those are not enough."""
    is_like_theirs = rule.then == "retry" and rule.limit_of == "rule" and rule.when is None and rule.change is None
    if not is_like_theirs or rule.match.codes_excluded:
        return None
    written = written_fields(rule.match, STEP_RULE) or {"match_all_exit_codes": True}
    repair = rule.repair
    if repair is not None:
        if len(repair.steps) != 1 or repair.steps[0].name != SCRIPT_NAME or repair.on_failure == "next":
            return None
        written["recovery_script"] = _script(repair.steps[0].action, folder)
    written["max_retries"] = rule.limit
    if rule.wait is not None:
        written["backoff"] = backoff(rule.wait)
    if repair is not None and repair.timeout_seconds is not None:
        written["timeout"] = duration(repair.timeout_seconds)
    return written | ({"on_script_failure": "fail"} if repair is not None and repair.on_failure == "fail" else {})


def _script(action: object, folder: str) -> str:
    """The path of a script relative to the file's folder, or the inline script."""
    import os
    import shlex

    if not isinstance(action, Shell):
        return ""
    if action.program == "bash":
        return action.command
    path = os.path.relpath(shlex.split(action.command)[-1], folder)
    return path if path.startswith("../") else f"./{path}"
