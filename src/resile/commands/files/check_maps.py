"""Finds maps whose items work in one git checkout at the same time: they commit each other's changes.

A map is found if it runs several items at a time without `isolation: worktree`, and if a step of its items is an agent
or a `git commit` in a folder that all items share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from resile.errors import Diagnostic
from resile.model.nested import handler_steps, steps_with_inner_steps, workflows_within
from resile.model.workflow import Agent, Child, FanOut, Shell, Step, Workflow

_COMMIT = re.compile(r"\bgit\b[^\n|;&]{0,200}\bcommit\b")


def check_maps(workflow: Workflow) -> list[Diagnostic]:
    """A warning for each map of a native file whose items share the checkout around the current folder."""
    found = [
        (flow, step)
        for flow in workflows_within(workflow)
        if flow.dialect == "native"
        for step, action in _maps_among(flow.steps)
        if _runs_side_by_side(flow, action) and _changes_tree(action.steps)
    ]
    return [_finding(flow, step) for flow, step in found] if found and is_in_git(os.getcwd()) else []


def is_in_git(folder: str) -> bool:
    """Is a folder inside a git repository?"""
    while not os.path.exists(os.path.join(folder, ".git")):
        outer = os.path.dirname(folder)
        if outer == folder:
            return "GIT_DIR" in os.environ
        folder = outer
    return True


def _maps_among(steps: Iterable[Step]) -> Iterator[tuple[Step, FanOut]]:
    """The maps among these steps and among those of their items, each with its action."""
    for step in steps_with_inner_steps(steps):
        if isinstance(step.action, FanOut):
            yield step, step.action
            yield from _maps_among(step.action.steps)


def _runs_side_by_side(flow: Workflow, action: FanOut) -> bool:
    """May two items of a map run at the same time in one folder?"""
    return action.isolation == "none" and action.max_parallel != 1 and flow.max_parallel != 1


def _changes_tree(steps: Iterable[Step]) -> bool:
    """Does one of these steps, or of their inner steps, commit or run an agent in the folder that the items share?"""
    for step in steps:
        if "${item" in step.working_dir:
            continue
        match step.action:
            case Agent():
                return True
            case Shell(command=command) if _COMMIT.search(command):
                return True
            case FanOut(isolation="none", steps=inner) | Child(workflow=Workflow(steps=inner)) if _changes_tree(inner):
                return True
        if _changes_tree(handler_steps(step)):
            return True
    return False


def _finding(flow: Workflow, step: Step) -> Diagnostic:
    """The warning for one map."""
    return Diagnostic(
        severity="warning",
        code="shared-folder",
        message=f"the items of `{step.name}` commit or run an agent at the same time, and share one folder",
        file=step.origin.file or flow.file,
        line=step.origin.line,
        column=step.origin.column,
        hint="`isolation: worktree` gives each item its own; `max_parallel: 1` runs one after the other",
    )
