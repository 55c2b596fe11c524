"""The launcher of another server of this machine that has ended, while attempts run in it that this one took over.

It starts nothing: its slots are those of this server, so that what runs there counts here too.
"""

from __future__ import annotations

from typing import Protocol

from resile.executors.local.server_executor import ServerExecutor
from resile.executors.shared.local_place import LocalPlace
from resile.executors.shared.places import Room


class Locked(Protocol):
    """The folder of a server, which no other can take meanwhile."""

    path: str

    def close(self) -> None:
        """Leave it to the next server."""


class Annex(LocalPlace):
    """A launcher that this server watches and does not use."""

    def __init__(self, folder: Locked, executor: ServerExecutor, local: LocalPlace, clock_shift: float) -> None:
        """Its attempts count as those of `local`; its clock is ahead of that of the hub."""
        super().__init__(executor, 0, frozenset(), Room(0.0, 0))
        self.folder = folder
        self.clock_shift = clock_shift
        self._local = local

    def take_slot(self) -> None:
        """One more attempt runs on this machine."""
        self._local.take_slot()

    def free_slot(self) -> None:
        """One attempt less runs on this machine."""
        self._local.free_slot()

    def is_done(self) -> bool:
        """Is there nothing left to watch, and everything recorded?"""
        return self.is_recorded() and not self.executor.has_attempts()

    def close(self) -> None:
        """Leave the launcher; one without attempts ends."""
        finished = self.is_done()
        if finished:
            self.executor.acknowledge_to(self.executor.reported_bytes)
        self.executor.close(finished=finished)
        self.folder.close()
