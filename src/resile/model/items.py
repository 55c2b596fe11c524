"""Items: what a fan-out runs over, how one failed, and the dead letter that keeps it."""

from typing import Any, Literal

from msgspec import Struct

LetterReason = Literal["failed", "stopped", "not_started", "circuit_open", "canceled"]


class ItemFailure(Struct, frozen=True, array_like=True, gc=False):
    """One execution of an item that failed: at which step, how, and whose logs tell of it."""

    number: int
    at: float
    step: str
    kind: str
    message: str
    exit_code: int | None = None
    stderr: str = ""
    signature: str = ""
    seconds: float = 0.0
    job: int = 0
    attempt: int = 0
    epoch: int = 1


class Item(Struct, frozen=True, array_like=True, gc=False):
    """One element: its place in the input, what it is, and how it failed in earlier drives."""

    index: int
    value: Any
    history: tuple[ItemFailure, ...] = ()


class DeadLetter(Struct, frozen=True, gc=False):
    """An item that failed for good or never started, kept for redrive.

    `name` is that of its fan-out among all of a run (`outer[3]/inner`), `map` the same for all items around it
    (`outer/inner`). `job` and `scope` are the fan-out's.
    """

    name: str
    map: str
    step: str
    job: int
    scope: int
    item: Item
    reason: LetterReason
    at: float


class KeptScope(Struct, frozen=True, gc=False):
    """A scope that is over, with its jobs, as a redrive of dead letters inside it needs it; `outer` is around it."""

    scope: int
    outer: int
    body: dict[str, Any]


class LetterGroup(Struct, frozen=True, array_like=True, gc=False):
    """The letters of one fan-out in a redrive: so many, from a byte of the items file on.

    `around` are the kept scopes that the fan-out lies in, outermost first.
    """

    name: str
    job: int
    total: int
    offset: int
    around: tuple[dict[str, Any], ...] = ()
