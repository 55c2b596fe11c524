"""The numbers of a host, for its metrics."""

from __future__ import annotations

from msgspec import Struct


class Statistics(Struct):
    """Counts of a host's work: in total, and at this moment."""

    slots: int
    driven: int = 0
    running: int = 0
    waiting: int = 0
    taken: int = 0
    ended: int = 0
    lease_losses: int = 0
    workers: int = 0
