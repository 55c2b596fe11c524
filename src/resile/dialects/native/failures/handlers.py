"""Failure handlers: named rules that steps share; and the rule that requests more resources.

    failure_handlers: {solver: {rules: [{exit_codes: [10], recovery_script: ./fix.sh, max_retries: 3}]}}

A rule answers by a retry: the engine reserves it, runs the script, then the step again. Rules for listed failures come
before those that match all, whatever their order in the file.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.context import Defaults, NativeReading
from resile.dialects.native.keys.failures import ESCALATE, FAILURE_HANDLER, RULE
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, read_mapping
from resile.dialects.reading.values import name_problem, non_empty, text, wrong
from resile.errors import shorten
from resile.model.failure import Kind
from resile.model.rules import Escalation, Match, Origin
from resile.model.workflow import Repair, Resources, Rule, Shell, Step

RETRIES_DEFAULT = 3
ROUNDS_DEFAULT = 3
SCRIPT_NAME = "recovery_script"
_MATCHERS = {"codes": "exit_codes", "signals": "signals", "kinds": "kinds", "pattern": "pattern", "types": "types"}
_PATH = r"[\w.@%+,-]*(?:/[\w.@%+,-]+)+|[\w@%+,-][\w.@%+,-]*\.sh"


def read_handlers(reading: NativeReading, node: Node) -> dict[str, tuple[Rule, ...]]:
    """Read the rules of all failure handlers, by name."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to rules")
        return {}
    result: dict[str, tuple[Rule, ...]] = {}
    for name, (key, value) in node.entries.items():
        problem = name_problem(name)
        if problem and not reading.is_checked:
            reading.report.error("name", f"the name `{shorten(name)}` {problem}", key)
        rules = read_mapping(reading, value, FAILURE_HANDLER).get("rules")
        if isinstance(rules, Sequence) and rules.items:
            compiled = [rule for item in rules.items if (rule := _rule(reading, name, item)) is not None]
            result[name] = tuple(sorted(compiled, key=lambda rule: rule.match == Match()))
        elif isinstance(value, Mapping):
            if not reading.is_checked:
                reading.report.error("value", f"the failure handler `{shorten(name)}` needs a list of `rules`", key)
            result[name] = ()
    return result


def _rule(reading: Reading, name: str, node: Node) -> Rule | None:
    """Read one rule of a failure handler; one with `then` is read like the `rules` of a step."""
    if isinstance(node, Mapping) and "then" in node.entries and isinstance(reading, NativeReading):
        from resile.dialects.native.failures.rules import read_rule

        return read_rule(reading, node, Defaults())
    fields = read_mapping(reading, node, RULE)
    if not isinstance(node, Mapping):
        return None
    match = Match(**{field: fields[field] for field in _MATCHERS if field in fields})
    matchers = [word for word in _MATCHERS.values() if word in node.entries]
    if fields.get("match_all_exit_codes") and matchers:
        message = f"`match_all_exit_codes` and `{matchers[0]}` contradict each other"
        reading.report.error("conflict", message, node.entries["match_all_exit_codes"][0])
    elif not fields.get("match_all_exit_codes") and match == Match():
        hint = "list `exit_codes`, `signals`, `kinds` or a `pattern`, or say `match_all_exit_codes: true`"
        reading.report.error("value", "this rule matches no failure", node, hint=hint)
    repair = _script(reading, node, fields)
    shown = [
        f"{word} {_describe_matcher(getattr(match, field))}"
        for field, word in _MATCHERS.items()
        if getattr(match, field)
    ]
    return Rule(
        then="retry",
        text=f"failure_handler {name}: {', '.join(shown) or 'every failure'}",
        match=match,
        limit=fields.get("max_retries", RETRIES_DEFAULT),
        wait=fields.get("wait"),
        repair=repair,
        origin=Origin(node.line, node.column),
    )


def _describe_matcher(values: Any) -> str:
    return values if isinstance(values, str) else " ".join(str(value) for value in values)


def _script(reading: Reading, node: Mapping, fields: dict[str, Any]) -> Repair | None:
    """Read the recovery script as a repair: a path relative to the file, or inline bash."""
    if "recovery_script" not in fields:
        for word in ("timeout", "on_script_failure"):
            if word in node.entries:
                message = f"`{word}` has no meaning without `recovery_script`"
                reading.report.error("conflict", message, node.entries[word][0])
        return None
    source: Node = fields["recovery_script"]
    script = non_empty(text, "`recovery_script`")(reading, source)
    if script is INVALID or not isinstance(source, Scalar):
        return None
    import re

    if re.fullmatch(_PATH, script):
        import os
        from shlex import quote

        action = Shell(f"bash {quote(os.path.join(reading.source.folder, script))}")
    else:
        action = Shell(script, "bash")
        if "${" in script:
            reading.in_repair = True
            reading.refers(source, "bash")
            reading.in_repair = False
    step = Step(name=SCRIPT_NAME, action=action, origin=Origin(source.line, source.column))
    ends = fields.get("on_script_failure") == "fail"
    return Repair(steps=(step,), timeout_seconds=fields.get("timeout_seconds"), on_failure="fail" if ends else "ignore")


def handed_over(rules: tuple[Rule, ...], inner: Defaults) -> tuple[Rule, ...]:
    """Bind the rules to one step: their scripts run in its folder and environment."""
    if not inner.env and not inner.working_dir:
        return rules
    result: list[Rule] = []
    for rule in rules:
        repair = rule.repair
        if repair is not None:
            steps = tuple(replace(step, env=inner.env, working_dir=inner.working_dir) for step in repair.steps)
            repair = replace(repair, steps=steps)
        result.append(replace(rule, repair=repair))
    return tuple(result)


def read_escalation(reading: Reading, node: Node, resources: Resources) -> list[Rule]:
    """Read the rule that retries with more memory after oom and with more time after a timeout."""
    fields = read_mapping(reading, node, ESCALATE)
    if not isinstance(node, Mapping):
        return []
    if not resources.memory_bytes and resources.runtime_seconds is None:
        hint = "say in `resources` what the first attempt has"
        reading.report.error("conflict", "`escalate` has neither `memory` nor `runtime` to start from", node, hint=hint)
    rounds = fields.pop("rounds", ROUNDS_DEFAULT)
    change = Escalation(**fields)
    match, where = Match(kinds=(Kind.OOM, Kind.TIMEOUT)), Origin(node.line, node.column)
    shown = f"escalate x{change.factor:g}"
    return [Rule(then="retry", text=shown, match=match, limit=rounds, change=change, origin=where)]
