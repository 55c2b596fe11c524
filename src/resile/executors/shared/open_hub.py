"""Opens the hub of a server: its folder, its launcher, the slots of this machine.

    OUTPUT/servers/MACHINE-N/   one server on this machine; it holds the lock in it while it lives
        lock, clock, engine-N.fence, launcher/
        pointer, runs.fence     files of which new runs have names of their own

The next server on the machine takes the folder of one that has ended, and with it the launcher and the steps that still
run there; a server that lives watches the steps of the runs that it takes over (enter_annex.py). The offset of the
launcher's clock is kept in the folder, so that it is the same for all servers of one boot.
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
    """The folder of one living server, or of one that has ended and whose launcher a living one watches."""

    def __init__(self, path: str, lock: int) -> None:
        """`lock` is the descriptor by which it is locked."""
        self.path = path
        self._lock = lock

    @classmethod
    def take(cls, output: str) -> ServerFolder:
        """The first folder of this machine that no server has."""
        for number in count():
            path = os.path.join(os.path.abspath(output), FOLDER, f"{_machine()}-{number}")
            make_folder(path)
            found = cls.lock(path)
            if found is not None:
                return found
        raise AssertionError("numbers do not end")

    @classmethod
    def lock(cls, path: str) -> ServerFolder | None:
        """A folder, unless a living server has it."""
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
        """Leave the folder to the next server."""
        os.close(self._lock)


def _machine() -> str:
    return os.uname().nodename.replace("/", "_")


def open_executor(folder: ServerFolder, slots: int, *, starts: bool = True) -> ServerExecutor:
    """The launcher of the server with this folder; unless it `starts` attempts it only watches those that run."""
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
    """The hub with the slots of this machine; 0 slots start nothing here.

    It has a launcher all the same, whose records show the next server that nothing was started.
    """
    executor = open_executor(folder, max(1, slots))
    return Hub(
        LocalPlace(executor, slots, labels, room), folder.path, folder.clock_offset(), _make_shared_fence(folder.path)
    )


def _make_shared_fence(folder: str) -> str:
    """A new file for the fences of this server's runs: it is open, whatever became of the one before."""
    path = os.path.join(folder, "runs.fence")
    with suppress(FileNotFoundError):
        os.unlink(path)
    os.close(create_open(path))
    return path
