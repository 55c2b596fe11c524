"""The document of `run --dry-run`: the order of the steps, and what each of them would run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.commands.documents.base import Document


class PlannedStep(Struct, frozen=True, kw_only=True):
    """One step as it would run.

    `runs` is its command, prompt, request or the like; values that only the run knows stay as they are written.
    `needs` are the steps that it waits for, `arcs_from` those whose `next` leads to it. `steps` are those of a map's
    items or of a child workflow.
    """

    step: str
    action: str
    runs: str
    needs: list[str] = []
    arcs_from: list[str] = []
    when: str | None = None
    steps: list[PlannedStep] = []


class RunPlan(Document, frozen=True, kw_only=True):
    """What `run` would do: groups of steps, one after the other; steps of one group may run at the same time.

    `called` are steps that run only when another step calls them. Steps in `left_out` count as done.
    """

    workflow: str
    dialect: str
    file: str
    max_parallel: int
    inputs: dict[str, Any]
    steps: int
    groups: list[list[PlannedStep]]
    called: list[PlannedStep]
    end: PlannedStep
    left_out: list[str]
    warnings: list[str]
