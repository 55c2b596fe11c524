"""Jumps, items and order of a Visor file, resolved before its steps become native.

goto to a step that depends on this one    the jump is dropped: that step follows anyway
forEach                                    steps below run for each item; without dependents it only returns a list
jumps back, without any `depends_on`       the steps run in the order in which they are written
"""

from __future__ import annotations

from resile.dialects.formats.nodes import Mapping
from resile.dialects.native.nodes import Part, node_of
from resile.dialects.visor.step import Draft
from resile.dialects.visor.values import VisorReading
from resile.errors import shorten


def drop_onward_jumps(reading: VisorReading, drafts: dict[str, Draft]) -> None:
    """Drop jumps after a success to a step that depends on this one: it follows anyway."""
    for name, draft in drafts.items():
        actions: Part = draft.keys.get("on_success", Part(draft.key))
        if "transitions" in actions:
            actions = actions.replace(
                transitions=[_stay(reading, drafts, draft, one) for one in actions["transitions"]]
            )
            draft.keys = draft.keys.replace(on_success=actions)
        jump = actions.get("goto")
        if jump is None or name not in _ancestors_of(drafts, jump.text):
            continue
        draft.jumps = [node for node in draft.jumps if node is not jump]
        message = f"`{shorten(jump.text)}` depends on `{shorten(name)}` and follows it by itself: nothing jumps"
        reading.report.notice("goto", message, jump)
        left = actions.replace(goto=None)
        if not {"goto_js", "transitions"} & left.keys():
            left = left.replace(cost=None)
        is_empty = not {"goto_js", "transitions", "run", "run_js", "commands"} & left.keys()
        draft.keys = draft.keys.replace(on_success=None if is_empty else left)


def _stay(reading: VisorReading, drafts: dict[str, Draft], draft: Draft, transition: Part) -> Part:
    """A transition that ends the search without a jump, if its target depends on this step; else the same."""
    target = transition["to"]
    if target.value is None or draft.name not in _ancestors_of(drafts, target.text):
        return transition
    draft.jumps = [node for node in draft.jumps if node is not target]
    message = f"`{shorten(target.text)}` depends on `{shorten(draft.name)}` and follows it by itself: nothing jumps"
    reading.report.notice("goto", message, target)
    return transition.replace(to=node_of(None, target))


def _ancestors_of(drafts: dict[str, Draft], name: str) -> set[str]:
    """All steps that a step depends on, directly or not."""
    found: set[str] = set()
    work = [name]
    while work:
        for need in drafts[here].needs if (here := work.pop()) in drafts else ():
            work += [other for other in need["any_of"] if other not in found]
            found.update(need["any_of"])
    return found


def run_for_items(drafts: dict[str, Draft]) -> None:
    """Make steps with `fanout: map` that a producer runs in `on_success` run for each of its items."""
    for producer, draft in drafts.items():
        actions = draft.keys.get("on_success")
        if draft.foreach is None or actions is None:
            continue
        called = dict.fromkeys(node.text for node in actions.get("run", ()) if node.text in drafts)
        mapped = [name for name in called if drafts[name].fanout == "map" and drafts[name].fanout_key is not None]
        if not mapped:
            continue
        run = [node for node in actions["run"] if node.text not in mapped]
        draft.keys = draft.keys.replace(on_success=actions.replace(run=run or None))
        for name in mapped:
            drafts[name].needs = [*drafts[name].needs, Part(draft.key, any_of=[producer])]


def place_below_items(reading: VisorReading, drafts: dict[str, Draft], is_list: bool) -> None:
    """Find the steps below each `forEach`; one without dependents only returns a list."""
    order = list(drafts)
    previous = dict(zip(order[1:], order, strict=False)) if is_list else {}
    needed = {name: _needs_of(drafts, previous, name) for name in order}
    below, leading = _steps_below_items(drafts, needed)
    mapped = {name for name in below if drafts[name].fanout != "reduce"}
    # In a list, every step follows those before it.
    fed = {name for other in mapped for need in drafts[other].needs for name in need["any_of"]}
    feeding = (leading if mapped else set()) if is_list else leading & fed
    gathered = {name for name in below if needed[name] & (feeding | mapped)}
    for name, draft in drafts.items():
        if draft.foreach is not None and name not in feeding:
            message = f"nothing runs for each item of `{shorten(name)}`: its output is a list"
            reading.report.notice("foreach", message, draft.key)
            _finish_at_once(reading, draft, draft.foreach)
        if draft.fanout_key is not None and name not in below:
            message = "`fanout` changes nothing here: no step that this one depends on has `forEach`"
            reading.report.notice("fanout", message, draft.fanout_key)
        draft.foreach = draft.foreach if name in feeding else None
        draft.fanout = draft.fanout if name in gathered and draft.fanout == "reduce" else ""


def _steps_below_items(drafts: dict[str, Draft], needed: dict[str, set[str]]) -> tuple[set[str], set[str]]:
    """The steps below a `forEach`, and those with `forEach` that have steps below them."""
    below: set[str] = set()
    leading: set[str] = set()
    for _ in drafts:
        before = len(below)
        for name in drafts:
            producers = {other for other in needed[name] if drafts[other].foreach is not None}
            mapped = {other for other in needed[name] if other in below and drafts[other].fanout != "reduce"}
            if producers or mapped:
                below.add(name)
                leading |= producers
        if len(below) == before:
            break
    return below, leading


def _needs_of(drafts: dict[str, Draft], previous: dict[str, str], name: str) -> set[str]:
    needed = {other for need in drafts[name].needs for other in need["any_of"] if other in drafts}
    return needed | ({previous[name]} if name in previous else set())


def _finish_at_once(reading: VisorReading, draft: Draft, foreach: Part) -> None:
    """Turn `on_finish` into `on_success` of a step without dependents: nothing runs for its items."""
    if "on_finish" not in foreach:
        return
    if "on_success" in draft.keys:
        message = "`on_finish` and `on_success` follow the same thing here: nothing runs for each item"
        reading.report.error("conflict", message, draft.key, hint="keep `on_success`")
    draft.jumps, draft.finish_jumps = [*draft.jumps, *draft.finish_jumps], []
    draft.keys = draft.keys.replace(on_success=foreach["on_finish"])


def runs_in_order(reading: VisorReading, root: Mapping, drafts: dict[str, Draft]) -> bool:
    """Does a file without `depends_on` run in the order in which it is written? Yes if all its jumps lead back."""
    if any(draft.needs or draft.finish_jumps for draft in drafts.values()):
        return False
    place = {name: number for number, name in enumerate(drafts)}
    jumps = [(name, node.text) for name, draft in drafts.items() for node in draft.jumps]
    if not jumps or any(place.get(target, len(place)) >= place[name] for name, target in jumps):
        return False
    message = "no step has `depends_on` and jumps lead to earlier steps: the steps run in the order they are written in"
    where = next(iter(root.entries.values()))[0]
    reading.report.notice("order", message, where, hint="`depends_on` says it in the file")
    return True
