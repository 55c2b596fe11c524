"""How an engine hears of a commit: woken once, whenever it looks, and never again for the same one."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from resile.store.progress import Progress


@pytest.fixture
def progress() -> Iterator[Progress]:
    """A new one."""
    made = Progress()
    yield made
    made.close()


def is_up(progress: Progress) -> bool:
    """Would an engine that waits be woken?"""
    return bool(select.select([progress.fileno()], [], [], 0)[0])


def test_a_commit_wakes_until_it_is_asked_for(progress: Progress) -> None:
    """Moved, told, quiet; and the same once more."""
    for durable in (2, 4):
        progress.move(2)
        assert is_up(progress)
        assert progress.durable() == durable
        assert not is_up(progress)


def test_an_engine_that_wakes_while_it_is_told_is_not_woken_again(
    progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in the very moment of the signal, before the writing thread goes on: one answer is enough."""
    seen: list[tuple[int, bool]] = []
    write = os.eventfd_write

    def write_and_ask(descriptor: int, value: int) -> None:
        """The engine's thread comes in between."""
        write(descriptor, value)
        seen.append((progress.durable(), is_up(progress)))

    monkeypatch.setattr(os, "eventfd_write", write_and_ask)
    progress.move(1)
    assert seen == [(1, False)]


def test_an_engine_that_asks_before_it_is_told_is_still_quiet_afterwards(
    progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked between the number and the signal: the signal that follows is taken back by the next question."""
    seen: list[int] = []
    write = os.eventfd_write

    def ask_and_write(descriptor: int, value: int) -> None:
        """The engine's thread comes in before."""
        seen.append(progress.durable())
        write(descriptor, value)

    monkeypatch.setattr(os, "eventfd_write", ask_and_write)
    progress.move(1)
    assert seen == [1]
    assert is_up(progress)
    assert progress.durable() == 1
    assert not is_up(progress)
