"""`foreach`: steps that need a producer of a list run once for each of its items; compiled away to a fan-out.

    list: {foreach: true}              list ──> each+check ──> report       each+check: a fan-out over list's output
    each: {needs: list}                         ┌────────────┐
    check: {needs: each}                        │ each─>check│ x items
    report: {needs: check, fanout: reduce}      └────────────┘

A step that needs a producer, or a step that runs for its items, runs for the items too, unless it has `fanout: reduce`:
then it runs once, after them and after `on_finish`, one level further out. All steps of one producer become one
fan-out, named after them. In a list, order counts as a need. A remedy that only steps of the items call runs inside the
item.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Scalar
from resile.dialects.native.context import (
    FANOUT_DEPTH_MAX,
    Defaults,
    ForEach,
    NativeReading,
    Policy,
    Scope,
    StepDraft,
    place_of,
)
from resile.dialects.native.failures.commands import read_success
from resile.dialects.native.failures.error_policy import hand_over, read_policy
from resile.dialects.native.graph.routes import called_only, called_steps, callers
from resile.dialects.native.keys.failures import ON_FINISH
from resile.errors import shorten
from resile.model.fanout import ErrorPolicy, Source
from resile.model.limits import LOOPS_MAX, NAME_CHARACTERS_MAX
from resile.model.workflow import FanOut, Need, Repair, Rule, Step

Path = tuple[str, ...]
"""The producers for whose items a step runs, outermost first."""
Needed = tuple[Need, Scalar | Mapping]


def finishing(name: str) -> str:
    """Temporary owner of the texts and names of `on_finish`, until its fan-out has a name; no step has this name."""
    return f"{name}\n"


def read_foreach(reading: NativeReading, name: str, node: Mapping, fields: dict[str, Any], inner: Defaults) -> ForEach:
    """Read the keys beside `foreach: true`."""
    policy = read_policy(reading, fields["error_policy"]) if "error_policy" in fields else None
    on_finish = None
    if "on_finish" in fields:
        reading.owner = finishing(name)
        on_finish = read_success(reading, fields["on_finish"], place_of(reading, node, "on_finish"), inner, ON_FINISH)
        reading.owner = name
    place, in_turn = place_of(reading, node, "foreach"), fields.get("in_turn", False)
    return ForEach(inner, place, policy, fields.get("max_parallel"), on_finish, in_turn)


def fold(reading: NativeReading, drafts: dict[str, StepDraft], is_list: bool) -> dict[str, StepDraft]:
    """Replace the steps of a scope that run for items with fan-outs."""
    remedies = called_only(drafts, called_steps(reading.scope, drafts))
    paths = _paths(reading, drafts, is_list, remedies)
    asking: dict[str, set[str]] = {name: set() for name in remedies if not paths[name]}
    for owner, name in callers(reading.scope):
        if name in asking:
            asking[name].add(owner)
    producers = [(name, draft.foreach) for name, draft in drafts.items() if draft.foreach and not paths[name]]
    for name, foreach in producers:
        members = {other for other, path in paths.items() if path[:1] == (name,)}
        if not members:
            hint = f"a step that needs `{name}` runs for each of its items"
            message = f"nothing runs for the items of `{shorten(name)}`"
            reading.report.error("conflict", message, foreach.place, hint=hint)
            continue
        members |= _own_remedies(members, asking)
        drafts = _fold_one(reading, drafts, name, foreach, members, paths, is_list)
    return drafts


def _paths(
    reading: NativeReading, drafts: dict[str, StepDraft], is_list: bool, remedies: frozenset[str]
) -> dict[str, Path]:
    """The producers of each step; steps in a cycle have none, and the cycle is reported elsewhere."""
    before: dict[str, list[str]] = {}
    dependents: dict[str, list[str]] = {}
    last = ""
    for name, draft in drafts.items():
        needed = {other for need, _ in draft.needs for other in need.any_of if other in drafts}
        if is_list and name not in remedies:
            needed |= {last} if last else set()
            last = name
        before[name] = sorted(needed)
        for other in needed:
            dependents.setdefault(other, []).append(name)
    waiting = {name: len(needed) for name, needed in before.items()}
    ready = [name for name, count in waiting.items() if not count]
    paths: dict[str, Path] = dict.fromkeys(drafts, ())
    while ready:
        name = ready.pop()
        ways = {(*paths[other], *((other,) if drafts[other].foreach else ())) for other in before[name]}
        paths[name] = _path(reading, name, drafts[name], ways)
        for dependent in dependents.get(name, ()):
            waiting[dependent] -= 1
            if not waiting[dependent]:
                ready.append(dependent)
    return paths


def _path(reading: NativeReading, name: str, draft: StepDraft, ways: set[Path]) -> Path:
    """The producers of one step, from those of the steps that it needs."""
    if draft.fanout and not any(ways):
        # Some front ends derive `fanout`; then the step has no such key to point to.
        where = draft.node.entries["fanout"][0] if "fanout" in draft.node.entries else draft.key
        hint = "one of its needs has `foreach: true`, or runs for the items of one that has"
        reading.report.error("conflict", "`fanout` has no meaning here: there are no items", where, hint=hint)
    if draft.fanout == "reduce":
        longest = max((len(way) for way in ways), default=0)
        ways = {way[:-1] if len(way) == longest else way for way in ways}
    path = max(ways, key=lambda way: (len(way), way), default=())
    other = next((way for way in sorted(ways) if path[: len(way)] != way), None)
    if other is not None:
        message = f"`{shorten(name)}` can't run for the items of `{path[-1]}` and of `{other[-1]}` at once"
        hint = "let one of the two lead to a step with `fanout: reduce` first"
        reading.report.error("fanout", message, draft.key, hint=hint)
        return ()
    if len(path) > FANOUT_DEPTH_MAX:
        message = f"fan-outs in fan-outs go no deeper than {FANOUT_DEPTH_MAX} levels"
        reading.report.error("limit", message, draft.key)
        return ()
    return path


def _own_remedies(members: set[str], asking: dict[str, set[str]]) -> set[str]:
    """Remedies that only these steps call, directly or through other remedies."""
    own: set[str] = set()
    grown = True
    while grown:
        inside = _owners(members | own)
        found = {name for name, owners in asking.items() if name not in own and owners <= inside}
        grown = bool(found)
        own |= found
    return own


def _owners(members: set[str]) -> set[str]:
    return members | {finishing(name) for name in members}


def _fold_one(
    reading: NativeReading,
    drafts: dict[str, StepDraft],
    producer: str,
    foreach: ForEach,
    members: set[str],
    paths: dict[str, Path],
    is_list: bool,
) -> dict[str, StepDraft]:
    """Replace the steps that run for the items of one producer with a fan-out."""
    scope = reading.scope
    inner = Scope(scope)
    _move(scope, inner, _owners(members))
    outside: dict[tuple[str, ...], Needed] = {(producer,): (Need((producer,)), drafts[producer].key)}
    items = {
        name: _move_into_item(reading, draft, members, outside, len(paths[name]))
        for name, draft in drafts.items()
        if name in members
    }
    policy = foreach.policy or Policy(ErrorPolicy(on_item_failure="fail"))
    with reading.enter_scope(inner):
        hand_over(reading, policy, items, foreach.within.program)
        steps = reading.readers.scope(reading, items, is_list)
    name = _name([step.name for step in steps if not step.called_only] or list(items))
    first = next(iter(items.values()))
    if name in drafts and name not in members:
        hint = "call that step something else"
        reading.report.error("duplicate", f"the fan-out `{shorten(name)}` is called like a step", first.key, hint=hint)
    inner.owner = name
    scope.inner.update((member, name) for member in members if member != name)
    _rename(scope, finishing(producer), name)
    fan = FanOut(
        source=Source(step=producer),
        steps=steps,
        policy=policy.settings,
        max_parallel=1 if foreach.in_turn and _are_linked(steps) else foreach.max_parallel,
        scope=producer,
    )
    step = Step(name=name, action=fan, rules=_rules(foreach), on_success=foreach.on_finish, origin=first.step.origin)
    draft = StepDraft(step, Mapping({}, first.key.line, first.key.column), first.key, tuple(outside.values()))
    result = _put_fan_out(drafts, members, draft)
    return _wait_for_finish(result, producer, draft) if foreach.on_finish is not None else result


def _are_linked(steps: tuple[Step, ...]) -> bool:
    names = {step.name for step in steps}
    return any(not names.isdisjoint(need.any_of) for step in steps for need in step.needs)


def _move(scope: Scope, inner: Scope, owners: set[str]) -> None:
    """Move the texts, references and captures of these steps to the inner scope."""
    inner.texts = [text for text in scope.texts if text.owner in owners]
    scope.texts[:] = [text for text in scope.texts if text.owner not in owners]
    inner.named = [named for named in scope.named if named.owner in owners]
    scope.named = [named for named in scope.named if named.owner not in owners]
    inner.names_in_code = [use for use in scope.names_in_code if use[0] in owners]
    scope.names_in_code = [use for use in scope.names_in_code if use[0] not in owners]
    inner.captured = {name: owner for name, owner in scope.captured.items() if owner in owners}
    scope.captured = {name: owner for name, owner in scope.captured.items() if owner not in owners}


def _rename(scope: Scope, before: str, now: str) -> None:
    """Make the fan-out the owner of its producer's `on_finish` texts and names."""
    scope.texts[:] = [replace(text, owner=now) if text.owner == before else text for text in scope.texts]
    scope.named = [replace(named, owner=now) if named.owner == before else named for named in scope.named]
    scope.names_in_code = [
        (now, literal) if owner == before else (owner, literal) for owner, literal in scope.names_in_code
    ]
    scope.captured = {name: now if owner == before else owner for name, owner in scope.captured.items()}


