"""Parts of the native tree for what follows a step: conditions, effects, and their collection, `Follow`.

A condition is a mapping of the tree, `{jinja: text}` or `{case: number}`; its `besides` must hold too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part
from resile.dialects.noetl.values import NoetlReading, arguments
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import INVALID
from resile.dialects.reading.values import wrong
from resile.languages.jinja.templates import condition_text, names_in

NOWHERE = Mark(0, 0)
"""The position of nodes that are not in the playbook."""


class Follow(Struct):
    """The actions after a step: its cases, and the rules, effects, arcs and sinks that refer to them by number.

    `attempts` are the effects of its retries, `led` the cases with a `next`. `of_loop` are the cases about a loop as a
    whole, `whole` the names of the sinks that take the result of the whole loop, `otherwise` the `else` of the cases.
    """

    cases: list[dict[str, Any]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    rules: list[Part] = field(default_factory=list)
    arcs: list[Part] = field(default_factory=list)
    sinks: list[Part] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    led: list[Part] = field(default_factory=list)
    of_loop: set[int] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    otherwise: Scalar | None = None


def condition_of(text: str, at: Place, *besides: Part) -> Part:
    """Build a condition that is a template."""
    return Part(at, jinja=text, besides=list(besides) or None)


def condition_of_case(which: str | int, at: Place) -> Part:
    """Build the condition that a case fired, or a retry of this name."""
    return Part(at, case=str(which))


def text_of(condition: Part) -> str:
    """The template of a condition, or the number of its case."""
    return str(condition.get("jinja", condition.get("case", "")))


def all_of(conditions: list[Part] | tuple[Part, ...]) -> Part | None:
    """Join conditions into one; None for an empty list."""
    if not conditions:
        return None
    first, *rest = conditions
    return first.replace(besides=[*first.get("besides", ()), *rest] or None)


def none_of(conditions: Iterable[Part]) -> Part:
    """Build a condition that holds if none of these does."""
    return Part(NOWHERE, none=True, besides=list(conditions))


def is_about_error(when: str) -> bool:
    """Is a condition only about failures?"""
    return "call.error" in when or "error" in names_in(condition_text(when))


def is_about_failure(when: str) -> bool:
    """Is a condition of an arc about the failure of its step?"""
    return "step.failed" in when or is_about_error(when)


def mentions_error(when: str) -> bool:
    """Does a condition name an error, or a value that both successes and failures have?"""
    return is_about_error(when) or bool({"success", "status_code"} & names_in(condition_text(when)))


def make_effect(kind: str, case: int = -1, **fields: Any) -> dict[str, Any]:
    """Build an effect, in the fields of the model's Effect; it follows case number `case`, or every success (-1)."""
    return {"kind": kind, "case": case, **fields}


def read_set(
    reading: NoetlReading, node: Node, case: int = -1, kind: str = "set", place: str = "", **more: Any
) -> list[dict[str, Any]]:
    """Read variables: a mapping, a list of `name` and `value`, or either under `ctx`; `place` is their prefix."""
    found: list[Mapping] = []
    if isinstance(node, Mapping):
        for name, entry in node.entries.items():
            if name in ("ctx", "vars") and isinstance(entry[1], Mapping):
                found.append(entry[1])
            else:
                found.append(Mapping({name: entry}, node.line, node.column))
    elif isinstance(node, Sequence):
        for item in node.items:
            entries = item.entries if isinstance(item, Mapping) else {}
            named = entries["name"][1] if entries.keys() == {"name", "value"} else None
            if isinstance(named, Scalar):
                found.append(Mapping({named.text: entries["value"]}, item.line, item.column))
            else:
                wrong(reading, item, "a variable with `name` and `value`")
    else:
        wrong(reading, node, "variables with their values")
    read = [values for each in found if (values := arguments(reading, each)) is not INVALID]
    return [
        make_effect(kind, case, name=place + _strip_place(name), value=value, **more)
        for values in read
        for name, value in values.items()
    ]


def _strip_place(name: str) -> str:
    for place in ("ctx.", "vars.", "iter."):
        name = name.removeprefix(place)
    return name


def repair_keys_for(sinks: list[Part], on_failure: str) -> dict[str, Any]:
    """Build the keys of a rule that runs sinks before it answers."""
    return {"commands": sinks, "on_repair_failure": on_failure} if sinks else {}
