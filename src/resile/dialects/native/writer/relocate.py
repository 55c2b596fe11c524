"""Moves a workflow to another folder: relative paths are rewritten to point to the same files.

These are env_files, secrets in files, Python files, files of functions and existing input files, also those of child
workflows. Absolute paths and paths with references stay unchanged.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from resile.model.workflow import Action, Child, FanOut, Function, Python, Rule, Step, Workflow


def relocate(workflow: Workflow, folder: str) -> Workflow:
    """Rewrite the paths of a workflow for that folder."""
    return _Move(workflow.folder, folder).workflow(workflow)


class _Move:
    """A move from one folder to another."""

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after
        self.stays = os.path.realpath(before) == os.path.realpath(after)

    def path(self, path: str) -> str:
        """Rewrite a path relative to the file."""
        if self.stays or not path or os.path.isabs(path) or "${" in path or "{{" in path:
            return path
        return os.path.relpath(os.path.join(self.before, path), self.after)

    def workflow(self, workflow: Workflow) -> Workflow:
        """Rewrite a workflow."""
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
        """Rewrite a step and the steps inside it."""
        success = step.on_success
        if success is not None and success.steps:
            success = replace(success, steps=tuple(self.step(inner) for inner in success.steps))
        return replace(step, action=self.action(step.action), rules=self.rules(step.rules), on_success=success)

    def rules(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """Rewrite the repairs of rules."""
        return tuple(
            replace(rule, repair=replace(rule.repair, steps=tuple(self.step(inner) for inner in rule.repair.steps)))
            if rule.repair is not None and rule.repair.steps
            else rule
            for rule in rules
        )

    def action(self, action: Action) -> Action:
        """Rewrite the action of a step."""
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
