"""The document of `resources`: what the steps of a run asked for and used, and what to ask for next time."""

from __future__ import annotations

from msgspec import Struct

from resile.commands.documents.base import Document
from resile.commands.documents.recovery import Granted


class Suggested(Struct, frozen=True, kw_only=True):
    """What to ask for next time; null where nothing was measured."""

    memory_bytes: int | None


class AttemptSeries(Struct, frozen=True, kw_only=True):
    """The samples of one attempt: seconds since its first, resident bytes of all its processes, percent of one CPU."""

    job: int
    attempt: int
    samples: list[tuple[float, int, float]]


class StepResources(Struct, frozen=True, kw_only=True):
    """One step over all its attempts, those of items included.

    `requested` is what the file asks for, `granted` the most that an attempt had. `peak_bytes` is the largest peak,
    `p95_bytes` the peak that 95 % of the attempts stay within; seconds and bytes of reading and writing are sums.
    """

    step: str
    attempts: int
    requested: Granted
    granted: Granted
    peak_bytes: int
    p95_bytes: int
    cpu_seconds: float
    wall_seconds: float
    io_bytes: int
    suggested: Suggested
    series: list[AttemptSeries]


class RunResources(Document, frozen=True, kw_only=True):
    """What the steps of a run used."""

    run: int
    workflow: str
    steps: list[StepResources]
