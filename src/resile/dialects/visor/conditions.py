"""Conditions of a Visor step: those that decide whether it runs, and those that check its output.

    on, tags, assume, if     -> `when`      all must hold; one that can't be evaluated counts as false
    fail_if, failure_conditions, guarantee, and those of the whole file -> `checks`

A run has one event and some tags: the inputs `event`, `tags` and `exclude_tags`, which a file gets if its steps have
such keys. `all` selects every event; a tagged step runs if the run selects one of its tags. A deselected step is no
part of the run: its dependents neither wait for it nor are skipped with it.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import Part
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.dialects.visor.keys import CONDITION
from resile.dialects.visor.values import code

# Resile's own code; it gets the events and tags of a step as values.
_EVENTS = "((events) => inputs.event === 'all' || events.includes(inputs.event))"
_TAGS = (
    "((tags) => ((wanted, unwanted) => tags.some((tag) => wanted.includes(tag)) && "
    "!tags.some((tag) => unwanted.includes(tag)))"
    "(...[inputs.tags, inputs.exclude_tags].map((text) => text.split(',').map((part) => part.trim()))))"
)
EVENT_GATE = f"{_EVENTS}(step.events)"
TAG_GATE = f"{_TAGS}(step.tags)"
HALTED = "Execution halted: "
"""The start of the message of a condition that stops the whole run."""
Checks = dict[str, dict[str, Any]]
"""Native checks by name."""


def conditions_of(fields: dict[str, Any], at: Place, *, gated: bool) -> list[Part]:
    """The conditions for running a step; with `gated`, events and tags count too."""
    found: list[Part] = []
    if gated and fields.get("tags"):
        found.append(Part(at, code=TAG_GATE))
    if gated and "events" in fields:
        found.append(Part(at, code=EVENT_GATE) if fields["events"] else Part(at, value="false"))
    return [*found, *fields.get("assume", ()), *fields.get("if", ())]


def when_of(conditions: list[Part]) -> Part | None:
    """Combine conditions that must all hold: the first one has the others in `besides`."""
    return conditions[0].replace(besides=conditions[1:] or None) if conditions else None


def is_gated(fields: dict[str, Any]) -> bool:
    """Do events or tags select this step?"""
    return bool(fields.get("tags")) or "events" in fields


def past_gates(group: dict[str, dict[str, Any]]) -> str:
    """Code that is true if one of these steps has an output, or if events and tags deselect all of them."""
    import msgspec

    def literal(value: Any) -> str:
        """Encode data as code."""
        return msgspec.json.encode(value).decode()

    given = " || ".join(f"outputs[{literal(name)}] !== undefined" for name in group)
    out: list[str] = []
    for fields in group.values():
        gates = [f"{_TAGS}({literal(fields['tags'])})"] if fields.get("tags") else []
        gates += [f"{_EVENTS}({literal(fields['events'])})"] if "events" in fields else []
        out.append(f"!({' && '.join(gates) or 'true'})")
    return f"{given} || ({' && '.join(out)})"


def gate_inputs(reading: Reading, steps: list[dict[str, Any]], fields: dict[str, Any], at: Place) -> dict[str, Part]:
    """The inputs that select event and tags, if steps use them."""
    inputs: dict[str, Part] = {}
    if any("events" in step for step in steps):
        inputs["event"] = Part(at, type="text", default="all")
    chosen = fields.get("tag_filter", {})
    if chosen or any(step.get("tags") for step in steps):
        inputs["tags"] = Part(at, type="text", default=",".join(chosen.get("include", ())))
        inputs["exclude_tags"] = Part(at, type="text", default=",".join(chosen.get("exclude", ())))
    for name in inputs.keys() & fields.get("inputs", {}).keys():
        message = f"the input `{name}` says which steps run, and can't be declared"
        reading.report.error("reserved", message, hint="give it another name")
    return inputs


def named_conditions(reading: Reading, node: Node) -> Checks:
    """Read `failure_conditions`: checks by name."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to conditions")
        return {}
    found: Checks = {}
    for name, (_, value) in node.entries.items():
        check = _read_condition(reading, name, value)
        if check is not None:
            found[name] = check
    return found


def _read_condition(reading: Reading, name: str, node: Node) -> dict[str, Any] | None:
    """Read one failure condition: code, or a mapping."""
    if isinstance(node, Scalar):
        source = code(reading, node)
        return None if source is INVALID else {"name": name, "code": source, "must": False}
    fields = read_keys(reading, node, CONDITION)
    if isinstance(node, Mapping) and "condition" not in node.entries:
        reading.report.error("value", f"the failure condition `{name}` needs `condition`", node)
    if "condition" not in fields:
        return None
    message = fields.get("message", "")
    effect = "fail" if fields.get("severity", "error") == "error" else "remark"
    if fields.get("halt_execution"):
        effect, message = "halt", f"{HALTED}{message or name}"
    return {"name": name, "code": fields["condition"], "must": False, "effect": effect, "message": message}


def checks_of(reading: Reading, fields: dict[str, Any], of_all: Checks, remark: str) -> list[dict[str, Any]]:
    """The checks of a step's output; `of_all` and `remark` are the file's checks for every step."""
    found: list[dict[str, Any]] = []
    if "fail_if" in fields:
        found.append({"name": "fail_if", "code": fields["fail_if"], "must": False})
    own = named_conditions(reading, fields["failure_conditions"]) if "failure_conditions" in fields else {}
    found += {**of_all, **own}.values()
    found += [{"name": "guarantee", "code": item["code"], "must": True} for item in fields.get("guarantee", ())]
    if remark:
        found.append({"name": "global_fail_if", "code": remark, "must": False, "effect": "remark"})
    return found
