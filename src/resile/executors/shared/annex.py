"""Annexes: launchers of servers of this machine that have ended; this server has taken over their attempts.

An annex starts nothing. Each attempt that runs in it takes a slot of this server.
"""

from __future__ import annotations

from typing import Protocol

from resile.executors.local.server_executor import ServerExecutor
from resile.executors.shared.local_place import LocalPlace
from resile.executors.shared.places import Room


class Locked(Protocol):
    """The locked folder of a server: no other server can lock it before `close`."""

    path: str

    def close(self) -> None:
        """Unlock it for the next server."""


class Annex(LocalPlace):
    """A launcher whose attempts this server watches, and in which it starts none."""

    def __init__(self, folder: Locked, executor: ServerExecutor, local: LocalPlace, clock_shift: float) -> None:
        """Its attempts take slots of `local`; its clock is `clock_shift` seconds ahead of the hub's."""
        super().__init__(executor, 0, frozenset(), Room(0.0, 0))
        self.folder = folder
        self.clock_shift = clock_shift
        self._local = local

    def take_slot(self) -> None:
        """Count one more attempt on this machine."""
        self._local.take_slot()

    def free_slot(self) -> None:
        """Count one attempt less on this machine."""
        self._local.free_slot()

    def is_done(self) -> bool:
        """Have all its attempts ended, and have the engines recorded that?"""
        return self.is_recorded() and not self.executor.has_attempts()

    def close(self) -> None:
        """Disconnect from the launcher, which then exits if it has no attempts; unlock its folder."""
        finished = self.is_done()
        if finished:
            self.executor.acknowledge_to(self.executor.reported_bytes)
        self.executor.close(finished=finished)
        self.folder.close()
