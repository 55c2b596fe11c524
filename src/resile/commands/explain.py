"""Explains why a run, or one step of it, ended as it did."""

from __future__ import annotations

import time

from resile.commands.inspect import standing
from resile.engine.replay import row_of
from resile.errors import ResileError
from resile.explain.explanation import explain as explain_run
from resile.explain.explanation import explainable_names
from resile.explain.report import Explanation
from resile.model import codec
from resile.store.contract import RunRow, Store


def explain(store: Store, number: int, step: str | None = None) -> Explanation:
    """Explain the failures of a run, or everything about one step, job or item of it."""
    with store.reading():
        row = row_of(store, number)
        found = explain_run(store, row, standing(store, row, time.time()), step)
        if found is None:
            raise _unknown_step(store, row, step or "")
    return found


def _unknown_step(store: Store, row: RunRow, step: str) -> ResileError:
    """The error for a step that the run does not have, with the closest name as a hint."""
    from difflib import get_close_matches

    near = get_close_matches(step, explainable_names(codec.decode(store.definition(row.definition))), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"`resile status {row.id}` lists its steps"
    return ResileError("no-such-step", f"run {row.id} has no step or item {step!r}", hint=hint)
