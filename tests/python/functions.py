"""Functions that the tests make steps of: workers find them here by their names."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from resile import step

SECONDS_MAX = 60.0


class Point(NamedTuple):
    """Something that JSON does not bring back as it was."""

    x: int
    y: int


class Busy(ConnectionError):
    """An exception of ours below a built-in one."""


def mark(path: str, word: str) -> int:
    """Add a word to a file; how many there are now."""
    with open(path, "a") as file:
        file.write(word + "\n")
    return len(Path(path).read_text().split())


def wait_for_ever() -> None:
    """Wait until somebody ends this, or until the test has failed anyway."""
    threading.Event().wait(SECONDS_MAX)


@step
def give(value: Any) -> Any:
    """Its argument."""
    return value


@step
def add(*numbers: int) -> int:
    """A sum."""
    return sum(numbers)


@step
def point(x: int, y: int) -> Point:
    """A point."""
    return Point(x, y)


@step
def right(of: Point, by: int = 1) -> Point:
    """The point beside one."""
    return Point(of.x + by, of.y)


@step
async def later(value: int) -> int:
    """A value, by a coroutine."""
    async with asyncio.timeout(SECONDS_MAX):
        return value + 1


@step
def say(text: str) -> int:
    """Prints, and tells its process."""
    print(text)
    return os.getpid()


@step(name="plain")
def fail(text: str) -> None:
    """Fails."""
    raise ValueError(text)


@step(on_failure=True)
def fail_softly(text: str) -> None:
    """Fails, and lets the others go on."""
    raise ValueError(text)


@step(on_failure=True)
def leave(code: int) -> None:
    """Ends its process."""
    os._exit(code)


@step(on_failure=True)
def die() -> None:
    """Is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


@step(on_failure=True)
def quit_softly() -> None:
    """Asks Python to end."""
    raise SystemExit(7)


@step(retry={"max": 2})
def third_time(path: str) -> int:
    """Passes when it is called for the third time."""
    count = mark(path, "called")
    if count < 3:
        raise RuntimeError(f"call {count}")
    return count


@step(rules=[{"types": [ConnectionError], "max_retries": 2}])
def by_type(path: str, kind: str) -> int:
    """Fails twice, as it is told."""
    count = mark(path, kind)
    if count < 3:
        raise Busy("busy") if kind == "busy" else ValueError("wrong")
    return count


@step(on_failure={"shell": 'echo "${error.message}" > $RESILE_HANDLED', "strategy": "fallback"})
def handled() -> None:
    """Fails, and a command answers."""
    raise KeyError("missing")


@step(timeout="200ms", grace="100ms", on_failure=True)
def slow(path: str) -> None:
    """Takes too long."""
    mark(path, "began")
    wait_for_ever()


@step(park=True)
def parked() -> None:
    """Fails, and waits for a judge."""
    raise RuntimeError("look at this")


@step(critical=True)
def critical() -> None:
    """Fails, and takes the others along."""
    raise RuntimeError("stop")


@step(rerun_on_loss="never")
def once() -> None:
    """Is not run again when it was lost."""


@step(on_failure=True)
def large() -> str:
    """Gives more than can be kept."""
    return "x" * (5 * 1024 * 1024)


@step(on_failure=True)
def strange() -> Callable[[], None]:
    """Gives what can't be carried."""
    return lambda: None


@step
def odd(number: int) -> int:
    """Its argument, if that is odd."""
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number
