"""Edges between steps: names become needs and arcs, list order becomes needs, cycles are refused.

An unknown name is reported at once; inside the items of a fan-out it is reported once all outer names are known, so
that the message can say whether the step exists elsewhere.

All functions are iterative and linear in steps and edges: a chain of 100,000 steps needs no deep stack.
"""

from __future__ import annotations

from collections import abc

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Scalar, Sequence
from resile.dialects.native.context import How, NativeReading, Needed, Needs, StepDraft, UnknownName
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.errors import shorten
from resile.model.workflow import Arc, Need, Step

CYCLE_STEPS_SHOWN = 50
SHARED_NEEDS_MIN = 8


def read_needs(reading: NativeReading, values: tuple[str | Need, ...], nodes: list[Scalar | Mapping]) -> Needs:
    """Read needs; `a|b` is one need.

    Neighbouring steps of a large file often have the same needs. Identical needs are one object, and so are identical
    long lists of them: one check covers all steps that share it.
    """
    known = reading.need_lists.get(values)
    if known is not None:
        return Needed(known, nodes)
    result: list[tuple[Need, Scalar | Mapping]] = []
    seen: set[tuple[str, ...]] = set()
    for value, node in zip(values, nodes, strict=True):
        if isinstance(value, Need):
            result.append((value, node))
            continue
        need = reading.needs.get(value)
        if need is None:
            names = tuple(part.strip() for part in value.split("|")) if "|" in value else (value.strip(),)
            if "" in names or (len(names) > 1 and len(set(names)) < len(names)):
                reading.report.error("value", f"`{shorten(value)}` is no list of names with `|` in between", node)
                continue
            need = reading.needs[value] = Need(names)
        if need.any_of in seen:
            reading.report.warning("duplicate", f"`{shorten(value)}` is needed twice", node, hint="once is enough")
        else:
            seen.add(need.any_of)
            result.append((need, node))
    # Steps of one layer share long lists; for short ones a lookup saves nothing.
    if len(result) == len(values) >= SHARED_NEEDS_MIN:
        known = reading.need_lists[values] = tuple([need for need, _ in result])
        return Needed(known, nodes)
    return tuple(result)


def connect(
    reading: NativeReading, drafts: dict[str, StepDraft], is_list: bool, called_only: frozenset[str]
) -> tuple[Step, ...]:
    """Connect the steps by edges; report invalid edges and leave them out."""
    steps: list[Step] = []
    sound: dict[int, frozenset[str]] = {}
    before = ""
    for name, draft in drafts.items():
        needs = _known_needs(reading, drafts, name, sound) if draft.needs else ()
        arcs = tuple([arc for arc, node in draft.arcs if _leads_somewhere(reading, drafts, arc, node)])
        if name in called_only:
            steps.append(replace(draft.step, needs=needs, arcs=arcs, called_only=True))
            continue
        if is_list and before and not draft.needs:
            _refuse_empty_needs(reading, draft, before)
        if is_list and before and (before,) not in (need.any_of for need in needs):
            needs = (Need((before,), True), *needs)
        before = name
        steps.append(replace(draft.step, needs=needs, arcs=arcs) if needs or arcs else draft.step)
    led_to = {arc.step for step in steps for arc in step.arcs}
    for step in steps:
        if step.join == "all" and step.name not in led_to:
            message, hint = "`join` is for steps that arcs lead to", "no `next` names this one: take `join` out"
            reading.report.error("conflict", message, drafts[step.name].node.entries["join"][0], hint=hint)
    _refuse_cycles(reading.report, drafts, steps, is_list)
    return tuple(steps)


def _refuse_empty_needs(reading: NativeReading, draft: StepDraft, before: str) -> None:
    """Refuse `needs: []` of a step that waits for the one before it."""
    key, given = draft.node.entries.get("needs", (None, None))
    if key is not None and isinstance(given, Sequence) and not given.items:
        message = f"`needs: []` changes nothing: in a list each step waits for the one before, here `{shorten(before)}`"
        hint = "in a mapping of steps each waits only for what it needs: steps: {first: {…}, second: {…}}"
        reading.report.error("conflict", message, key, hint=hint)


def _known_needs(
    reading: NativeReading, drafts: dict[str, StepDraft], name: str, sound: dict[int, frozenset[str]]
) -> tuple[Need, ...]:
    """The valid needs of a step; a list that many steps share is checked once."""
    given = drafts[name].needs
    # The drafts keep shared lists alive, so their ids stay unique.
    names = sound.get(id(given.needs)) if isinstance(given, Needed) else None
    if isinstance(given, Needed) and names is not None and name not in names:
        return given.needs
    needs = tuple([need for need, node in given if _is_known(reading, drafts, name, need, node)])
    if isinstance(given, Needed) and len(needs) == len(given):
        sound[id(given.needs)] = frozenset(other for need in needs for other in need.any_of)
        return given.needs
    return needs


def _is_known(
    reading: NativeReading, drafts: dict[str, StepDraft], name: str, need: Need, node: Scalar | Mapping
) -> bool:
    """May this step need those? Report it if not."""
    known = True
    for other in need.any_of:
        if other == name:
            reading.report.error("cycle", f"the step `{shorten(name)}` needs itself", node)
        elif other == "end":
            hint = "`end` runs after every other step; nothing can wait for it"
            reading.report.error("reserved", "no step can need `end`", node, hint=hint)
        elif other not in drafts:
            unknown_step(reading, "needs", other, node)
        else:
            continue
        known = False
    return known


