"""`isolation: auto`: the folder in which the run starts decides, once, whether the items of a map get worktrees.

    the workflow with `auto` --settle_isolation--> with `worktree` in a git checkout that has a commit, else with `none`

The run's definition stores the decision, so that a resume, a rerun and `dlq retry` follow it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from resile.errors import ResileError
from resile.model.nested import steps_with_inner_workflows, steps_within
from resile.model.workflow import Child, FanOut, Step, Workflow


def settle_isolation(workflow: Workflow, directory: str) -> tuple[Workflow, bool]:
    """The workflow with every `auto` decided, the same one if it has none; and whether that means worktrees."""
    inner = steps_within(steps_with_inner_workflows((*workflow.steps, workflow.end)))
    if not any(isinstance(step.action, FanOut) and step.action.isolation == "auto" for step in inner):
        return workflow, False
    is_in_checkout = _is_in_checkout(directory)
    return _decide(workflow, is_in_checkout), is_in_checkout


def _is_in_checkout(directory: str) -> bool:
    """Is a folder in a git checkout that has a commit? Raises ResileError if git is there and gives no answer."""
    from shutil import which

    if which("git") is None:
        return False
    from resile.engine.actions.git import NoAnswer, find_head

    try:
        return bool(find_head(directory))
    except NoAnswer as problem:
        raise ResileError("git", f"it is not known whether items need worktrees: {problem}", where=directory) from None


def _decide(workflow: Workflow, is_in_checkout: bool) -> Workflow:
    """A workflow with the decision in all its maps, at any depth."""

    def settle(steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(settle_one(step) for step in steps)

    def settle_one(step: Step) -> Step:
        action = step.action
        if isinstance(action, FanOut):
            decided = "worktree" if is_in_checkout else "none"
            isolation = decided if action.isolation == "auto" else action.isolation
            action = replace(action, isolation=isolation, steps=settle(action.steps))
        elif isinstance(action, Child):
            action = replace(action, workflow=_decide(action.workflow, is_in_checkout))
        rules = tuple(
            rule if rule.repair is None else replace(rule, repair=replace(rule.repair, steps=settle(rule.repair.steps)))
            for rule in step.rules
        )
        after = step.on_success and replace(step.on_success, steps=settle(step.on_success.steps))
        return replace(step, action=action, rules=rules, on_success=after)

    return replace(workflow, steps=settle(workflow.steps), end=settle_one(workflow.end))
