"""Where an evaluation waits for another process, its caller may do something else.

    engine           runs an evaluation in a thread, and calls `set_turn` there (engine/evaluation/beside.py)
    bounded.py, ...  with waiting(): the wait for the answer of another process

Without a turn, as in a command that checks a file, `waiting` does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Protocol


class Abandoned(BaseException):
    """The engine dropped the evaluation. No evaluation may catch this, so it is no `Exception`."""


class Turn(Protocol):
    """The right to use the state of a run, which an evaluation gives back while it waits."""

    def pause(self) -> None:
        """The wait begins."""

    def go_on(self) -> None:
        """The wait is over: return when the evaluation has the turn again; raises Abandoned if it never gets it."""


class _Current(local):
    """The turn of each thread."""

    turn: Turn | None = None


_current = _Current()


def set_turn(turn: Turn) -> None:
    """Name the turn of the evaluations of this thread."""
    _current.turn = turn


@contextmanager
def waiting() -> Iterator[None]:
    """Wait in this block for another process, without touching the state of a run."""
    turn = _current.turn
    if turn is None:
        yield
        return
    turn.pause()
    try:
        yield
    finally:
        turn.go_on()
