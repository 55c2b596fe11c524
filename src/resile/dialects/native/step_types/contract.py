"""The contract of a step type: one row with its key, the Struct of its action, its reader and its writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping
from resile.dialects.native.context import Defaults, NativeReading
from resile.dialects.reading.key_tables import Key, Table
from resile.model.workflow import Action, Step, Workflow


class Inherited(Struct, frozen=True):
    """Settings that a step inherits from the step or the workflow around it."""

    program: str = "sh"
    env: dict[str, str] = {}
    working_dir: str = ""


class StepWriter(Protocol):
    """Writes parts of an action: values, and the steps and workflows inside it."""

    def fields(self, value: Struct, known: Table, *only: str) -> dict[str, Any]:
        """Write the fields of a model value that differ from their defaults, by the rows of its table."""

    def steps(self, steps: tuple[Step, ...], end: Step | None, around: Inherited) -> Any:
        """Write the steps of a scope."""

    def workflow(self, workflow: Workflow) -> dict[str, Any]:
        """Write an inline workflow."""


class StepType(Struct, frozen=True):
    """One step type of the native file.

    `key` is its row in the table of a step, `aliases` are rows of other words for it, `struct` is the Struct of its
    action. `build` makes the action from the fields of the step; without it, the value of the key is the action.
    `write` writes the action; without it, the rows of `keys` or the fields of the Struct decide. `short` is the key
    that can replace the whole mapping. `beside` are keys that this type takes and some others do not. A type that
    `makes_commits` can have `commit_required`.
    """

    key: Key
    struct: type
    keys: Table | None = None
    short: str = ""
    build: Callable[[NativeReading, str, Mapping, dict[str, Any], Defaults], Action] | None = None
    write: Callable[[Any, StepWriter, Inherited], dict[str, Any]] | None = None
    beside: tuple[str, ...] = ()
    makes_commits: bool = True
    aliases: tuple[Key, ...] = ()
