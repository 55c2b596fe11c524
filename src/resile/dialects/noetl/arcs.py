"""`next`: the arcs from a step, in every form that playbooks use.

    next: name     [name, ...]     [{step, when, args}, ...]     [{when, then: [...]}, ..., {else: [...]}]
    next: {spec: {mode: exclusive | inclusive}, arcs: [{step, when, args}]}

In a list, every arc whose condition holds is taken, and `else` if none before it holds. In `arcs`, only the first is
taken, unless they are inclusive. `end` is the last step, in capitals or not.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, items_of
from resile.dialects.noetl.conditions import NOWHERE, all_of, condition_of, none_of, text_of
from resile.dialects.noetl.keys import ARC, NEXT, NEXT_SPEC
from resile.dialects.noetl.values import NoetlReading, arguments
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.suggestions import did_you_mean
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


class Given(Struct, frozen=True):
    """The case and the conditions above an arc: `when` must hold, `unless` must not."""

    case: int = -1
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


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
    same = [other for other in reading.names if other.lower() == name.lower() == "start"]
    if same:
        return same[0]
    hint = did_you_mean(name, [*reading.names, END], "steps")
    reading.report.error("unknown-step", f"there is no step `{shorten(name)}`", node, hint=hint)
    return ""


def read_next(reading: NoetlReading, node: Node, besides: tuple[Part, ...] = (), given: Given = Given()) -> Arcs:
    """Read the arcs of a `next`; each is taken only if the conditions `besides` hold too."""
    found = Arcs()
    if isinstance(node, Mapping):
        if "arcs" in node.entries or "spec" in node.entries:
            _read_spec(reading, node, found)
            listed = node.entries.get("arcs")
            node = listed[1] if listed is not None else Sequence([], node.line, node.column)
        else:
            node = Sequence([node], node.line, node.column)
    for item in items_of(node):
        if isinstance(item, Mapping):
            _read_arc(reading, item, besides, given, found)
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


def _read_spec(reading: NoetlReading, node: Mapping, found: Arcs) -> None:
    """Read the mode of the arcs."""
    fields = read_keys(reading, node, NEXT)
    for word in node.entries.keys() - {"spec", "arcs", "desc"}:
        if word in NEXT.keys:
            message = f"`{word}` means nothing beside `arcs`"
            reading.report.error("conflict", message, node.entries[word][0], hint="write it in one of the `arcs`")
    spec: Node | None = fields.get("spec")
    mode = read_keys(reading, spec, NEXT_SPEC).get("mode", "exclusive") if spec is not None else "exclusive"
    found.is_exclusive = mode == "exclusive"


def _read_arc(reading: NoetlReading, node: Mapping, besides: tuple[Part, ...], given: Given, found: Arcs) -> None:
    """Read one entry of a list: an arc, or a condition with the arcs under it."""
    typo = next((name for name in node.entries if name.startswith("-") and name[1:] in ARC.keys), "")
    if typo:
        key = node.entries[typo][0]
        hint = f"write `- {typo[1:]}: …`, with a blank after the dash"
        reading.report.error("unknown-key", f"`{typo}` is no key", key, hint=hint)
        return
    fields = read_keys(reading, node, ARC)
    before = tuple(text_of(condition) for condition in found.asked)
    if "else" in fields:
        if {"when", "then", "step", "args", "set"} & fields.keys():
            reading.report.error("conflict", "`else` stands alone", node.entries["else"][0])
        under = Given(given.case, given.when, (*given.unless, *before))
        inner = read_next(reading, fields["else"], (*besides, none_of(found.asked)), under)
        found.arcs += inner.arcs
        found.effects += inner.effects
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
    held = tuple(text_of(condition) for condition in own)
    under = Given(given.case, (*given.when, *held), (*given.unless, *(before if found.is_exclusive else ())))
    if "set" in fields:
        found.effects += _read_set_of_arc(reading, fields["set"], under)
    args = fields.get("args", {})
    if "then" in fields:
        inner = read_next(reading, fields["then"], (*besides, *own), under)
        found.arcs += add_args(inner.arcs, args)
        found.effects += inner.effects
    elif name := target_of(reading, fields["step"]):
        found.arcs.append(arc_to(name, all_of((*besides, *own)), args))


def add_args(arcs: list[Part], args: dict[str, Any]) -> list[Part]:
    """Add arguments to arcs that have none of the same name."""
    return [arc.replace(args={**args, **arc.get("args", {})} or None) for arc in arcs]


def _read_set_of_arc(reading: NoetlReading, node: Node, under: Given) -> list[dict[str, Any]]:
    """Read the variables that an arc sets when it is taken."""
    texts = [expression_of(text) for text in (*under.when, *under.unless)]
    if not all(texts):
        message = "`set` stands under a condition that is no single expression"
        reading.report.error("value", message, node, hint="write the condition as one `{{ … }}`")
        return []
    when, unless = texts[: len(under.when)], texts[len(under.when) :]
    return read_set(
        reading,
        node,
        under.case,
        " and ".join(f"({text})" for text in when),
        unless=" or ".join(f"({text})" for text in unless),
    )


def read_set(
    reading: NoetlReading,
    node: Node,
    case: int = -1,
    when: str = "",
    kind: str = "set",
    unless: str = "",
    place: str = "",
) -> list[dict[str, Any]]:
    """Read variables: a mapping, a list of `name` and `value`, or either under `ctx`; `place` is their prefix."""
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
    return [
        make_effect(kind, case, name=place + _strip_place(name), value=value, when=when, unless=unless)
        for name, value in pairs
    ]


def make_effect(kind: str, case: int = -1, **fields: Any) -> dict[str, Any]:
    """Build an effect, in the fields of the model's Effect; it follows case number `case`, or every success (-1)."""
    return {"kind": kind, "case": case, **fields}


def _strip_place(name: str) -> str:
    """Remove the prefix by which newer playbooks name the place of a variable."""
    for place in ("ctx.", "vars.", "iter."):
        name = name.removeprefix(place)
    return name
