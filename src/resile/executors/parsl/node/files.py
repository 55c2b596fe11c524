"""The files through which an engine and its nodes communicate, in the folder of an epoch on the shared disk.

    cluster/orders                the engine appends: `K job attempt submission` end it, or never start it; `R …` never
                                  start it, but let it go on if it has started; `D number` withdraw queued attempts
    cluster/preempted             the engine appends: `job allocation`, each time that Slurm preempted the job's attempt
    cluster/nodes/N               a link to the token of a node, or to `-`: the engine has closed this number
    cluster/node.pyz              the program of the nodes
    launcher/TOKEN/node           which machine, block and allocation this is; its time stamp is a sign of life
    launcher/TOKEN/taken          `T job attempt submission`: the node is about to start it; `X …`: it never will
    launcher/TOKEN/fate           why the node ends its attempts, if it does
    launcher/TOKEN/samples        samples of what its attempts use, if the workflow asks for them (executors/samples.py)
    launcher/TOKEN/TOKEN.spool    the lines of its launcher; and beside it the output of the attempts

Each file has one writer. The lines of `orders`, `preempted`, `taken` and the spool have checksums. Each time that the
engine sends an attempt to the nodes, this is a new submission. A node first writes that it takes the submission, then
checks the fence and the orders, and only then starts the attempt. An engine that gives up a submission first writes the
order, then checks whether a node has taken the submission. So either the engine sees that a node has taken it, or no
node starts it.

On a shared disk, a newly opened file shows all that other machines have written, but the listing of a folder may be
old. So each node first takes the next free number in `nodes`, which the disk gives to one process only. To find the
node that has taken a submission, the engine goes through the numbers and takes the first free one. It then knows all
nodes with smaller numbers, and a node with a larger number comes later and so reads the engine's order.

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
# The text in FATE if the allocation is about to end.
EXPIRES = "the allocation is about to end"
# The tag of Parsl's processes in a block has this word in place of job and attempt.
BLOCK = b"block"


class Tail:
    """Reads a growing file: each complete line with a good checksum once.

    It opens the file for each read, because only then a shared disk shows what another machine has written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        # The number of damaged lines.
        self.damaged = 0
        self._size = -1

    def has_grown(self) -> bool:
        """Has the size changed since the last read?"""
        try:
            return os.stat(self.path).st_size != self._size
        except OSError:
            return False

    def read(self) -> list[bytes]:
        """The lines since the last read."""
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
    # The listing may be old: the loop passes over numbers that were taken since.
    number = 1 + max((int(name) for name in os.listdir(place)), default=0)
    while not _take_number(place, number, token):
        number += 1


class Arrivals:
    """The nodes that have announced themselves, as an engine sees them."""

    def __init__(self, folder: str) -> None:
        self._place = os.path.join(folder, CLUSTER, NODES)
        self._number = 0

    def close(self) -> list[str]:
        """Take the next free number, so that no node gets it.

        Return the tokens of all nodes with smaller numbers that no earlier call has returned.
        """
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
    """Take a number by making a link, which appears with its target at once; False if the number is taken."""
    try:
        os.symlink(token, os.path.join(place, str(number)))
    except FileExistsError:
        return False
    return True
