"""One step of a Visor file: its type, keys and routes become the keys of a native step.

    type -> key table -> action, value and conditions of the step -> rules, actions after a success, items

Calls with arguments, of tools and of workflows need the other steps; they stay in the draft (calls.py).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import Part, StepPart, node_of
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import wrong
from resile.dialects.visor.actions import action_of, timeout_of, transform_of
from resile.dialects.visor.conditions import checks_of, conditions_of
from resile.dialects.visor.keys import STEP_INPUT, STEPS, TYPES, TYPES_REFUSED
from resile.dialects.visor.routes import Routes, rules_of, success_of
from resile.dialects.visor.schemas import OF_ISSUES, Schema, read_schema
from resile.dialects.visor.values import Call, VisorReading
from resile.dialects.visor.workflows import child_of
from resile.errors import shorten

REDUCED = ("log", "memory", "script", "workflow", "noop")
"""Types that run once below a `forEach` by default."""
_NOTHING = {"script": "return null"}
"""An action without output: for `noop` steps with a value, and for steps whose own action has an error."""


class Draft(Struct):
    """A step before its references are resolved: its native keys, and the parts that depend on other steps.

    `before`, `remedy` and `after` are calls that are more than the name of a step. `jumps` are its own targets of
    jumps, without the defaults; `finish_jumps` are those of `on_finish`.
    """

    name: str
    key: Node
    keys: StepPart
    fields: dict[str, Any]
    needs: list[Part]
    when: list[Part] = field(default_factory=list)
    foreach: Part | None = None
    fanout: str = ""
    fanout_key: Scalar | None = None
    before: tuple[Call, ...] = ()
    remedy: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()
    jumps: list[Scalar] = field(default_factory=list)
    finish_jumps: list[Scalar] = field(default_factory=list)


def read_step(reading: VisorReading, name: str, key: Node, node: Mapping) -> Draft:
    """Read the step that a mapping describes, and report its errors."""
    kind = _kind_of(reading, node)
    if not kind:
        return Draft(name, key, StepPart(key, noop=True), {}, [])
    errors = len(reading.report.errors)
    fields = read_keys(reading, node, STEPS[kind])
    _add_event(fields)
    schema = read_schema(reading, fields.get("schema"), for_agent=kind in ("ai", "claude-code"))
    if kind == "workflow":
        action = _child(reading, key, fields) or _NOTHING
    else:
        action = action_of(reading, kind, node, fields, schema)
        action = action if len(reading.report.errors) == errors else _NOTHING
    transform = transform_of(kind, fields, schema)
    checks = _checks(reading, node, fields, schema)
    if kind == "noop" and (checks or transform is not None):
        action, transform = _NOTHING, transform or {}
    _check_keys(reading, kind, name, node, fields)
    rules, failure = rules_of(reading, kind, name, node, fields)
    success, follow = None, Routes()
    if "on_success" in fields:
        success, follow = success_of(reading, fields["on_success"], node.entries["on_success"][0], name)
    foreach, finish = _foreach(reading, node, fields)
    before: tuple[Call, ...] = fields.get("on_init", {}).get("run", ())
    copied = [call.node for call in (*failure.calls, *follow.calls, *before) if call.kind == "step"]
    keys = StepPart(
        key,
        **action,
        rules=rules or None,
        accepts_in_items=True if any(rule["then"] == "tolerate" for rule in rules) else None,
        on_success=success,
        timeout=timeout_of(kind, fields),
        env=fields.get("env") or None,
        capture={name: "value"} if transform is not None else None,
        critical=reading.fields.get("fail_fast") or None,
        transform=transform,
        checks=checks or None,
        tags=fields.get("tags") or None,
        events=fields.get("events") or None,
        group=fields.get("group") or None,
        copies=copied or None,
    )
    return Draft(
        name,
        key,
        keys,
        fields,
        _needs(reading, fields),
        conditions_of(fields, key, gated=not reading.loading and name not in reading.remedies),
        foreach,
        _fanout(kind, fields),
        node.entries["fanout"][0] if "fanout" in node.entries else None,
        before,
        failure.calls,
        follow.calls,
        [*failure.jumps, *follow.jumps],
        [*finish.jumps],
    )


def _checks(reading: VisorReading, node: Mapping, fields: dict[str, Any], schema: Schema) -> list[dict[str, Any]]:
    """The checks of a step's output; a notice where it reviews and none of them can fail it."""
    named = {**reading.conditions, **fields.get("failure_conditions", {})}
    checks = checks_of(fields, named.values(), reading.fields.get("fail_if", ""))
    if schema.name in OF_ISSUES and all(check.get("effect") == "remark" for check in checks):
        message = "an issue of severity `critical` does not fail the run, as it does in Visor"
        reading.report.notice("issues", message, node.entries["schema"][0], hint="`fail_if: criticalIssues > 0` does")
    return checks


