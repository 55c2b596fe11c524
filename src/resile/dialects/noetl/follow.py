"""The actions after a step: collected from its keys, then added to the native step."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Node
from resile.dialects.native.nodes import Part, StepPart, items_of
from resile.dialects.noetl.arcs import make_effect
from resile.dialects.noetl.conditions import NOWHERE
from resile.dialects.noetl.keys import ASSERT
from resile.dialects.noetl.tools.sink import read_sink
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.key_tables import read_keys


class Follow(Struct):
    """The actions after a step: its cases, and the rules, effects, arcs and sinks that refer to them by number.

    `attempts` are the effects of its retries. `of_loop` are the cases about a loop as a whole, `whole` the names of the
    sinks that take the result of the whole loop.
    """

    cases: list[dict[str, Any]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    rules: list[Part] = field(default_factory=list)
    arcs: list[Part] = field(default_factory=list)
    sinks: list[Part] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    of_loop: set[int] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)


def repair_keys_for(sinks: list[Part], on_failure: str) -> dict[str, Any]:
    """Build the keys of a rule that runs sinks before it answers."""
    return {"commands": sinks, "on_repair_failure": on_failure} if sinks else {}


def read_sinks(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """Read the sinks of the step itself."""
    for item in items_of(node):
        sink = read_sink(reading, item, f"{reading.owner}_sink{len(follow.sinks) + 1}", None)
        follow.sinks += [sink] if sink is not None else []


def read_assert(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """Read `assert`: the names that must be among the arguments and in the result."""
    fields = read_keys(reading, node, ASSERT)
    for name, _ in fields.get("expects", ()):
        said = f"assert: there is no {name!r} in the arguments"
        follow.effects.append(make_effect("fail", when=f"{name!r} not in args", value=said))
    for name, _ in fields.get("returns", ()):
        text = f"result is not mapping or {name!r} not in result"
        follow.effects.append(make_effect("fail", when=text, value=f"assert: no {name!r} in the result"))


def add_follow(step: StepPart, name: str, transform: dict[str, Any] | None, follow: Follow) -> StepPart:
    """Add the actions after a step to the native step."""
    captured = {name: "value"} if transform is not None else None
    if "workflow" in step and (follow.effects or follow.cases):
        # Cases and effects of a playbook act on its value, so the value must be transformed.
        transform = {}
    return step.replace(
        capture=captured,
        transform=transform,
        cases=follow.cases or None,
        effects=[*follow.effects, *follow.attempts] or None,
        rules=[_add_sinks(rule, follow.sinks) for rule in follow.rules] or None,
        next=follow.arcs or None,
        on_success=Part(NOWHERE, commands=follow.sinks) if follow.sinks else None,
    )


def _add_sinks(rule: Part, sinks: list[Part]) -> Part:
    """Add the sinks of a success to a rule that accepts a result as it is."""
    if rule["then"] != "recovered" or not sinks:
        return rule
    named = {sink["id"]: sink for sink in (*rule.get("commands", ()), *sinks)}
    return rule.replace(**repair_keys_for(list(named.values()), "fail"))
