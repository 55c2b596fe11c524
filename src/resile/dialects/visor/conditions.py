"""Conditions of a Visor step: those that decide whether it runs, and those that check its output.

    on, tags, assume, if     -> `when`      all must hold; one that can't be evaluated counts as false
    fail_if, failure_conditions, guarantee, and those of the whole file -> `checks`

A run has one event and some tags: the inputs `event`, `tags` and `exclude_tags`, which a file gets if its steps have
such keys. `all` selects every event; a tagged step runs if the run selects one of its tags. A deselected step is no
part of the run: its dependents neither wait for it nor are skipped with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from resile.dialects.native.nodes import Part
from resile.dialects.reading.diagnostics import Place

# Resile's own code; it gets the events and tags of a step as values.
_EVENTS = "((events) => inputs.event === 'all' || events.includes(inputs.event))"
_TAGS = (
    "((tags) => ((wanted, unwanted) => tags.some((tag) => wanted.includes(tag)) && "
    "!tags.some((tag) => unwanted.includes(tag)))"
    "(...[inputs.tags, inputs.exclude_tags].map((text) => text.split(',').map((part) => part.trim()))))"
)


def conditions_of(fields: dict[str, Any], at: Place, *, gated: bool) -> list[Part]:
    """The conditions for running a step; with `gated`, events and tags count too."""
    found: list[Part] = []
    if gated and fields.get("tags"):
        found.append(Part(at, code=f"{_TAGS}(step.tags)"))
    if gated and "events" in fields:
        found.append(Part(at, code=f"{_EVENTS}(step.events)") if fields["events"] else Part(at, value="false"))
    return [*found, *fields.get("assume", ()), *fields.get("if", ())]


def when_of(conditions: list[Part]) -> Part | None:
    """Combine conditions that must all hold: the first one has the others in `besides`."""
    return conditions[0].replace(besides=conditions[1:] or None) if conditions else None


def is_gated(fields: dict[str, Any]) -> bool:
    """Do events or tags select this step?"""
    return bool(fields.get("tags")) or "events" in fields


def past_gates(group: dict[str, dict[str, Any]]) -> str:
    """Code that is true if one of these steps has an output, or if events and tags deselect all of them."""
    given = " || ".join(f"outputs[{_literal(name)}] !== undefined" for name in group)
    out: list[str] = []
    for fields in group.values():
        gates = [f"{_TAGS}({_literal(fields['tags'])})"] if fields.get("tags") else []
        gates += [f"{_EVENTS}({_literal(fields['events'])})"] if "events" in fields else []
        out.append(f"!({' && '.join(gates) or 'true'})")
    return f"{given} || ({' && '.join(out)})"


def _literal(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def checks_of(fields: dict[str, Any], named: Iterable[Part], remark: str) -> list[dict[str, Any]]:
    """The checks of a step's output, with those that have names; `remark` is the file's own for every step."""
    found: list[dict[str, Any]] = []
    if "fail_if" in fields:
        found.append({"name": "fail_if", "code": fields["fail_if"], "must": False})
    found += named
    found += [{"name": "guarantee", "code": item["code"], "must": True} for item in fields.get("guarantee", ())]
    if remark:
        found.append({"name": "global_fail_if", "code": remark, "must": False, "effect": "remark"})
    return found
