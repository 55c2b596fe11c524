"""Conditions of a Visor step: those that decide whether it runs, and those that its output must meet.

    on, tags, assume, if     -> Step.when      all must hold, and what can't be evaluated does not
    fail_if, failure_conditions, guarantee, and those of the whole file -> Step.checks

A run is for one event and some tags: the inputs `event`, `tags` and `exclude_tags`, which a file gets when its steps
have such keys. `all` is every event; a tagged step runs where one of its tags is asked for. A step that is left out by
them is no part of the run: who depends on it does not wait for it, and is not skipped with it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.dialects.visor.keys import CONDITION
from resile.dialects.visor.values import code
from resile.model.builtin_actions import Check
from resile.model.rules import Origin
from resile.model.workflow import Condition, Input

# Code of our own: the events and tags of a step come to it as values.
_EVENTS = "((events) => inputs.event === 'all' || events.includes(inputs.event))"
_TAGS = (
    "((tags) => ((wanted, unwanted) => tags.some((tag) => wanted.includes(tag)) && "
    "!tags.some((tag) => unwanted.includes(tag)))"
    "(...[inputs.tags, inputs.exclude_tags].map((text) => text.split(',').map((part) => part.trim()))))"
)
EVENT_GATE = f"{_EVENTS}(step.events)"
TAG_GATE = f"{_TAGS}(step.tags)"
HALTED = "Execution halted: "
"""How the message of a condition begins that ends everything."""


def condition_of(fields: dict[str, Any], origin: Origin, *, gated: bool) -> Condition | None:
    """What must hold before the step, or None; `gated` is whether events and tags decide as well."""
    found: list[Condition] = []
    if gated and fields.get("tags"):
        found.append(Condition(TAG_GATE, "code", origin))
    if gated and "events" in fields:
        found.append(Condition(EVENT_GATE, "code", origin) if fields["events"] else Condition("false", origin=origin))
    found += [*fields.get("assume", ()), *fields.get("if", ())]
    return replace(found[0], besides=tuple(found[1:])) if found else None


def is_gated(fields: dict[str, Any]) -> bool:
    """Do events or tags decide on a step?"""
    return bool(fields.get("tags")) or "events" in fields


def past_gates(group: dict[str, dict[str, Any]]) -> str:
    """Code that holds where one of these steps gave something, or all of them are left out by events and tags."""
    import msgspec

    def literal(value: Any) -> str:
        """Data as code."""
        return msgspec.json.encode(value).decode()

    given = " || ".join(f"outputs[{literal(name)}] !== undefined" for name in group)
    out: list[str] = []
    for fields in group.values():
        gates = [f"{_TAGS}({literal(fields['tags'])})"] if fields.get("tags") else []
        gates += [f"{_EVENTS}({literal(fields['events'])})"] if "events" in fields else []
        out.append(f"!({' && '.join(gates) or 'true'})")
    return f"{given} || ({' && '.join(out)})"


def gate_inputs(reading: Reading, drafted: list[dict[str, Any]], fields: dict[str, Any]) -> dict[str, Input]:
    """The inputs that say for which event and which tags a run is, where steps ask."""
    inputs: dict[str, Input] = {}
    if any("events" in step for step in drafted):
        inputs["event"] = Input(default="all")
    chosen = fields.get("tag_filter", {})
    if chosen or any(step.get("tags") for step in drafted):
        inputs["tags"] = Input(default=",".join(chosen.get("include", ())))
        inputs["exclude_tags"] = Input(default=",".join(chosen.get("exclude", ())))
    for name in inputs.keys() & fields.get("inputs", {}).keys():
        message = f"the input `{name}` says which steps run, and can't be declared"
        reading.report.error("reserved", message, hint="give it another name")
    return inputs


def named_conditions(reading: Reading, node: Node) -> dict[str, Check]:
    """`failure_conditions`: checks by name."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to conditions")
        return {}
    found: dict[str, Check] = {}
    for name, (_, value) in node.entries.items():
        check = _named(reading, name, value)
        if check is not None:
            found[name] = check
    return found


def _named(reading: Reading, name: str, node: Node) -> Check | None:
    """One of them: code, or a mapping."""
    if isinstance(node, Scalar):
        source = code(reading, node)
        return None if source is INVALID else Check(name=name, code=source, must=False)
    fields = read_keys(reading, node, CONDITION)
    if isinstance(node, Mapping) and "condition" not in node.entries:
        reading.report.error("value", f"the failure condition `{name}` needs `condition`", node)
    if "condition" not in fields:
        return None
    message = fields.get("message", "")
    if fields.get("halt_execution"):
        said = f"{HALTED}{message or name}"
        return Check(name=name, code=fields["condition"], must=False, effect="halt", message=said)
    fatal = fields.get("severity", "error") == "error"
    return Check(name=name, code=fields["condition"], must=False, effect="fail" if fatal else "remark", message=message)


def checks_of(reading: Reading, fields: dict[str, Any], of_all: dict[str, Check], remark: str) -> tuple[Check, ...]:
    """What the output of a step must meet; `of_all` and `remark` are what the file says for every step."""
    found: list[Check] = []
    if "fail_if" in fields:
        found.append(Check(name="fail_if", code=fields["fail_if"], must=False))
    own = named_conditions(reading, fields["failure_conditions"]) if "failure_conditions" in fields else {}
    found += {**of_all, **own}.values()
    found += [Check(name="guarantee", code=item.source, must=True) for item in fields.get("guarantee", ())]
    if remark:
        found.append(Check(name="global_fail_if", code=remark, must=False, effect="remark"))
    return tuple(found)
