"""Opens the hub of a server: its folder, its launcher, the slots of this machine.

    OUTPUT/servers/MACHINE-N/   one server on this machine; it holds the lock in it while it lives
        lock, clock, engine-N.fence, launcher/
        pointer, runs.fence     files to which new runs get hard links

When a server starts, it takes the first folder of its machine that no living server has, and with it the launcher and
the steps that still run there. If a living server takes over a run, it watches the run's steps in launchers of ended
servers (enter_annex.py). The file `clock` keeps the offset of the launcher's clock, the same for all servers of a boot.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from itertools import count

from resile.executors.fence import Fence, create_open
from resile.executors.local import processes
from resile.executors.local.server_executor import ServerExecutor
from resile.executors.shared.hub import Hub
from resile.executors.shared.local_place import LocalPlace
from resile.executors.shared.places import Room
from resile.model.folders import make_folder

FOLDER = "servers"


class ServerFolder:
    """The locked folder of a living server, or of an ended server whose launcher a living one watches."""

    def __init__(self, path: str, lock: int) -> None:
        """`lock` is the descriptor that holds the lock."""
        self.path = path
        self._lock = lock

    @classmethod
    def take(cls, output: str) -> ServerFolder:
        """Lock the first folder of this machine that no living server has."""
        for number in count():
            path = os.path.join(os.path.abspath(output), FOLDER, f"{_machine()}-{number}")
            make_folder(path)
            found = cls.lock(path)
            if found is not None:
                return found
        raise AssertionError("numbers do not end")

    @classmethod
    def lock(cls, path: str) -> ServerFolder | None:
        """Lock this folder; None if a living server has it."""
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return cls(path, lock)

    @staticmethod
    def is_of_this_machine(path: str) -> bool:
        """Is this the folder of a server on this machine?"""
        folder, name = os.path.split(path)
        return os.path.basename(folder) == FOLDER and name.rpartition("-")[0] == _machine()

    def clock_offset(self) -> float:
        """The seconds between the boot's clock and the wall clock, as the first server of this boot measured them."""
        path, boot = os.path.join(self.path, "clock"), processes.boot_id().decode()
        try:
            with open(path, encoding="ascii") as file:
                known, _, offset = file.read().partition(" ")
            if known == boot:
                return float(offset)
        except (FileNotFoundError, ValueError):
            pass
        measured = round(time.time() - processes.boot_seconds(), 6)
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"{boot} {measured!r}")
        os.replace(f"{path}.new", path)
        return measured

    def close(self) -> None:
        """Unlock the folder for the next server."""
        os.close(self._lock)


def _machine() -> str:
    return os.uname().nodename.replace("/", "_")


def open_executor(folder: ServerFolder, slots: int, *, starts: bool = True) -> ServerExecutor:
    """Open the executor of a server's launcher; without `starts` it only watches attempts that run already."""
    return ServerExecutor(
        folder.path,
        slots=slots,
        label="server",
        base_env={},
        directory=b"/",
        fence=Fence(folder.path, time.time_ns() // 1000, lambda: None),
        clock_offset=folder.clock_offset(),
        starts=starts,
    )


def open_hub(folder: ServerFolder, slots: int, labels: frozenset[str], room: Room) -> Hub:
    """Open the hub with the slots of this machine; with 0 slots it starts nothing here.

    Even then it has a launcher, whose records prove to the next server that nothing was started.
    """
    offset, fence = folder.clock_offset(), _make_shared_fence(folder.path)
    place = LocalPlace(open_executor(folder, max(1, slots)), slots, labels, room)
    return Hub(place, folder.path, offset, fence)


def _make_shared_fence(folder: str) -> str:
    """Make a new, open file for the fences of this server's runs; fences of earlier runs keep the old file."""
    path = os.path.join(folder, "runs.fence")
    with suppress(FileNotFoundError):
        os.unlink(path)
    os.close(create_open(path))
    return path
