"""`next`: the arcs from a step, in every form that playbooks use.

    next: name     [name, ...]     [{step, when, args}, ...]     [{when, then: [...]}, ..., {else: [...]}]
    next: {when, then: [...], else: [...]}
    next: {spec: {mode: exclusive | inclusive}, arcs: [{step, when, args}]}

In a list, every arc whose condition holds is taken, and `else` if none before it holds. In `arcs`, only the first is
taken, unless they are inclusive. `end` is the last step, in capitals or not.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, is_null, items_of
from resile.dialects.noetl.follow import NOWHERE, all_of, condition_of, none_of, read_set, text_of
from resile.dialects.noetl.keys import ARC, NEXT
from resile.dialects.noetl.values import NoetlReading, refuse_keys
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.templates import expression_of

END = "end"


class Arcs(Struct):
    """Arcs with their mode, and the variables that they set when taken; `asked` are the conditions so far."""

    arcs: list[Part] = field(default_factory=list)
    is_exclusive: bool = False
    effects: list[dict[str, Any]] = field(default_factory=list)
    asked: list[Part] = field(default_factory=list)


def target_of(reading: NoetlReading, node: Node) -> str:
    """Find the step that a node names; an empty text after a report."""
    if not isinstance(node, Scalar) or node.value is None:
        wrong(reading, node, "the name of a step")
        return ""
    name = node.text.strip()
    if name.lower() == END or (reading.final and name == reading.final):
        return END
    if name in reading.names:
        return name
    for other in reading.names:
        if other.lower() == name.lower() == "start":
            return other
    hint = did_you_mean(name, [*reading.names, END], "steps")
    reading.report.error("unknown-step", f"there is no step `{shorten(name)}`", node, hint=hint)
    return ""


def read_next(reading: NoetlReading, node: Node, besides: tuple[Part, ...] = (), above: tuple[Part, ...] = ()) -> Arcs:
    """Read the arcs of a `next`; each is taken only if `besides` hold too, and sets variables only if `above` do."""
    found = Arcs()
    if is_null(node):
        return found
    if isinstance(node, Mapping):
        if "arcs" in node.entries or "spec" in node.entries:
            fields = read_keys(reading, node, NEXT)
            alone = node.entries.keys() & (NEXT.keys.keys() - {"spec", "arcs", "desc"})
            refuse_keys(reading, node, alone, "means nothing beside `arcs`", "write it in one of the `arcs`")
            found.is_exclusive = fields.get("spec", {}).get("mode", "exclusive") == "exclusive"
            node = fields.get("arcs", Sequence([], node.line, node.column))
        else:
            node = Sequence([node], node.line, node.column)
    for item in items_of(node):
        if isinstance(item, Mapping):
            _read_arc(reading, item, besides, above, found)
        elif name := target_of(reading, item):
            found.arcs.append(arc_to(name, all_of(besides)))
    if found.is_exclusive:
        found.arcs = _make_exclusive(found.arcs)
    return found


def arc_to(name: str, when: Part | None, args: dict[str, Any] | None = None) -> Part:
    """Build an arc to a step."""
    return Part(when or NOWHERE, step=name, when=when, args=args or None)


def _make_exclusive(arcs: list[Part]) -> list[Part]:
    """Add to each arc that those before it do not hold, so that only the first is taken."""
    found: list[Part] = []
    before: list[Part] = []
    for arc in arcs:
        own = [arc["when"]] if "when" in arc else []
        found.append(arc.replace(when=all_of([*own, *([none_of(before)] if before else [])])))
        # No arc after one without a condition can be taken; they stay, so that the model shows the whole file.
        before = [*before, *own] if own else [condition_of("true", NOWHERE)]
    return found


def _read_arc(
    reading: NoetlReading, node: Mapping, besides: tuple[Part, ...], above: tuple[Part, ...], found: Arcs
) -> None:
    """Read one entry of a list: an arc, or a condition with the arcs under it."""
    typo = next((name for name in node.entries if name.startswith("-") and name[1:] in ARC.keys), "")
    if typo:
        key = node.entries[typo][0]
        hint = f"write `- {typo[1:]}: …`, with a blank after the dash"
        reading.report.error("unknown-key", f"`{typo}` is no key", key, hint=hint)
        return
    fields = read_keys(reading, node, ARC)
    no_other = none_of(found.asked)
    if "else" in fields and "when" not in node.entries:
        if {"then", "step", "args", "data", "set"} & fields.keys():
            reading.report.error("conflict", "`else` stands alone, or beside `when`", node.entries["else"][0])
        _read_else(reading, fields["else"], (*besides, no_other), (*above, no_other), found)
        return
    own: tuple[Part, ...] = ()
    if "when" in node.entries:
        if "when" not in fields:
            return
        own = (condition_of(fields["when"], node.entries["when"][1]),)
        found.asked.extend(own)
    elif found.is_exclusive:
        # No arc after it can be taken.
        found.asked.append(condition_of("true", NOWHERE))
    if ("then" in fields) == ("step" in fields):
        reading.report.error("value", "an arc needs `step`, or `when` and `then`", node)
        return
    if "else" in fields:
        others = (none_of(own), no_other) if found.is_exclusive else (none_of(own),)
        _read_else(reading, fields["else"], (*besides, none_of(own)), (*above, *others), found)
    above = (*above, *own, no_other) if found.is_exclusive else (*above, *own)
    if "set" in fields:
        found.effects += _read_set_of_arc(reading, fields["set"], above)
    args = {**fields.get("args", {}), **fields.get("data", {})}
    if "then" in fields:
        inner = read_next(reading, fields["then"], (*besides, *own), above)
        found.arcs += add_args(inner.arcs, args)
        found.effects += inner.effects
    elif name := target_of(reading, fields["step"]):
        found.arcs.append(arc_to(name, all_of((*besides, *own)), args))


def _read_else(
    reading: NoetlReading, node: Node, besides: tuple[Part, ...], above: tuple[Part, ...], found: Arcs
) -> None:
    """Read the arcs that are taken if conditions before them do not hold."""
    inner = read_next(reading, node, besides, above)
    found.arcs += inner.arcs
    found.effects += inner.effects


def add_args(arcs: list[Part], args: dict[str, Any]) -> list[Part]:
    """Add arguments to arcs that have none of the same name."""
    return [arc.replace(args={**args, **arc.get("args", {})} or None) for arc in arcs]


def _read_set_of_arc(reading: NoetlReading, node: Node, above: tuple[Part, ...]) -> list[dict[str, Any]]:
    """Read the variables that an arc sets when it is taken."""
    case, when, unless = -1, [], []
    for condition in above:
        if "case" in condition:
            case = int(condition["case"])
        elif "none" in condition:
            unless += [expression_of(text_of(other)) for other in condition["besides"]]
        else:
            when.append(expression_of(text_of(condition)))
    if not all((*when, *unless)):
        message = "`set` stands under a condition that is no single expression"
        reading.report.error("value", message, node, hint="write the condition as one `{{ … }}`")
        return []
    joined = {"when": " and ".join(f"({text})" for text in when), "unless": " or ".join(f"({text})" for text in unless)}
    return read_set(reading, node, case, of_arc=True, **joined)
