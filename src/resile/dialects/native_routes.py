"""Steps that name other steps: who is run as a remedy, who can be gone back to, and what can't be meant.

    run    names steps of the workflow; one that nothing else leads to runs only when it is called for
    goto   leads back to a step before; inside a handler, to a command before

A step that waits for a remedy can't be one for it: that would wait for itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.dialects.base import Diagnostics, did_you_mean
from resile.dialects.native_step import Drafted, How, Named, NativeReading, Within
from resile.dialects.tree import Mapping, Scalar, shorten
from resile.model.rules import Transition
from resile.model.workflow import Step

if TYPE_CHECKING:
    from resile.dialects.native_graph import Ancestors

_GOTO_KEYS = frozenset(("goto", "goto_js", "transitions"))
_STRING_LITERAL = r"""(['"`])((?:(?!\1)[^\\\n])*)\1"""


def read_routes(
    reading: NativeReading, fields: dict[str, Any], within: Within, by_default: frozenset[str] = frozenset()
) -> tuple[str, tuple[str, ...], tuple[Transition, ...]]:
    """The static parts of `goto`, `run` and `transitions`; the names in them are kept to be looked at."""
    goto: Scalar | None = fields.get("goto")
    run: tuple[tuple[str, Scalar], ...] = fields.get("run", ())
    transitions: tuple[tuple[Transition, Scalar | None], ...] = fields.get("transitions", ())
    targets: list[tuple[How, Scalar]] = [("goto", goto)] if goto is not None else []
    targets += [("transitions", node) for _, node in transitions if node is not None]
    for key, node in targets:
        if within.before is None:
            reading.named.append(Named(reading.owner, key, node, key in by_default))
        elif node.text not in within.before:
            hint = did_you_mean(node.text, within.before, "before it") or "there is no command before it"
            message = f"no command `{shorten(node.text)}` stands before this one in its handler"
            reading.report.error("goto", message, node, hint=hint)
    if "run" in by_default and _is_remedy(reading.owner, run):
        run = ()
    reading.named += [Named(reading.owner, "run", node, "run" in by_default) for _, node in run]
    if "run_js" in fields:
        reading.spoken.update(literal for _, literal in re.findall(_STRING_LITERAL, fields["run_js"]))
    calls = tuple(dict.fromkeys(name for name, _ in run))
    return goto.text if goto is not None else "", calls, tuple(transition for transition, _ in transitions)


def _is_remedy(owner: str, run: tuple[tuple[str, Scalar], ...]) -> bool:
    """A remedy of every step is none for itself and for those beside it."""
    return any(name == owner for name, _ in run)


def called_steps(reading: NativeReading, drafts: dict[str, Drafted]) -> frozenset[str]:
    """The steps that others call for; also those that run anyway."""
    named = {named.node.text for named in reading.named if named.how == "run"}
    return frozenset(name for name in named | reading.spoken if name in drafts)


def called_only(drafts: dict[str, Drafted], called: frozenset[str]) -> frozenset[str]:
    """The steps that run only when they are called for: nothing needs them, no arc leads to them."""
    if not called:
        return called
    led_to = {name for draft in drafts.values() for need, _ in draft.needs for name in need.any_of}
    led_to |= {arc.step for draft in drafts.values() for arc, _ in draft.arcs}
    return called - led_to


def check_routes(
    reading: NativeReading, drafts: dict[str, Drafted], steps: tuple[Step, ...], ancestors: Ancestors
) -> tuple[Step, ...]:
    """Look at every name; the steps, without default jumps where those would not lead back."""
    runs: dict[str, list[Named]] = {}
    astray: set[str] = set()
    for named in reading.named:
        name = named.node.text
        if name not in drafts:
            _unknown(reading.report, drafts, named)
        elif named.how == "run":
            if name == named.owner:
                hint = "`retry` runs a step again"
                reading.report.error("run", f"`{shorten(name)}` can't be its own remedy", named.node, hint=hint)
            else:
                runs.setdefault(named.owner, []).append(named)
        elif not ancestors.has_before(named.owner, name):
            if not named.by_default:
                _refuse_goto(reading.report, named, ancestors)
            elif named.how == "goto":
                astray.add(named.owner)
    _refuse_circles(reading.report, runs)
    return tuple(
        _settled(reading.report, step, drafts[step.name], step.name in astray)
        if step.name in astray or step.called_only
        else step
        for step in steps
    )


def _settled(report: Diagnostics, step: Step, draft: Drafted, is_astray: bool) -> Step:
    """A step whose jump by default does not lead back goes nowhere; a remedy goes back to whoever called for it."""
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


def _unknown(report: Diagnostics, drafts: dict[str, Drafted], named: Named) -> None:
    """Report a name that no step has; a default is reported once."""
    if named.by_default and any(e.line == named.node.line and e.column == named.node.column for e in report.errors):
        return
    name = named.node.text
    if name == "end":
        report.error("reserved", f"`{named.how}` can't name `end`", named.node, hint="`end` runs last, by itself")
        return
    hint = "" if report.full else did_you_mean(name, drafts, "steps")
    report.error("unknown-step", f"there is no step `{shorten(name)}`", named.node, hint=hint)


def _refuse_goto(report: Diagnostics, named: Named, ancestors: Ancestors) -> None:
    """Report a jump that does not lead back."""
    owner, name = named.owner, named.node.text
    if owner == "end":
        message, hint = "`end` can't go back", "nothing runs after `end`"
    elif owner == name:
        message, hint = f"`{shorten(name)}` can't go back to itself", "`retry` runs a step again"
    elif ancestors.has_before(name, owner):
        message = f"`{shorten(name)}` comes after `{shorten(owner)}`, and `goto` leads back"
        hint = "`next` leads on to another step"
    else:
        message = f"`{shorten(name)}` does not come before `{shorten(owner)}`, and `goto` leads back"
        hint = f"a step can go back to what it `needs`; `run: [{name}]` runs a step as a remedy"
    report.error("goto", message, named.node, hint=hint)


def _refuse_circles(report: Diagnostics, runs: dict[str, list[Named]]) -> None:
    """A remedy whose own remedy is the step that waits for it would wait for ever."""
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