def _move_into_item(
    reading: NativeReading,
    draft: StepDraft,
    members: set[str],
    outside: dict[tuple[str, ...], Needed],
    level: int,
) -> StepDraft:
    """Move a step into the item; the fan-out takes over the step's needs outside of the item."""
    kept: list[Needed] = []
    for need, node in draft.needs:
        if members.isdisjoint(need.any_of):
            outside.setdefault(need.any_of, (need, node))
            continue
        kept.append((need, node))
        if not members.issuperset(need.any_of):
            message = f"`{shorten('|'.join(need.any_of))}` mixes steps of the items with others"
            reading.report.error("scope", message, node, hint="an item can only wait for its own steps")
    fanout = "" if draft.fanout == "map" and level <= 1 else draft.fanout
    step = draft.step
    if "accepts_in_items" in draft.node.entries:
        # A tolerated failure of this step does not fail its item.
        rules = [replace(rule, then="recovered") if rule.then == "tolerate" else rule for rule in step.rules]
        step = replace(step, rules=tuple(rules))
    return replace(draft, step=step, needs=tuple(kept), fanout=fanout)


def _put_fan_out(drafts: dict[str, StepDraft], members: set[str], fan: StepDraft) -> dict[str, StepDraft]:
    """Put the fan-out in the place of its first step; dependents of its steps need the fan-out."""
    result: dict[str, StepDraft] = {}
    for name, draft in drafts.items():
        if name in members:
            result.setdefault(fan.step.name, fan)
            continue
        needs: dict[tuple[str, ...], Needed] = {}
        for need, node in draft.needs:
            names = tuple(dict.fromkeys(fan.step.name if other in members else other for other in need.any_of))
            needs.setdefault(names, (replace(need, any_of=names), node))
        result[name] = replace(draft, needs=tuple(needs.values()))
    return result


