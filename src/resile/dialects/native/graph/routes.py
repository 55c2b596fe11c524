"""References between steps: steps that run as remedies, targets of jumps, and references that can't work.

    run    names steps of the workflow; one that nothing else leads to runs only when it is called
    goto   jumps back to an earlier step; inside a handler, to an earlier command

A step that waits for a remedy can't be a remedy of it: the two would wait for each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Scalar
from resile.dialects.native.context import Defaults, How, NameUse, NativeReading, Scope, StepDraft
from resile.dialects.native.graph.ancestors import Ancestors
from resile.dialects.native.graph.edges import unknown_step
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.errors import shorten
from resile.model.rules import Transition
from resile.model.workflow import FanOut, Rule, Step

_GOTO_KEYS = frozenset(("goto", "goto_js", "transitions"))
STRING_LITERAL = r"""(['"`])((?:(?!\1)[^\\\n])*)\1"""


def read_routes(
    reading: NativeReading, fields: dict[str, Any], within: Defaults, by_default: frozenset[str] = frozenset()
) -> tuple[str, tuple[str, ...], tuple[Transition, ...]]:
    """Read `goto`, `run` and `transitions`, and record the names in them for `check_routes`."""
    goto: Scalar | None = fields.get("goto")
    run: tuple[tuple[str, Scalar], ...] = fields.get("run", ())
    transitions: tuple[tuple[Transition, Scalar | None], ...] = fields.get("transitions", ())
    targets: list[tuple[How, Scalar]] = [("goto", goto)] if goto is not None else []
    targets += [("transitions", node) for _, node in transitions if node is not None]
    for key, node in targets:
        if within.before is None:
            reading.scope.named.append(NameUse(reading.owner, key, node, key in by_default))
        elif node.text not in within.before:
            hint = did_you_mean(node.text, within.before, "before it") or "there is no command before it"
            message = f"no command `{shorten(node.text)}` stands before this one in its handler"
            reading.report.error("goto", message, node, hint=hint)
    if "run" in by_default and reading.owner in [name for name, _ in run]:
        # A default remedy has no remedies by default: it would wait for itself.
        run = ()
    reading.scope.named += [NameUse(reading.owner, "run", node, "run" in by_default) for _, node in run]
    if "run_js" in fields:
        literals = dict.fromkeys(literal for _, literal in re.findall(STRING_LITERAL, fields["run_js"]))
        reading.scope.names_in_code += [(reading.owner, literal) for literal in literals]
    calls = tuple(dict.fromkeys(name for name, _ in run))
    return goto.text if goto is not None else "", calls, tuple(transition for transition, _ in transitions)


def callers(scope: Scope) -> Iterator[tuple[str, str]]:
    """Pairs of a caller and a called name, from `run` and from code; includes unknown names."""
    yield from ((named.owner, named.node.text) for named in scope.named if named.how == "run")
    yield from scope.names_in_code


def called_steps(scope: Scope, drafts: dict[str, StepDraft]) -> frozenset[str]:
    """Steps that others call, also those that run anyway."""
    return frozenset(name for _, name in callers(scope) if name in drafts)


def called_only(drafts: dict[str, StepDraft], called: frozenset[str]) -> frozenset[str]:
    """Steps that run only when called: no step that runs anyway needs them or leads to them."""
    written = {name: entry[1] for name, draft in drafts.items() if (entry := draft.node.entries.get("called_only"))}
    if not called and not written:
        return called
    chosen = {name: isinstance(node, Scalar) and node.value is True for name, node in written.items()}
    always = frozenset(name for name, only in chosen.items() if not only)
    kept = frozenset(name for name, only in chosen.items() if only)
    return remedies_among((called | kept) - always, {name: edges_of(draft) for name, draft in drafts.items()}, kept)


def edges_of(draft: StepDraft) -> frozenset[str]:
    """Steps that a step needs or leads to."""
    needed = [name for need, _ in draft.needs for name in need.any_of]
    return frozenset([*needed, *(arc.step for arc, _ in draft.arcs)])


def remedies_among(
    called: frozenset[str], edges: dict[str, frozenset[str]], kept: frozenset[str] = frozenset()
) -> frozenset[str]:
    """The called steps that are only remedies; a step that only remedies need counts as one too."""
    found = called
    while True:
        wanted = frozenset(name for owner, names in edges.items() if owner not in found for name in names)
        left = (found - wanted) | kept
        if left == found:
            return found
        found = left


def check_routes(reading: NativeReading, steps: tuple[Step, ...], ancestors: Ancestors) -> tuple[Step, ...]:
    """Check all references; return the steps without default targets that do not apply to them."""
    scope, drafts = reading.scope, reading.scope.drafts
    runs: dict[str, list[NameUse]] = {}
    astray: set[str] = set()
    strange: dict[str, set[str]] = {}
    for named in scope.named:
        name = named.node.text
        if name not in drafts and named.by_default and scope.around is not None:
            # The workflow's defaults may name steps that an item does not have.
            strange.setdefault(named.owner, set()).add(name)
        elif name not in drafts:
            _report_unknown(reading, named)
        elif named.how == "run":
            if name == named.owner:
                hint = "`retry` runs a step again"
                reading.report.error("run", f"`{shorten(name)}` can't be its own remedy", named.node, hint=hint)
            else:
                runs.setdefault(named.owner, []).append(named)
        elif (inside := _runs_for_items(drafts[name].step)) or not ancestors.has_before(named.owner, name):
            if inside and not named.by_default:
                scope.inner[name] = name
                unknown_step(reading, named.how, name, named.node)
            elif not named.by_default:
                _refuse_goto(reading, named, ancestors)
            elif named.how == "goto":
                astray.add(named.owner)
    _refuse_circles(reading.report, runs)
    steps = tuple(_drop_unknown_targets(step, strange[step.name]) if step.name in strange else step for step in steps)
    return tuple(
        _drop_default_jumps(reading.report, step, drafts[step.name], step.name in astray)
        if step.name in astray or step.called_only
        else step
        for step in steps
    )


def _runs_for_items(step: Step) -> bool:
    """Is this the fan-out of steps below a `foreach`, which may have the name of its only step?"""
    return isinstance(step.action, FanOut) and bool(step.action.scope)


def _drop_unknown_targets(step: Step, strange: set[str]) -> Step:
    """Remove these names from the rules of a step, and rules that are then empty."""
    rules: list[Rule] = []
    for rule in step.rules:
        if rule.then == "goto":
            transitions = tuple(transition for transition in rule.transitions if transition.to not in strange)
            rule = replace(rule, target="" if rule.target in strange else rule.target, transitions=transitions)
            if not (rule.target or rule.target_js or rule.transitions):
                continue
        elif rule.repair is not None and not strange.isdisjoint(rule.repair.calls):
            calls = tuple(name for name in rule.repair.calls if name not in strange)
            if calls or rule.repair.calls_js:
                rule = replace(rule, repair=replace(rule.repair, calls=calls))
            elif rule.text.startswith("retry"):
                rule = replace(rule, repair=None, cost=0, text=rule.text.partition(" after ")[0])
            else:
                continue
        rules.append(rule)
    return replace(step, rules=tuple(rules))


def _drop_default_jumps(report: Diagnostics, step: Step, draft: StepDraft, is_astray: bool) -> Step:
    """Remove default jumps that do not lead back; a remedy has no jumps, it returns to its caller."""
    written = [draft.node.entries.get(word) for word in ("on_failure", "on_fail")]
    own = any(
        entry is not None and isinstance(entry[1], Mapping) and not _GOTO_KEYS.isdisjoint(entry[1].entries)
        for entry in written
    )
    success = step.on_success
    if step.called_only and (own or (success is not None and success.cost)):
        hint = "the step that called for it runs again by itself"
        message = f"`{shorten(step.name)}` runs only as a remedy and can't go back"
        report.error("goto", message, draft.key, hint=hint)
    rules = [
        replace(rule, target="") if is_astray and rule.then == "goto" else rule
        for rule in step.rules
        if rule.then != "goto" or not (step.called_only or (is_astray and not (rule.target_js or rule.transitions)))
    ]
    return replace(step, rules=tuple(rules))


def _report_unknown(reading: NativeReading, named: NameUse) -> None:
    """Report an unknown name; report each default once."""
    report, node = reading.report, named.node
    if named.by_default and any(e.line == node.line and e.column == node.column for e in report.errors):
        return
    if node.text == "end":
        report.error("reserved", f"`{named.how}` can't name `end`", node, hint="`end` runs last, by itself")
        return
    unknown_step(reading, named.how, node.text, node)


def _refuse_goto(reading: NativeReading, named: NameUse, ancestors: Ancestors) -> None:
    """Report a jump that does not lead back."""
    owner, name = named.owner, named.node.text
    if owner == "end":
        message, hint = "`end` can't go back", "nothing runs after `end`"
    elif owner == name:
        message, hint = f"`{shorten(name)}` can't go back to itself", "`retry` runs a step again"
    elif ancestors.has_before(name, owner):
        message = f"`{shorten(name)}` comes after `{shorten(owner)}`, and `goto` leads back"
        hint = reading.onward
    else:
        message = f"`{shorten(name)}` does not come before `{shorten(owner)}`, and `goto` leads back"
        hint = f"a step can go back to what it {reading.needing}; `run: [{name}]` runs a step as a remedy"
    reading.report.error("goto", message, named.node, hint=hint)


def _refuse_circles(report: Diagnostics, runs: dict[str, list[NameUse]]) -> None:
    """Refuse a remedy whose own remedy is the step that waits for it: both would wait for ever."""
    for start, first in runs.items():
        for named in first:
            seen: set[str] = set()
            work = [named.node.text]
            while work:
                name = work.pop()
                if name == start:
                    message = f"`{shorten(named.node.text)}` is a remedy of `{shorten(start)}`, and the other way round"
                    report.error("run", message, named.node, hint="take one of the two out")
                    break
                if name not in seen:
                    seen.add(name)
                    work.extend(other.node.text for other in runs.get(name, ()))
