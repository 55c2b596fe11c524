"""Evaluations beside the loop: who has the turn, what waits for what, and what becomes of those that are dropped."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from resile.engine.evaluation import beside
from resile.engine.evaluation.beside import Evaluations, Take
from resile.languages.bounded import call_bounded

DEADLINE_SECONDS = 30.0


class Loop:
    """A loop that does nothing but evaluate; `log` is what happened, in order."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self._woken, self._wake = os.pipe()
        self._gates: dict[str, tuple[int, int]] = {}
        self.now = 100.0
        self.evaluations = Evaluations(lambda: os.write(self._wake, b"!") and None, lambda: self.now)

    def begin(self, name: str, *, writes: bool = False) -> None:
        """Begin an evaluation that waits for a process, which ends when `open_gate` is called."""
        read, _ = self._gates[name] = os.pipe()

        def make() -> str:
            """Evaluate."""
            self.log.append(f"{name} begins")
            return str(call_bounded(lambda: os.read(read, 9).decode()))

        self.evaluations.begin(name, make, lambda take: self.log.append((name, take())), writes=writes)

    def open_gate(self, name: str, answer: str) -> None:
        """Let the process of an evaluation answer."""
        os.write(self._gates[name][1], answer.encode())

    def turn(self) -> None:
        """Wait until an evaluation wakes the loop up, and let it go on."""
        assert select.select([self._woken], [], [], DEADLINE_SECONDS)[0]
        os.read(self._woken, 1)
        self.evaluations.go_on()

    def close(self) -> None:
        """End everything."""
        self.evaluations.close()
        for name in self._gates:
            self.open_gate(name, "over")
        for thread in threading.enumerate():
            if thread.name == "resile-evaluation":
                thread.join(DEADLINE_SECONDS)
        assert "resile-evaluation" not in {thread.name for thread in threading.enumerate()}
        for ends in ((self._woken, self._wake), *self._gates.values()):
            for descriptor in ends:
                with suppress(OSError):
                    os.close(descriptor)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop whose threads have all ended after the test."""
    made = Loop()
    yield made
    made.close()


def test_an_evaluation_that_does_not_wait_ends_where_it_begins(loop: Loop) -> None:
    """Its result is there when `begin` returns, and so is that of one whose process answers at once."""
    loop.evaluations.begin("a", lambda: 1, lambda take: loop.log.append(take()), writes=False)
    assert loop.log == [1]
    assert not loop.evaluations.are_open()


def test_one_that_waits_leaves_the_turn_to_others(loop: Loop) -> None:
    """Once they are slow they end in the order in which they are answered, each in a turn of the loop."""
    loop.begin("a")
    loop.begin("b")
    assert loop.log == ["a begins", "b begins"]
    loop.now += beside.HOLD_SECONDS
    loop.open_gate("b", "2")
    loop.turn()
    assert loop.log[2:] == [("b", "2")]
    assert loop.evaluations.are_open()
    loop.open_gate("a", "1")
    loop.turn()
    assert loop.log[3:] == [("a", "1")]
    assert not loop.evaluations.are_open()


def test_quick_ones_end_in_the_order_in_which_they_began(loop: Loop) -> None:
    """One that is answered early, or does not wait at all, is held for those before it."""
    loop.begin("a")
    loop.begin("b")
    loop.evaluations.begin("c", lambda: 3, lambda take: loop.log.append(("c", take())), writes=False)
    loop.open_gate("b", "2")
    loop.turn()
    assert loop.log == ["a begins", "b begins"]
    assert loop.evaluations.deadline == loop.now + beside.HOLD_SECONDS
    loop.open_gate("a", "1")
    loop.turn()
    assert loop.log[2:] == [("a", "1"), ("b", "2"), ("c", 3)]
    assert loop.evaluations.deadline == beside.NEVER


def test_a_slow_one_holds_no_longer_than_the_deadline(loop: Loop) -> None:
    """At the deadline those that wait for it end without it; a second one that began later holds them on."""
    loop.begin("a")
    loop.now += beside.HOLD_SECONDS / 2
    loop.begin("b")
    loop.begin("c")
    loop.open_gate("c", "3")
    loop.turn()
    loop.now = loop.evaluations.deadline
    loop.evaluations.go_on()
    assert ("c", "3") not in loop.log
    assert loop.evaluations.deadline == loop.now + beside.HOLD_SECONDS / 2
    loop.now = loop.evaluations.deadline
    loop.evaluations.go_on()
    assert loop.log[3:] == [("c", "3")]
    assert loop.evaluations.deadline == beside.NEVER
    assert loop.evaluations.are_open()


def test_writers_wait_for_the_writer_before(loop: Loop) -> None:
    """A second writer begins after the end of the first, whatever else begins and ends in between."""
    loop.begin("w1", writes=True)
    loop.begin("w2", writes=True)
    loop.begin("r")
    assert loop.log == ["w1 begins", "r begins"]
    loop.now += beside.HOLD_SECONDS
    loop.open_gate("r", "0")
    loop.turn()
    loop.open_gate("w1", "1")
    loop.turn()
    loop.open_gate("w2", "2")
    loop.turn()
    assert loop.log[2:] == [("r", "0"), ("w1", "1"), "w2 begins", ("w2", "2")]


def test_one_that_is_dropped_never_ends(loop: Loop) -> None:
    """Neither the one that waits nor the one that has not begun; their threads serve others."""
    loop.begin("w1", writes=True)
    loop.begin("w2", writes=True)
    assert [loop.evaluations.drop(name) for name in ("w1", "w2", "other")] == [True, True, False]
    assert not loop.evaluations.are_open()
    loop.open_gate("w1", "1")
    loop.turn()
    loop.begin("w3", writes=True)
    loop.open_gate("w3", "3")
    loop.turn()
    assert loop.log == ["w1 begins", "w3 begins", ("w3", "3")]


def test_a_later_one_of_the_same_key_replaces_the_first(loop: Loop) -> None:
    """Only the answer to the second counts."""
    loop.begin("a")
    first = loop._gates["a"]
    loop.begin("a")
    os.write(first[1], b"1")
    loop.turn()
    loop.open_gate("a", "2")
    loop.turn()
    assert loop.log == ["a begins", "a begins", ("a", "2")]
    for descriptor in first:
        os.close(descriptor)


def test_more_than_there_are_threads_for_wait(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin in order, when a thread is free."""
    monkeypatch.setattr(beside, "EVALUATIONS_MAX", 2)
    for name in "abc":
        loop.begin(name)
    assert loop.log == ["a begins", "b begins"]
    loop.open_gate("b", "2")
    loop.turn()
    assert loop.log[2:] == ["c begins"]
    loop.now += beside.HOLD_SECONDS
    loop.evaluations.go_on()
    assert loop.log[3:] == [("b", "2")]


def test_an_error_is_raised_in_the_loop(loop: Loop) -> None:
    """Whoever takes the result gets what the evaluation raised, and the thread goes on."""

    def divide() -> float:
        """Fail."""
        return 1 / 0

    def expect(take: Take) -> None:
        """Take the error."""
        with pytest.raises(ZeroDivisionError):
            take()
        loop.log.append("raised")

    for key in "ab":
        loop.evaluations.begin(key, divide, expect, writes=False)
    assert loop.log == ["raised", "raised"]