def _leads_somewhere(reading: NativeReading, drafts: dict[str, StepDraft], arc: Arc, node: Scalar) -> bool:
    """Does this arc lead to an existing step? Report it if not."""
    if arc.step in drafts or (arc.step == "end" and reading.scope.around is None):
        return True
    unknown_step(reading, "next", arc.step, node)
    return False


def unknown_step(reading: NativeReading, how: How, name: str, node: Scalar | Mapping) -> None:
    """Report a name that no step of this scope has."""
    unknown = UnknownName(reading.scope, how, node, name)
    if reading.scope.around is None:
        _report(reading.report, unknown)
    else:
        reading.unknown_names.append(unknown)


def report_unknown_names(reading: NativeReading) -> None:
    """Report the unknown names inside items, once all outer names are known."""
    reported: set[tuple[int, int]] = set()
    for unknown in reading.unknown_names:
        place = unknown.node.line, unknown.node.column
        if place not in reported:
            reported.add(place)
            _report(reading.report, unknown)


def _report(report: Diagnostics, unknown: UnknownName) -> None:
    """Report that a step is out of reach from here and where it is, or that it does not exist."""
    name, scope = unknown.name, unknown.scope
    jumps = unknown.how != "needs"
    if name in scope.inner:
        holder = scope.inner[name]
        where = "for each item" if holder == name else f"inside the items of `{shorten(holder)}`"
        message = f"`{shorten(name)}` runs {where}"
        message += ", and nothing jumps into an item" if jumps else ""
        hint = "go to the step that gives the items" if jumps else f"need `{holder}`: all its items"
        report.error("scope", message, unknown.node, hint=hint)
        return
    around = scope.around
    while around is not None:
        if name in around.drafts or (name == "end" and around.around is None):
            message = f"`{shorten(name)}` is outside of the item"
            message += ", and nothing jumps out of one" if jumps else ""
            hint = "name a step of the item" if jumps else "the step that runs the items can need it"
            report.error("scope", message, unknown.node, hint=hint)
            return
        around = around.around
    hint = "" if report.full else did_you_mean(name, scope.drafts, "steps")
    report.error("unknown-step", f"there is no step `{shorten(name)}`", unknown.node, hint=hint)


def _refuse_cycles(report: Diagnostics, drafts: dict[str, StepDraft], steps: list[Step], is_list: bool) -> None:
    """Report cycles of needs."""
    if _are_in_order(steps):
        return
    needed = {step.name: [other for need in step.needs for other in need.any_of] for step in steps}
    for names in cycles_among(needed):
        _report_cycle(report, drafts, names, is_list)


def cycles_among(needed: abc.Mapping[str, abc.Collection[str]]) -> abc.Iterator[list[str]]:
    """Find cycles: remove names whose needs are met, then follow the needs of the rest."""
    waiting = {name: len(others) for name, others in needed.items() if others}
    dependents: dict[str, list[str]] = {}
    for name, others in needed.items():
        for other in others:
            dependents.setdefault(other, []).append(name)
    ready = [name for name in needed if name not in waiting]
    while ready:
        for dependent in dependents.get(ready.pop(), ()):
            waiting[dependent] -= 1
            if not waiting[dependent]:
                del waiting[dependent]
                ready.append(dependent)
    needed_by = {name: next(other for other in needed[name] if other in waiting) for name in waiting}
    seen: dict[str, str] = {}
    for start in needed_by:
        name = start
        while name not in seen:
            seen[name] = start
            name = needed_by[name]
        if seen[name] == start:
            names = [name]
            while needed_by[names[-1]] != name:
                names.append(needed_by[names[-1]])
            yield names


def _are_in_order(steps: list[Step]) -> bool:
    """Does every step come after those that it needs, as in most files? Then there is no cycle."""
    before: set[str] = set()
    # Once met, a shared list stays met for all later steps, so check it once.
    met: set[int] = set()
    for step in steps:
        if id(step.needs) not in met:
            if any(other not in before for need in step.needs for other in need.any_of):
                return False
            met.add(id(step.needs))
        before.add(step.name)
    return True


def _report_cycle(report: Diagnostics, drafts: dict[str, StepDraft], names: list[str], is_list: bool) -> None:
    """Report a cycle with the position of each of its steps."""
    if len(names) == 1:
        return
    # Start with the step that is first in the file, so that the message is stable.
    first = min(range(len(names)), key=lambda i: (drafts[names[i]].key.line, drafts[names[i]].key.column))
    names = names[first:] + names[:first]
    shown = [f"`{shorten(name)}` ({drafts[name].key.line}:{drafts[name].key.column})" for name in names]
    if len(shown) > CYCLE_STEPS_SHOWN:
        shown[CYCLE_STEPS_SHOWN:] = [f"{len(names) - CYCLE_STEPS_SHOWN} more steps"]
    message = f"these steps wait for each other: {' needs '.join([*shown, f'`{shorten(names[0])}`'])}"
    hint = "a list runs in the order in which it is written" if is_list else "take one of these needs out"
    report.error("cycle", message, drafts[names[0]].key, hint=hint)
