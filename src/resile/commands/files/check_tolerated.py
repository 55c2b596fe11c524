"""Finds the failures that pass in files of other systems: a step whose failure does not fail the run.

Native files say it themselves (`on_failure: true`, `fail_workflow: false`). The files of other systems keep the meaning
of their systems, which a reader may not know: each such place gets one notice.
"""

from __future__ import annotations

from collections.abc import Iterable

from resile.errors import Diagnostic
from resile.model.nested import steps_within
from resile.model.rules import Origin
from resile.model.workflow import FanOut, Rule, Step, Workflow

CODE = "tolerated"
_COUNTED = ("fail", "stop", "carry_on")


def check_tolerated(workflow: Workflow, known: Iterable[Diagnostic]) -> list[Diagnostic]:
    """A notice for each rule and each map that lets a failure pass, unless the front end gave one."""
    if workflow.dialect in ("native", "python"):
        return []
    said = {(one.file, one.line) for one in known if one.code == CODE}
    found: dict[tuple[str, int], Diagnostic] = {}
    for step in steps_within((*workflow.steps, workflow.end)):
        for origin, message in _passing(step):
            at = origin if origin.line else step.origin
            place = (at.file or workflow.file, at.line)
            if place not in said:
                finding = Diagnostic(severity="notice", code=CODE, message=message, file=place[0], line=at.line,
                                     column=at.column)  # fmt: skip
                found.setdefault(place, finding)
    return [found[place] for place in sorted(found)]


def _passing(step: Step) -> Iterable[tuple[Origin, str]]:
    """The places in the file that let a failure of a step pass, each with the text of its notice."""
    for rule in step.rules:
        if rule.then == "tolerate" or _accepts(rule):
            if rule.when is not None:
                yield rule.origin, f"a failure of `{step.name}` that `{rule.text}` answers does not fail the run"
            else:
                yield rule.origin, f"a failure of `{step.name}` is tolerated (`{rule.text}`) and does not fail the run"
    policy = step.action.policy if isinstance(step.action, FanOut) else None
    if policy is not None and policy.continue_on_failure and policy.on_item_failure not in _COUNTED:
        yield step.origin, f"items of `{step.name}` that stay failed do not fail the run by themselves"


def _accepts(rule: Rule) -> bool:
    """Does a rule call a failed step recovered although nothing repaired it?"""
    return rule.then == "recovered" and rule.repair is None
