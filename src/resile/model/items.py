"""Items of a fan-out, their failures, and the dead letters that keep them."""

from typing import Any, Literal

from msgspec import Struct

LetterReason = Literal["failed", "stopped", "not_started", "circuit_open", "canceled"]


class ItemFailure(Struct, frozen=True, array_like=True, gc=False):
    """One failed execution of an item: the step, the failure, and the job and attempt whose logs show it.

    `scope` is the scope of that execution; it is stored where a rerun can go on with it.
    """

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
    scope: int = 0


class Item(Struct, frozen=True, array_like=True, gc=False):
    """One element: its index in the input, its value, and its failures so far."""

    index: int
    value: Any
    history: tuple[ItemFailure, ...] = ()


class DeadLetter(Struct, frozen=True, gc=False):
    """An item that failed for good or never started, kept for a redrive.

    `name` is the unique name of its fan-out in the run (`outer[3]/inner`), `map` that name without item indexes
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
    """A closed scope with its jobs, stored for a redrive of dead letters inside it, or for a rerun that goes on in it.

    `outer` is the scope around it.
    """

    scope: int
    outer: int
    body: dict[str, Any]


class LetterGroup(Struct, frozen=True, array_like=True, gc=False):
    """The letters of one fan-out in a redrive: `total` of them, from byte `offset` of the items file.

    `around` are the stored scopes around the fan-out, outermost first.
    """

    name: str
    job: int
    total: int
    offset: int
    around: tuple[dict[str, Any], ...] = ()
