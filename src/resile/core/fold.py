"""Folds a log into a state. The orders are dropped: a resume repeats those that are still open."""

from __future__ import annotations

from collections.abc import Iterable

from resile.core.events import Event
from resile.core.react import react
from resile.core.state import State


def fold(state: State, events: Iterable[Event]) -> State:
    """The state after these events."""
    for event in events:
        state, _ = react(state, event)
        state.touched.clear()
    return state