def _wait_for_finish(drafts: dict[str, StepDraft], producer: str, fan: StepDraft) -> dict[str, StepDraft]:
    """Let steps that gather the items of a producer wait for its `on_finish`, unless the items wait for them."""
    before = _steps_before(drafts, fan)
    need = Need((fan.step.name,), skip_satisfies=True)
    return {
        name: replace(draft, needs=(*draft.needs, (need, draft.key)))
        if draft.fanout == "reduce" and name not in before and any(producer in own.any_of for own, _ in draft.needs)
        else draft
        for name, draft in drafts.items()
    }


def _steps_before(drafts: dict[str, StepDraft], draft: StepDraft) -> set[str]:
    """All steps that a step needs, directly or not."""
    found: set[str] = set()
    work = [draft]
    while work:
        names = {name for need, _ in work.pop().needs for name in need.any_of if name in drafts} - found
        found |= names
        work += [drafts[name] for name in names]
    return found


def _name(names: list[str]) -> str:
    """Name of a fan-out: the names of its steps, joined and shortened."""
    name = "+".join(names)
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    rest = f"+{len(names) - 1} more"
    return names[0][: NAME_CHARACTERS_MAX - len(rest)] + rest


def _rules(foreach: ForEach) -> tuple[Rule, ...]:
    """Rules that run `on_finish` also if items failed; the failure stays."""
    actions = foreach.on_finish
    if actions is None:
        return ()
    repair = None
    if actions.steps or actions.calls or actions.calls_js:
        repair = Repair(steps=actions.steps, calls=actions.calls, calls_js=actions.calls_js, on_failure="ignore")
    rules: list[Rule] = []
    if actions.cost:
        # The core evaluates a computed jump before it runs a repair, so only a plain `goto` can have one.
        is_plain = not (actions.target_js or actions.transitions)
        rules.append(
            Rule(then="goto", text="on_finish: goto", target=actions.target, target_js=actions.target_js,
                 transitions=actions.transitions, repair=repair if is_plain else None, limit=LOOPS_MAX, cost=1,
                 routing=True, retries_anyway=bool(actions.calls_js), origin=actions.origin)
        )  # fmt: skip
    if repair is not None:
        rules.append(Rule(then="fail", text="on_finish", repair=repair, origin=actions.origin))
    return tuple(rules)
