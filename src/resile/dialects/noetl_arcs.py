"""`next`: where a path goes on, in every form in which playbooks write it.

    next: name     [name, ...]     [{step, when, args}, ...]     [{when, then: [...]}, ..., {else: [...]}]
    next: {spec: {mode: exclusive | inclusive}, arcs: [{step, when, args}]}

All arcs of a list whose condition holds are taken, `else` where none before it holds; of `arcs` only the first, unless
they are inclusive. `end` is the last step, however it is written.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.base import INVALID, did_you_mean
from resile.dialects.native_values import wrong
from resile.dialects.noetl_keys import ARC, NEXT, NEXT_SPEC
from resile.dialects.noetl_values import NoetlReading, arguments, items
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, shorten
from resile.dialects.visor_values import read_keys
from resile.model.inside import Effect
from resile.model.rules import Origin
from resile.model.workflow import Arc, Condition

END = "end"


class Arcs(Struct):
    """Arcs with their mode, and the variables that are set where one is taken."""

    arcs: list[Arc] = field(default_factory=list)
    is_exclusive: bool = False
    effects: list[Effect] = field(default_factory=list)


def target_of(reading: NoetlReading, node: Node) -> str:
    """The step that a node names, or an empty text after a report."""
    if not isinstance(node, Scalar) or node.value is None:
        wrong(reading, node, "the name of a step")
        return ""
    name = node.text.strip()
    if name.lower() == END:
        return END
    if name in reading.names:
        return name
    same = [other for other in reading.names if other.lower() == name.lower() == "start"]
    if same:
        return same[0]
    hint = did_you_mean(name, [*reading.names, END], "steps")
    reading.report.error("unknown-step", f"there is no step `{shorten(name)}`", node, hint=hint)
    return ""


def all_of(conditions: tuple[Condition, ...]) -> Condition | None:
    """One condition for several."""
    if not conditions:
        return None
    first, *rest = conditions
    return Condition(first.source, first.language, first.origin, (*first.besides, *rest))


def none_of(conditions: tuple[Condition, ...]) -> Condition:
    """A condition that holds where none of these does."""
    return Condition("", "none", Origin(), conditions)


def read_next(reading: NoetlReading, node: Node, besides: tuple[Condition, ...] = ()) -> Arcs:
    """The arcs of a `next`; each holds only where those besides it do."""
    found = Arcs()
    if isinstance(node, Mapping):
        if "arcs" in node.entries or "spec" in node.entries:
            _read_spec(reading, node, found)
            given = node.entries.get("arcs")
            node = given[1] if given is not None else Sequence([], node.line, node.column)
        else:
            node = Sequence([node], node.line, node.column)
    asked: list[Condition] = []
    for item in items(node):
        if isinstance(item, Mapping):
            _read_arc(reading, item, besides, asked, found)
        elif name := target_of(reading, item):
            found.arcs.append(Arc(name, all_of(besides)))
    return found


def _read_spec(reading: NoetlReading, node: Mapping, found: Arcs) -> None:
    """How arcs are chosen."""
    fields = read_keys(reading, node, NEXT)
    spec: Node | None = fields.get("spec")
    mode = read_keys(reading, spec, NEXT_SPEC).get("mode", "exclusive") if spec is not None else "exclusive"
    found.is_exclusive = mode == "exclusive"


def _read_arc(
    reading: NoetlReading, node: Mapping, besides: tuple[Condition, ...], asked: list[Condition], found: Arcs
) -> None:
    """One entry of a list: an arc, or a condition with the arcs behind it."""
    typo = next((name for name in node.entries if name.startswith("-") and name[1:] in ARC.keys), "")
    if typo:
        key = node.entries[typo][0]
        hint = f"write `- {typo[1:]}: …`, with a blank after the dash"
        reading.report.error("unknown-key", f"`{typo}` is no key", key, hint=hint)
        return
    fields = read_keys(reading, node, ARC)
    args = fields.get("args", {})
    if "else" in fields:
        if "when" in fields or "then" in fields or "step" in fields:
            reading.report.error("conflict", "`else` stands alone", node.entries["else"][0])
        for arc in read_next(reading, fields["else"], (*besides, none_of(tuple(asked)))).arcs:
            found.arcs.append(arc)
        return
    own: tuple[Condition, ...] = ()
    if "when" in node.entries:
        if "when" not in fields:
            return
        where = node.entries["when"][1]
        own = (Condition(fields["when"], "jinja", Origin(where.line, where.column)),)
        asked.extend(own)
    if ("then" in fields) == ("step" in fields):
        reading.report.error("value", "an arc needs `step`, or `when` and `then`", node)
        return
    if "set" in fields:
        found.effects += read_set(reading, fields["set"], when=own[0].source if own else "")
    if "then" in fields:
        inner = read_next(reading, fields["then"], (*own, *besides))
        found.arcs += [Arc(arc.step, arc.when, {**args, **arc.args}) for arc in inner.arcs]
    elif name := target_of(reading, fields["step"]):
        found.arcs.append(Arc(name, all_of((*besides, *own)), args))


def read_set(reading: NoetlReading, node: Node, case: int = -1, when: str = "", kind: Any = "set") -> list[Effect]:
    """Variables: a mapping, a list of `name` and `value`, or either of them under `ctx`."""
    pairs: list[tuple[str, Any]] = []
    if isinstance(node, Sequence):
        for item in node.items:
            entries = item.entries if isinstance(item, Mapping) else {}
            named = entries.get("name")
            if named is None or "value" not in entries or len(entries) > 2 or not isinstance(named[1], Scalar):
                wrong(reading, item, "a variable with `name` and `value`")
                continue
            value = arguments(reading, Mapping({"value": entries["value"]}, item.line, item.column))
            pairs += [(named[1].text, value["value"])] if value is not INVALID else []
    elif isinstance(node, Mapping):
        for name, (_, value) in node.entries.items():
            if name in ("ctx", "vars") and isinstance(value, Mapping):
                read = arguments(reading, value)
                pairs += list(read.items()) if read is not INVALID else []
            else:
                read = arguments(reading, Mapping({name: node.entries[name]}, node.line, node.column))
                pairs += list(read.items()) if read is not INVALID else []
    else:
        wrong(reading, node, "variables with their values")
    return [Effect(kind=kind, name=_plain(name), value=value, case=case, when=when) for name, value in pairs]


def _plain(name: str) -> str:
    """The name of a variable without the place in which newer playbooks keep it."""
    for place in ("ctx.", "vars.", "iter."):
        name = name.removeprefix(place)
    return name
