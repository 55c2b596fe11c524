"""The files by which an engine and its nodes know of each other, in the folder of an epoch on the shared disk.

    cluster/orders                the engine appends: `K job attempt submission` end it, or never start it; `R …` never
                                  start it, but let it go on if it has started; `D number` withdraw what waits
    cluster/preempted             the engine appends: `job allocation`, an attempt that Slurm ended for others
    cluster/nodes/N               a link to the token of a node, or to `-`: the engine has closed this number
    cluster/node.pyz              the program of the nodes
    launcher/TOKEN/node           which machine, block and allocation this is; its time stamp is a sign of life
    launcher/TOKEN/taken          `T job attempt submission`: the node is about to start it; `X …`: it never will
    launcher/TOKEN/fate           why the node ends its attempts, if something makes it stop
    launcher/TOKEN/samples        what its attempts used, where the workflow asks for samples (executors/samples.py)
    launcher/TOKEN/TOKEN.spool    the lines of its launcher; and beside it the output of the attempts

Each file has one writer. The lines of `orders`, `preempted`, `taken` and the spool have checksums. A submission is one
way of an attempt to a node: a node first writes that it has taken it, then looks at the fence and at the orders, and
only then starts it. An engine that gives up a submission first writes the order, then looks whether a node has taken
it. So either the engine sees that it was taken, or it never starts.

On a shared disk a file that is opened shows what others have written, but a list of names may be old. So a node first
announces itself under the next free number, which the disk gives to one only. An engine that looks who has taken
something takes numbers until one is free: a node with a smaller number is known then, and one with a larger number
reads the orders after they were written.

Only built-in modules are imported, because nodes have nothing else.
"""

from __future__ import annotations

import os

from resile.executors.local.spool import with_checksum, without_checksum

CLUSTER, ORDERS, PREEMPTED, ARCHIVE = "cluster", "orders", "preempted", "node.pyz"
NODES, CLOSED = "nodes", "-"
NODE, TAKEN, FATE = "node", "taken", "fate"
END, REVOKE, DRAIN = b"K", b"R", b"D"
TAKES, DROPS = b"T", b"X"
# How the name of a node's folder begins until it has all its files.
UNFINISHED = "."
# What FATE says where the allocation is about to end.
EXPIRES = "the allocation is about to end"
# The tag of the processes of Parsl in a block, in the place of job and attempt.
BLOCK = b"block"


class Tail:
    """The end of a file that grows: complete lines with good checksums, each once.

    The file is opened for each look, because only that shows what another machine has written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        # How many lines were damaged.
        self.damaged = 0
        self._size = -1

    def has_grown(self) -> bool:
        """Is there more than the last look saw?"""
        try:
            return os.stat(self.path).st_size != self._size
        except OSError:
            return False

    def read(self) -> list[bytes]:
        """The lines since the last look."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._size = self.offset + len(data)
        end = data.rfind(b"\n") + 1
        self.offset += end
        found = []
        for line in data[:end].splitlines():
            words = without_checksum(line)
            if words is None:
                self.damaged += 1
            else:
                found.append(words)
        return found


def append(path: str, lines: list[bytes]) -> None:
    """Append lines with checksums, in one write."""
    data = b"".join([with_checksum(line) for line in lines])
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def announce(folder: str, token: str) -> None:
    """Give a node the next free number in the folder of an epoch."""
    place = os.path.join(folder, CLUSTER, NODES)
    os.makedirs(place, 0o700, exist_ok=True)
    # The list may be old: then the numbers that it lacks are found to be taken.
    number = 1 + max((int(name) for name in os.listdir(place)), default=0)
    while not _take_number(place, number, token):
        number += 1


class Arrivals:
    """The nodes that have announced themselves, as an engine sees them."""

    def __init__(self, folder: str) -> None:
        self._place = os.path.join(folder, CLUSTER, NODES)
        self._number = 0

    def close(self) -> list[str]:
        """Close the next free number; the tokens of all nodes that came before it, and that no call returned before."""
        os.makedirs(self._place, 0o700, exist_ok=True)
        found: list[str] = []
        while True:
            self._number += 1
            if _take_number(self._place, self._number, CLOSED):
                return found
            token = os.readlink(os.path.join(self._place, str(self._number)))
            if token != CLOSED:
                found.append(token)


def _take_number(place: str, number: int, token: str) -> bool:
    """Take a number; False where it is taken. A link is there with its target, or not at all."""
    try:
        os.symlink(token, os.path.join(place, str(number)))
    except FileExistsError:
        return False
    return True
