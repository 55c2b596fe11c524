"""What follows a step, while its keys are read, and how it is written into the step of the native tree."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Node
from resile.dialects.native.nodes import Part, StepPart, items_of
from resile.dialects.noetl.arcs import effect
from resile.dialects.noetl.conditions import NOWHERE
from resile.dialects.noetl.keys import ASSERT
from resile.dialects.noetl.tools.sink import read_sink
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.key_tables import read_keys


class Follow(Struct):
    """What follows a step: its cases, and what refers to them by number. `of_loop` are about a loop as a whole.

    `attempts` is what its retries keep, and for which of its successes they ask for one more attempt. `whole` are the
    names of sinks that take what a loop gave as a whole.
    """

    cases: list[dict[str, Any]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    rules: list[Part] = field(default_factory=list)
    arcs: list[Part] = field(default_factory=list)
    sinks: list[Part] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    of_loop: set[int] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)


def repair_by(sinks: list[Part], on_failure: str) -> dict[str, Any]:
    """The keys of a rule that hands the result of an attempt to sinks first."""
    return {"commands": sinks, "on_repair_failure": on_failure} if sinks else {}


def read_sinks(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """The sinks of the step itself."""
    for item in items_of(node):
        sink = read_sink(reading, item, f"{reading.owner}_sink{len(follow.sinks) + 1}", None)
        follow.sinks += [sink] if sink is not None else []


def read_assert(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """What must be among the arguments and in the result."""
    fields = read_keys(reading, node, ASSERT)
    for name, _ in fields.get("expects", ()):
        said = f"assert: there is no {name!r} in the arguments"
        follow.effects.append(effect("fail", when=f"{name!r} not in args", value=said))
    for name, _ in fields.get("returns", ()):
        text = f"result is not mapping or {name!r} not in result"
        follow.effects.append(effect("fail", when=text, value=f"assert: no {name!r} in the result"))


def followed(step: StepPart, name: str, transform: dict[str, Any] | None, follow: Follow) -> StepPart:
    """A step with what follows it."""
    captured = {name: "value"} if transform is not None else None
    if "workflow" in step and (follow.effects or follow.cases):
        # What follows from a playbook follows from its value, which is looked at once it is there.
        transform = {}
    return step.changed(
        capture=captured,
        transform=transform,
        cases=follow.cases or None,
        effects=[*follow.effects, *follow.attempts] or None,
        rules=[_with_sinks(rule, follow.sinks) for rule in follow.rules] or None,
        next=follow.arcs or None,
        on_success=Part(NOWHERE, commands=follow.sinks) if follow.sinks else None,
    )


def _with_sinks(rule: Part, sinks: list[Part]) -> Part:
    """A rule that takes an attempt as it is, with the sinks that a success has."""
    if rule["then"] != "recovered" or not sinks:
        return rule
    named = {sink["id"]: sink for sink in (*rule.get("commands", ()), *sinks)}
    return rule.changed(**repair_by(list(named.values()), "fail"))
