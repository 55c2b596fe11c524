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
    """An item that failed for good or never started, kept for redrive; `job` is the fan-out's."""

    job: int
    step: str
    item_id: str
    item: Item
    reason: LetterReason
    at: float
