"""How each failure walked the rules of its job, for whoever folds a log again to explain it.

A driver does not listen, so its runs keep nothing of this; the log holds all that is needed to hear it once more.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from resile.core.state import State
from resile.model.failure import Failure

# Why a rule does not answer a failure; where none of these holds, it does.
PassedOver = Literal["no match", "off", "spent", "no more"]


class Passed(Struct, frozen=True, gc=False):
    """A rule that was looked at and did not answer, by its number; `used` of its `limit` were spent."""

    rule: int
    why: PassedOver
    used: int
    limit: int


class Walk(Struct, frozen=True, gc=False):
    """One walk: the rules passed over, then the one that answers, which `used` counts before; NO_RULE where none did.

    `seq` is that of the last note before it.
    """

    seq: int
    job: int
    failure: Failure
    passed: tuple[Passed, ...]
    rule: int
    used: int = 0
    limit: int = 0


def listen(state: State) -> list[Walk]:
    """From here on the walks of this state's failures are told; the list is the listener's to clear."""
    walks: list[Walk] = []
    state.__dict__["walks"] = walks
    return walks


def listeners(state: State) -> list[Walk] | None:
    """Where to tell of a walk, if anybody listens."""
    walks: list[Walk] | None = state.__dict__.get("walks")
    return walks
