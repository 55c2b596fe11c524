"""Keeps the lease of a run for the engine that drives it."""

from __future__ import annotations

from typing import Protocol

from resile.engine.clock import Clock
from resile.store.contract import Lease, Store

LEASE_SECONDS = 30.0


class LeaseKeeper(Protocol):
    """Holds on to the right to drive a run."""

    next_renewal: float
    """When `keep` has something to do, by the clock of the run."""

    def keep(self) -> None:
        """Make sure that the lease is still held; raises LeaseHeld in a process that was stopped for too long."""


class OwnLease:
    """Renews the lease of one run, for an engine in a process of its own; see the protocol."""

    def __init__(self, store: Store, lease: Lease, clock: Clock) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self.next_renewal = clock.now() + LEASE_SECONDS / 3

    def keep(self) -> None:
        """Renew the lease in time; raises LeaseHeld if another engine has taken the run."""
        now = self._clock.now()
        if now >= self.next_renewal:
            self.next_renewal = now + LEASE_SECONDS / 3
            self._store.renew_lease(self._lease, now - self._clock.machine.clock_offset, LEASE_SECONDS)
