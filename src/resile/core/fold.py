"""Folding a log into a state, with the orders that are still owed dropped: a resume asks for them again."""

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
