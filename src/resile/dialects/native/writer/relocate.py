"""A workflow whose file is going to stand in another folder: paths beside the old file are found from the new one.

Those are env_files, secrets in files, Python files, files of functions and input files that are there; workflows that
steps call come along. A path that is absolute, or that a value decides on, stays as it is.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from resile.model.fanout import FanOut
from resile.model.rules import Rule
from resile.model.workflow import Action, Child, Function, Python, Step, Workflow


def relocate(workflow: Workflow, folder: str) -> Workflow:
    """The workflow as its file in that folder must say it; the same object where nothing moves."""
    move = _Move(workflow.folder, folder)
    if move.stays and not _has_child_workflows(workflow):
        return workflow
    return move.workflow(workflow)


def _has_child_workflows(workflow: Workflow) -> bool:
    """Is there another workflow in this one?"""
    steps = [*workflow.steps, workflow.end]
    while steps:
        step = steps.pop()
        if isinstance(step.action, Child):
            return True
        if isinstance(step.action, FanOut):
            steps += step.action.steps
        steps += [inner for rule in step.rules if rule.repair is not None for inner in rule.repair.steps]
        steps += step.on_success.steps if step.on_success is not None else ()
    return False


class _Move:
    """From one folder to another."""

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after
        self.stays = os.path.realpath(before) == os.path.realpath(after)

    def path(self, path: str) -> str:
        """A path beside the file."""
        if self.stays or not path or os.path.isabs(path) or "${" in path or "{{" in path:
            return path
        return os.path.relpath(os.path.join(self.before, path), self.after)

    def workflow(self, workflow: Workflow) -> Workflow:
        """All of a workflow."""
        return replace(
            workflow,
            folder=self.after,
            env_files=tuple(self.path(path) for path in workflow.env_files),
            secrets={name: replace(secret, file=self.path(secret.file)) for name, secret in workflow.secrets.items()},
            steps=tuple(self.step(step) for step in workflow.steps),
            end=self.step(workflow.end),
            failure_handlers={name: self.rules(rules) for name, rules in workflow.failure_handlers.items()},
        )

    def step(self, step: Step) -> Step:
        """A step with all that it runs."""
        success = step.on_success
        if success is not None and success.steps:
            success = replace(success, steps=tuple(self.step(inner) for inner in success.steps))
        return replace(step, action=self.action(step.action), rules=self.rules(step.rules), on_success=success)

    def rules(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """Rules with their repairs."""
        return tuple(
            replace(rule, repair=replace(rule.repair, steps=tuple(self.step(inner) for inner in rule.repair.steps)))
            if rule.repair is not None and rule.repair.steps
            else rule
            for rule in rules
        )

    def action(self, action: Action) -> Action:
        """What a step does."""
        match action:
            case Python(file=file) | Function(file=file) if file:
                return replace(action, file=self.path(file))
            case Child():
                inner = _Move(action.workflow.folder, self.after)
                return replace(action, workflow=inner.workflow(action.workflow))
            case FanOut():
                source = action.source
                if source.path and os.path.exists(os.path.join(self.before, source.path)):
                    source = replace(source, path=self.path(source.path))
                return replace(action, source=source, steps=tuple(self.step(step) for step in action.steps))
        return action
