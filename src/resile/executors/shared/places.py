"""The contract of places, which run attempts of many runs: the slots of this machine, and workers.

A place has labels, free slots, and room: CPUs, memory, GPUs. The hub gives a place only attempts whose labels it has,
and for which it has a slot and room. `View` is how the hub and the places see a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from resile.executors.contract import Launch, Report, Share
from resile.executors.local.executor import LocalExecutor
from resile.executors.local.shared_records import epoch_of, run_of

__all__ = ["Key", "Mark", "Place", "Placed", "Room", "Surroundings", "View", "WorkerBook", "epoch_of", "run_of"]

Key = tuple[int, int]


class Place(Protocol):
    """Runs attempts of many runs, and reports their starts and ends to the views of the runs (view.py)."""

    name: str
    """The name of a worker; empty for the server's own slots."""
    labels: frozenset[str]
    room: Room

    def has_slot(self) -> bool:
        """May one more attempt be started here?"""

    def start(self, profile: int, launch: Launch) -> None:
        """Start an attempt of the run with this profile; `flush` sends it."""

    def flush(self) -> None:
        """Send the attempts that `start` collected since the last call."""

    def kill(self, profile: int, job: int, attempt: int) -> None:
        """End an attempt, or withdraw one that has not started."""


class LauncherPlace(Place, Protocol):
    """A place that is a launcher of this machine."""

    def take_slot(self) -> None:
        """Count an attempt that was found running here."""

    def free_slot(self) -> None:
        """Count an attempt that has ended."""

    def acknowledge(self) -> None:
        """Let the launcher forget what all views have recorded."""


class Room:
    """The CPUs, memory and GPUs of a place: all of them (`whole`), and what attempts have left free."""

    def __init__(self, cpus: float, memory_bytes: int, gpus: Iterable[str] = ()) -> None:
        self.whole = Share(cpus, memory_bytes, len(tuple(gpus)))
        self.cpus = cpus
        self.memory_bytes = memory_bytes
        self.gpus = list(gpus)

    def fits(self, share: Share) -> bool:
        """Is this share free?"""
        # A share of a CPU is a float: allow for the rounding of sums.
        fits_cpus = share.cpus <= self.cpus + 1e-9
        return fits_cpus and share.memory_bytes <= self.memory_bytes and share.gpus <= len(self.gpus)

    def take(self, share: Share) -> tuple[str, ...]:
        """Take this share for an attempt; return the names of its GPUs."""
        self.cpus -= share.cpus
        self.memory_bytes -= share.memory_bytes
        gpus = tuple(self.gpus[: share.gpus])
        del self.gpus[: share.gpus]
        return gpus

    def take_again(self, share: Share, gpus: Iterable[str]) -> None:
        """Take the share and the GPUs of an attempt that already runs here."""
        self.cpus -= share.cpus
        self.memory_bytes -= share.memory_bytes
        self.gpus = [name for name in self.gpus if name not in set(gpus)]

    def give_back(self, share: Share, gpus: Iterable[str]) -> None:
        """Give back the share and the GPUs of an attempt."""
        self.cpus += share.cpus
        self.memory_bytes += share.memory_bytes
        self.gpus.extend(gpus)


class Mark:
    """A position in the launcher's lines; `views` counts the views that have reports up to it and must record them."""

    __slots__ = ("place", "reported_bytes", "views")

    def __init__(self, place: LauncherPlace, reported_bytes: int) -> None:
        self.place = place
        self.reported_bytes = reported_bytes
        self.views = 0


class Placed:
    """An attempt in a place, and its share of it; `launcher` is the place too if that is a launcher of this machine."""

    __slots__ = ("gpus", "launcher", "place", "share", "started")

    def __init__(
        self,
        place: Place,
        share: Share,
        gpus: tuple[str, ...],
        started: bool = False,
        launcher: LauncherPlace | None = None,
    ) -> None:
        self.place = place
        self.launcher = launcher
        self.share = share
        self.gpus = gpus
        self.started = started


def leave(placed: Placed) -> None:
    """Give back an attempt's share of its place, and its slot if the place is a launcher."""
    placed.place.room.give_back(placed.share, placed.gpus)
    if placed.launcher is not None:
        placed.launcher.free_slot()


class Surroundings(Struct, frozen=True, gc=False):
    """The settings that the attempts of a run share; `own_directory`: the server made the directory for the run."""

    directory: bytes
    own_directory: bool
    env: Mapping[bytes, bytes]
    secrets: tuple[bytes, ...]


class WorkerBook(Protocol):
    """Knows, by the claims in the store, which attempts the workers of a server have."""

    def open_run(self, view: View) -> None:
        """Look up which attempts of a run workers have, because this server begins to drive it."""

    def find(self, view: View, attempts: Mapping[Key, bool]) -> set[Key]:
        """Return which of these attempts workers have; those workers will report how they ended."""


class View(Protocol):
    """One run, as the hub and the places see it; only the hub uses `waiting_since` and `entry`."""

    profile: int
    folder: str
    surroundings: Surroundings
    priority: int
    parallel: int
    ready: dict[Key, Launch]
    placed: dict[Key, Placed]
    former: LocalExecutor | None
    clock_shift: float
    closed: bool
    waiting_since: int
    entry: object

    def place(self, key: Key, place: Place) -> None:
        """Start a ready attempt in a place."""

    def abandon(self) -> None:
        """End the attempts that this engine started, because another engine has the run now."""

    def deliver(self, report: Report, mark: Mark | None = None, recorded: Callable[[], None] | None = None) -> None:
        """Take a place's report of an attempt, with the run's own numbers and clock.

        The view calls `recorded` once the engine has recorded the report.
        """
