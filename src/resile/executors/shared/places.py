"""Places that run attempts of many runs: the slots of this machine, and workers; and what they know of a run.

A place has labels, and room: slots, CPUs, memory, GPUs. The hub gives it an attempt only if both are there.
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
    """Runs attempts of many runs. It reports what becomes of them to the views of the runs (view.py)."""

    name: str
    """The name of a worker; empty for the server's own slots."""
    labels: frozenset[str]
    room: Room

    def has_slot(self) -> bool:
        """May one more attempt be started here?"""

    def start(self, profile: int, launch: Launch) -> None:
        """Start an attempt of the run with this profile; `flush` sends it."""

    def flush(self) -> None:
        """Send what was started since the last call."""

    def kill(self, profile: int, job: int, attempt: int) -> None:
        """End an attempt, or withdraw one that has not started."""


class LauncherPlace(Place, Protocol):
    """A place that is a launcher of this machine."""

    def take_slot(self) -> None:
        """An attempt that was there before is known now."""

    def free_slot(self) -> None:
        """An attempt is over."""

    def acknowledge(self) -> None:
        """Let the launcher forget what all views have recorded."""


class Room:
    """What a place has besides its slots, and how much of it is taken."""

    def __init__(self, cpus: float, memory_bytes: int, gpus: Iterable[str] = ()) -> None:
        self.whole = Share(cpus, memory_bytes, len(tuple(gpus)))
        self.cpus = cpus
        self.memory_bytes = memory_bytes
        self.gpus = list(gpus)

    def fits(self, share: Share) -> bool:
        """Is there room for this?"""
        # A share of a CPU is a float: allow for the rounding of sums.
        fits_cpus = share.cpus <= self.cpus + 1e-9
        return fits_cpus and share.memory_bytes <= self.memory_bytes and share.gpus <= len(self.gpus)

    def take(self, share: Share) -> tuple[str, ...]:
        """Take this; return the names of the GPUs."""
        self.cpus -= share.cpus
        self.memory_bytes -= share.memory_bytes
        gpus = tuple(self.gpus[: share.gpus])
        del self.gpus[: share.gpus]
        return gpus

    def take_again(self, share: Share, gpus: Iterable[str]) -> None:
        """Take what an attempt has that was here before."""
        self.cpus -= share.cpus
        self.memory_bytes -= share.memory_bytes
        self.gpus = [name for name in self.gpus if name not in set(gpus)]

    def give_back(self, share: Share, gpus: Iterable[str]) -> None:
        """Give back what was taken."""
        self.cpus += share.cpus
        self.memory_bytes += share.memory_bytes
        self.gpus.extend(gpus)


class Mark:
    """So much of what the launcher sent has been passed on, to so many views that have not recorded it."""

    __slots__ = ("place", "reported_bytes", "views")

    def __init__(self, place: LauncherPlace, reported_bytes: int) -> None:
        self.place = place
        self.reported_bytes = reported_bytes
        self.views = 0


class Placed:
    """An attempt in a place, and what it takes there; `launcher` is the place where that is one of this machine."""

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
    """Give back what an attempt had in its place."""
    placed.place.room.give_back(placed.share, placed.gpus)
    if placed.launcher is not None:
        placed.launcher.free_slot()


class Surroundings(Struct, frozen=True, gc=False):
    """What the attempts of a run share; `own_directory`: the server made the directory for the run."""

    directory: bytes
    own_directory: bool
    env: Mapping[bytes, bytes]
    secrets: tuple[bytes, ...]


class WorkerBook(Protocol):
    """What the workers of a server have; claims in the store say so."""

    def open_run(self, view: View) -> None:
        """This server begins to drive a run: know what workers have of it."""

    def find(self, view: View, attempts: Mapping[Key, bool]) -> set[Key]:
        """Of these attempts those that workers have; their workers will tell what became of them."""


class View(Protocol):
    """One run, as the hub and the places see it; `waiting_since` and `entry` are the hub's."""

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
        """Another engine has the run: end what this one started."""

    def deliver(self, report: Report, mark: Mark | None = None, recorded: Callable[[], None] | None = None) -> None:
        """A place reports what became of an attempt, by the run's own numbers and clock.

        `recorded` is called once the engine has recorded it.
        """
