"""`spec` of a step: the rules that admit a step when a path reaches it.

    spec: {policy: {admit: {rules: [{when, then: {allow}}, ..., {else: {then: {allow}}}]}}}

The first rule that holds decides. If none holds, the step is admitted only if no rule has `allow: true`. A step that is
not admitted is skipped, and its path leads to `end`.
"""

from __future__ import annotations

from resile.dialects.formats.nodes import Mapping, Node, Sequence
from resile.dialects.native.nodes import Part
from resile.dialects.noetl.arcs import END
from resile.dialects.noetl.conditions import condition_of
from resile.dialects.noetl.keys import ADMIT, ADMIT_ELSE, ADMIT_RULE, ADMIT_THEN, STEP_POLICY, STEP_SPEC
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import wrong
from resile.languages.jinja.templates import expression_of


def read_admission(reading: NoetlReading, node: Node, step: str) -> Part | None:
    """Build the condition under which a step is admitted; None if it always is, or after a report."""
    spec = read_keys(reading, node, STEP_SPEC)
    policy = read_keys(reading, spec["policy"], STEP_POLICY) if "policy" in spec else {}
    if "admit" not in policy:
        return None
    place: Node = policy["admit"]
    rules: Node | None = read_keys(reading, place, ADMIT).get("rules")
    if step == END:
        reading.report.error("end", "`end` is always admitted", place, hint="take `admit` out")
        return None
    if not isinstance(rules, Sequence) or not rules.items:
        wrong(reading, rules or place, "a list of rules")
        return None
    answers: list[tuple[str, bool]] = []
    for item in rules.items:
        found = _read_rule(reading, item, is_last=item is rules.items[-1])
        answers += [found] if found is not None else []
    if len(answers) < len(rules.items):
        return None
    text = "false" if any(allows for _, allows in answers) else "true"
    for condition, allows in reversed(answers):
        text = f"{str(allows).lower()} if ({condition}) else ({text})"
    return condition_of(text, place)


def _read_rule(reading: NoetlReading, node: Node, *, is_last: bool) -> tuple[str, bool] | None:
    """Read one rule: its condition as an expression, and whether it admits; None after a report."""
    fields = read_keys(reading, node, ADMIT_RULE)
    if not isinstance(node, Mapping):
        return None
    if "else" in fields:
        if "when" in fields or "then" in fields or not is_last:
            reading.report.error("conflict", "`else` stands alone, and last", node)
        fields = {**read_keys(reading, fields["else"], ADMIT_ELSE), "when": "true"}
    if "when" not in fields or "then" not in fields:
        if not node.entries.keys() & {"else"} and not {"when", "then"} <= node.entries.keys():
            reading.report.error("value", "a rule needs `when` and `then`, or `else`", node)
        return None
    then = read_keys(reading, fields["then"], ADMIT_THEN)
    condition = expression_of(fields["when"])
    if not condition or "allow" not in then:
        message = "the condition must be one expression" if not condition else "`then` needs `allow`"
        reading.report.error("value", message, node)
        return None
    return condition, then["allow"]