def _add_event(fields: dict[str, Any]) -> None:
    """Let a step with a schedule run for that event too."""
    if "schedule" in fields:
        fields["events"] = tuple(dict.fromkeys((*fields.get("events", ()), "schedule")))


def _child(reading: VisorReading, key: Node, fields: dict[str, Any]) -> dict[str, Any] | None:
    """The native keys of a step that calls a workflow; None after a report."""
    target: Node | None = fields.get("workflow")
    if isinstance(target, Scalar) and isinstance(target.value, str):
        return child_of(reading, target, fields.get("args", {}))
    if target is None:
        reading.report.error("value", "a `workflow` step needs `workflow`", key)
    else:
        wrong(reading, target, "the name of a workflow")
    return None


def _kind_of(reading: VisorReading, node: Mapping) -> str:
    """The type of a step, or an empty text after a report."""
    entry = node.entries.get("type")
    if entry is None:
        return "ai"
    given = entry[1]
    if not isinstance(given, Scalar) or not isinstance(given.value, str):
        wrong(reading, given, "the type of a step")
        return ""
    if given.text in TYPES_REFUSED:
        message = f"`{given.text}` steps are not run by Resile: they need {TYPES_REFUSED[given.text]}"
        hint = "a `command` step can call a program that does it"
        reading.report.error("not-run", message, given, hint=hint)
        return ""
    if given.text not in TYPES:
        hint = did_you_mean(given.text, TYPES, "types")
        reading.report.error("type", f"there is no type `{shorten(given.text)}`", given, hint=hint)
        return ""
    return TYPES[given.text]


def _check_keys(reading: VisorReading, kind: str, name: str, node: Mapping, fields: dict[str, Any]) -> None:
    """Refuse keys that are incomplete, or that have no meaning beside others."""
    report = reading.report
    if "on_finish" in fields and not fields.get("forEach"):
        message = f"`{shorten(name)}` has `on_finish` but `forEach` is not true"
        report.error("conflict", message, node.entries["on_finish"][0], hint="`on_success` follows any step")
    if fields.get("reduce") and fields.get("fanout") == "map":
        message = "`reduce: true` and `fanout: map` contradict each other"
        report.error("conflict", message, node.entries["reduce"][0], hint="take `reduce` out")
    if kind == "human-input" and "on_fail" in node.entries:
        message = "a question does not fail: it waits for its answer"
        report.error("conflict", message, node.entries["on_fail"][0], hint="take `on_fail` out")
    if "on_init" in fields and "run" not in fields["on_init"]:
        report.error("value", "`on_init` needs `run`", node.entries["on_init"][0])
    if "inputs" in fields:
        _inputs(reading, fields["inputs"])


def _inputs(reading: VisorReading, node: Node) -> None:
    """Check the inputs that a step names: each must be the workflow's input of the same name, which it sees anyway."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to inputs")
        return
    for name, (key, value) in node.entries.items():
        fields = read_keys(reading, value, STEP_INPUT)
        if fields.get("value", name) != name or name not in reading.inputs:
            message = f"`{shorten(name)}` is no input of the workflow of the same name"
            reading.report.error("input", message, key, hint=did_you_mean(name, reading.inputs, "inputs"))


def _foreach(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> tuple[Part | None, Routes]:
    """The fan-out settings of a producer, and the routes of its `on_finish`."""
    if not fields.get("forEach"):
        return None, Routes()
    on_finish, routes = None, Routes()
    if "on_finish" in fields:
        key = node.entries["on_finish"][0]
        on_finish, routes = success_of(reading, fields["on_finish"], key)
        if routes.calls:
            reading.report.error("run", "`on_finish` can run steps by name only", key)
    at = node.entries["forEach"][0]
    policy = {"on_item_failure": "carry_on"}
    return Part(at, foreach=node_of(True, at), error_policy=policy, on_finish=on_finish), routes


def _fanout(kind: str, fields: dict[str, Any]) -> str:
    """How a step behaves below a `forEach`; `place_below_items` finds out later whether it is."""
    if fields.get("reduce"):
        return "reduce"
    return str(fields.get("fanout", "reduce" if kind in REDUCED else "map"))


def _needs(reading: VisorReading, fields: dict[str, Any]) -> list[Part]:
    """Read needs; `a|b` is one need."""
    result: dict[tuple[str, ...], Part] = {}
    for value, node in fields.get("depends_on", ()):
        names = tuple(dict.fromkeys(part.strip() for part in value.split("|")))
        if "" in names:
            reading.report.error("value", f"`{shorten(value)}` is no list of names with `|` in between", node)
        else:
            result.setdefault(names, Part(node, any_of=names))
    return list(result.values())
