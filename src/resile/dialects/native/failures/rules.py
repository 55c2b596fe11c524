"""`rules` of a step: its failure rules, written out one by one, for cases without a shorter key.

    rules: [{then: retry, exit_codes: [75], limit: 3, backoff: 5s, commands: [./mend]}, {then: park}]

They are tried in the order in which they are written, before the rules from the step's other keys. A rule with
`commands`, `run` or `run_js` has a repair; so has one with `on_repair_failure`. A name in the list means the rules
of that failure handler.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, items_of
from resile.dialects.native.context import Defaults, NativeReading
from resile.dialects.native.failures.commands import read_commands
from resile.dialects.native.graph.routes import read_routes
from resile.dialects.native.keys.failures import GROWTH, STEP_RULE
from resile.dialects.reading.key_tables import read_mapping
from resile.model.rules import Escalation, Match
from resile.model.workflow import Repair, Rule

_MATCHERS = ("codes", "codes_excluded", "signals", "kinds", "pattern", "types")
_REPAIR = ("commands", "run", "run_js", "timeout_seconds", "on_repair_failure")
_AS_THEY_ARE = ("limit", "limit_of", "when", "wait", "cost", "routing", "retries_anyway", "halts", "match", "origin")


def read_rule(reading: NativeReading, node: Node, within: Defaults) -> Rule | None:
    """Read one rule with all fields of the model."""
    fields = read_mapping(reading, node, STEP_RULE)
    if not isinstance(node, Mapping):
        return None
    if "then" not in node.entries:
        reading.report.error("value", "a rule needs `then`: what follows", node)
    if "then" not in fields:
        return None
    target, calls, transitions = read_routes(reading, fields, within, frozenset(fields.get("by_default", ())))
    jumps = bool(target or transitions or "goto_js" in fields)
    if jumps != (fields["then"] == "goto"):
        hint = "`goto`, `goto_js` or `transitions` says where"
        reading.report.error(
            "conflict", "a rule goes somewhere if it says `then: goto`, and only then", node, hint=hint
        )
    for word, fits in (
        ("halts", fields["then"] == "fail" or fields.get("on_repair_failure") == "fail"),
        ("retries_anyway", fields["then"] == "retry"),
        ("escalate", fields["then"] == "retry"),
    ):
        if word in node.entries and not fits:
            reading.report.error("conflict", f"`{word}` has no meaning in this rule", node.entries[word][0])
    matchers = {field: fields[field] for field in _MATCHERS if field in fields}
    # Front ends leave an unset `match` out, and the encoded rule omits it; rules of native files always have one.
    if matchers or not reading.is_checked:
        fields["match"] = Match(**matchers)
    if node.line:
        fields["origin"] = reading.origin(node)
    return Rule(
        then=fields["then"],
        text=fields.get("text", fields["then"]),
        repair=_repair(reading, fields, calls, within),
        change=Escalation(**read_mapping(reading, fields["escalate"], GROWTH)) if "escalate" in fields else None,
        target=target,
        target_js=fields.get("goto_js", ""),
        transitions=transitions,
        **{field: fields[field] for field in _AS_THEY_ARE if field in fields},
    )


def _repair(reading: NativeReading, fields: dict[str, Any], calls: tuple[str, ...], within: Defaults) -> Repair | None:
    """Read the commands and steps that run before the rule's verdict, if any."""
    if not any(field in fields for field in _REPAIR):
        return None
    items = items_of(fields["commands"]) if "commands" in fields else []
    return Repair(
        steps=read_commands(reading, items, "on_failure", within) if items else (),
        calls=calls,
        calls_js=fields.get("run_js", ""),
        timeout_seconds=fields.get("timeout_seconds"),
        on_failure=fields.get("on_repair_failure", "next"),
    )
