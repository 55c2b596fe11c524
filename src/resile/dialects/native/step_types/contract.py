"""What the module of a step type has: a row that says by which key and Struct the type is known, and its writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from resile.model.workflow import Step, Workflow


class Inherited(Struct, frozen=True):
    """What a step takes over from the step or the workflow around it."""

    program: str = "sh"
    env: dict[str, str] = {}
    working_dir: str = ""


class StepWriter(Protocol):
    """Writes the steps and workflows that stand inside a step."""

    def steps(self, steps: tuple[Step, ...], end: Step | None, around: Inherited) -> Any:
        """The steps of a scope."""

    def workflow(self, workflow: Workflow) -> dict[str, Any]:
        """A workflow that stands in the step that calls it."""


Write = Callable[[Any, StepWriter, Inherited], dict[str, Any]]
"""The keys of a step that say what it does, from its action."""


class StepType(Struct, frozen=True):
    """One step type: the key that stands for it, the Struct of its action, and how that is written."""

    key: str
    struct: type
    write: Write
