"""Calls with arguments, and calls of tools and workflows: they become separate steps.

    on_init     steps before the step, called STEP.NAME; it sees their outputs under the name of the call
    on_success  commands after the step                  on_fail   commands of its repair

A called step is a copy: it has the same action, with `args`, and keeps only plain retries of its failure rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from resile.dialects.native.nodes import Part, StepPart
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.visor.conditions import when_of
from resile.dialects.visor.step import Draft
from resile.dialects.visor.tools import tool_of
from resile.dialects.visor.values import Call, VisorReading
from resile.dialects.visor.workflows import child_of
from resile.errors import shorten

_NOT_COPIED = ("rules", "accepts_in_items", "on_success", "copies", "args", "aliases")


def place_calls(reading: VisorReading, drafts: dict[str, Draft]) -> dict[str, Draft]:
    """Add the called steps to all drafts, also those that run before others."""
    result: dict[str, Draft] = {}
    for name, draft in drafts.items():
        placed = replace(draft)
        if draft.before:
            _place_before(reading, drafts, placed, result)
        if draft.remedy:
            steps = _commands(reading, drafts, draft.remedy)
            rules = placed.keys["rules"]
            repaired = [rule.replace(commands=steps) if "on_repair_failure" in rule else rule for rule in rules]
            placed.keys = placed.keys.replace(rules=repaired)
        if draft.after and "on_success" in placed.keys:
            steps = _commands(reading, drafts, draft.after)
            placed.keys = placed.keys.replace(on_success=placed.keys["on_success"].replace(commands=steps))
        result[name] = placed
    return result


def _place_before(reading: VisorReading, drafts: dict[str, Draft], draft: Draft, result: dict[str, Draft]) -> None:
    """Add the steps of `on_init` before a step, and make it need them."""
    needs, when = draft.needs, draft.when
    aliases: dict[str, str] = {}
    for call in draft.before:
        called = _step_of_call(reading, drafts, call)
        if called is None:
            continue
        alias = call.alias or call.name
        name = _free_name(f"{draft.name}.{alias}", drafts, result)
        keys = _rename(called.replace(when=None), name, aliases)
        result[name] = Draft(name, call.node, keys, {}, needs, when, fanout=draft.fanout)
        # The first one gets the condition of the step; if that is false, the others are skipped with it.
        needs, when = [Part(call.node, any_of=[name])], []
        aliases[alias] = name
    if aliases:
        draft.keys = draft.keys.replace(aliases=aliases)
        draft.needs, draft.when = [*draft.needs, *needs], when


def _free_name(name: str, *taken: Iterable[str]) -> str:
    """The name, or the name with a number if a step has it already."""
    found, number = name, 1
    while any(found in names for names in taken):
        number += 1
        found = f"{name}-{number}"
    return found


def _commands(reading: VisorReading, drafts: dict[str, Draft], calls: tuple[Call, ...]) -> list[StepPart] | None:
    """Make commands of called steps, which run one after the other."""
    steps: list[StepPart] = []
    aliases: dict[str, str] = {}
    for call in calls:
        called = _step_of_call(reading, drafts, call)
        if called is None:
            continue
        name = _free_name(call.alias or call.name, [step["id"] for step in steps])
        steps.append(_rename(called, name, aliases).replace(id=name, inherit=False))
        aliases[call.alias or call.name] = name
    return steps or None


def _rename(keys: StepPart, name: str, aliases: dict[str, str]) -> StepPart:
    capture = {name: "value"} if "capture" in keys else None
    return keys.replace(capture=capture, aliases=dict(aliases) or None)


def _step_of_call(reading: VisorReading, drafts: dict[str, Draft], call: Call) -> StepPart | None:
    """The step that a call runs, or None after a report."""
    kinds: dict[str, Mapping[str, Any]] = {"step": drafts, "tool": reading.tools, "workflow": reading.workflows}
    known = kinds[call.kind]
    if call.name not in known and not (call.kind == "workflow" and "." in call.name):
        hint = did_you_mean(call.name, known, f"{call.kind}s")
        message = f"there is no {call.kind} `{shorten(call.name)}`"
        reading.report.error(f"unknown-{call.kind}", message, call.node, hint=hint)
        return None
    if call.kind == "tool":
        return tool_of(reading, call)
    if call.kind == "workflow":
        child = child_of(reading, call.node, call.args)
        return None if child is None else StepPart(call.node, **child, capture={call.name: "value"}, transform={})
    draft = drafts[call.name]
    keys = {key: value for key, value in draft.keys.items() if key not in _NOT_COPIED}
    rules = [
        rule for rule in draft.keys.get("rules", ()) if rule["then"] == "retry" and "on_repair_failure" not in rule
    ]
    return StepPart(call.node, **keys, when=when_of(draft.when), rules=rules or None, args=call.args or None)
