"""Functions that the tests make steps of: workers find them here by their names."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from resile import current, step

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


@step
def tell() -> dict[str, Any]:
    """What this call is for, by the context and by the environment."""
    now = current()
    names = ("WORKFLOW_ID", "RUN_ID", "JOB_ID", "JOB_NAME", "ATTEMPT_ID", "RETURN_CODE")
    return {
        "current": [now.run, now.epoch, now.step, now.job, now.attempt],
        "env": [os.environ.get(f"RESILE_{name}") for name in names],
        "word": os.environ.get("WORD"),
    }


@step
async def tell_later() -> str:
    """The step that a coroutine runs for."""
    async with asyncio.timeout(SECONDS_MAX):
        return current().step


@step(env={"WORD": "own ${inputs.word}"})
def own_env() -> str | None:
    """A variable that only this step has."""
    return os.environ.get("WORD")


@step(when="${steps.give.output} > 1")
def only_when(text: str) -> str:
    """Runs when another step gave enough."""
    return text


@step(resources={"cpus": 1, "runtime": "200ms"}, on_failure=True, grace="100ms")
def takes_a_share() -> None:
    """Has less time than it takes."""
    wait_for_ever()


@step(resources={"memory": "64000g"})
def takes_too_much() -> None:
    """Wants more than any machine has."""


@step(needs=give)
def after_gives() -> str:
    """Waits for every call of another function."""
    return "last"


@step(needs="a|b")
def after_either() -> str:
    """Waits for steps by their names, one of which must be good."""
    return "either"


@step(on_success={"shell": "echo done > $RESILE_HANDLED"})
def followed() -> None:
    """Something follows when it succeeds."""


@step(on_failure={"run": ["fix"], "retry": {"max": 1}})
def mended(path: str) -> str:
    """Passes once another step has mended it."""
    return Path(path).read_text()


@step(name="fix")
def fix(path: str) -> None:
    """Mends, and leaves what it was told of the failure."""
    Path(path).write_text(" ".join(os.environ[f"RESILE_{name}"] for name in ("JOB_NAME", "RETURN_CODE", "ATTEMPT_ID")))


@step(name="end")
def finish(execution: dict[str, Any], verdict: str, first: Any) -> dict[str, Any]:
    """The last word about a run."""
    return {"workflow_status": verdict, "was": execution["status"], "failed": execution["failed_steps"], "first": first}


@step
def read(path: str) -> str:
    """What somebody writes into a pipe."""
    return Path(path).read_text()


@step(rules=[{"types": [ValueError], "max_retries": 1}], on_failure=True)
def fail_in_bytes(name: str) -> None:
    """Fails with a text that holds a byte which is no UTF-8, as names of files do."""
    raise ValueError(f"no file {name}")


@step
def by_name(name: str) -> str:
    """What is in a file of the directory."""
    return Path(name).read_text()


@step
def grow(size: int) -> str:
    """A long text."""
    return "x" * size


@step
def stay(path: str) -> None:
    """Says into a pipe that it has begun, and then takes for ever."""
    Path(path).write_text("begun")
    wait_for_ever()


@step
def stay_deaf(path: str) -> None:
    """The same, and does not end when it is told to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay(path)


@step
def end_well(path: str) -> str:
    """The same, and when it is told to end it gives something."""

    def leave_soon(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGTERM, leave_soon)
    try:
        stay(path)
    except TimeoutError:
        return "in time"
    return "late"


@step(on_failure=True)
def say_and_leave() -> None:
    """Prints, and ends its process."""
    print("farewell", flush=True)
    os._exit(0)


@step(name="mender")
def mend(path: str) -> None:
    """Mends, and leaves what it was told of the failure."""
    failed = current().failed
    assert failed is not None
    told = (failed.step, failed.job, failed.attempt, failed.kind, failed.exit_code, failed.message, failed.types[0])
    Path(path).write_text(repr(told))
