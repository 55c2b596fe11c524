"""The document of `rerun --changed --dry-run` and `run --cached --dry-run`: the steps that run, and why."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from resile.commands.documents.base import Document


class ChangedStep(Struct, frozen=True):
    """A step that runs, and why."""

    step: str
    reason: Literal["command", "reads", "outputs", "needs", "new"]
    detail: str


class Changes(Document, frozen=True, kw_only=True):
    """The steps that run, in the order of the file; all others keep their results."""

    steps: list[ChangedStep]
