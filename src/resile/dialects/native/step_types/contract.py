"""The contract of a step type: a row with its key, the Struct of its action, and its writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from resile.model.workflow import Step, Workflow


class Inherited(Struct, frozen=True):
    """Settings that a step inherits from the step or the workflow around it."""

    program: str = "sh"
    env: dict[str, str] = {}
    working_dir: str = ""


class StepWriter(Protocol):
    """Writes the steps and workflows inside a step."""

    def steps(self, steps: tuple[Step, ...], end: Step | None, around: Inherited) -> Any:
        """Write the steps of a scope."""

    def workflow(self, workflow: Workflow) -> dict[str, Any]:
        """Write an inline workflow."""


Write = Callable[[Any, StepWriter, Inherited], dict[str, Any]]
"""Writes the keys of a step that describe its action."""


class StepType(Struct, frozen=True):
    """One step type: its key, the Struct of its action, and the writer."""

    key: str
    struct: type
    write: Write
