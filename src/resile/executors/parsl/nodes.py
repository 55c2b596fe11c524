"""Reads for the engine what the nodes of an epoch have written (node/files.py)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from resile.executors.contract import Ended, Lost, Started, Withdrawn
from resile.executors.local import processes, recovery, wire
from resile.executors.local.recovery import Author
from resile.executors.local.spool import CHECKED_VERSION, SUFFIX
from resile.executors.parsl.node import files
from resile.executors.parsl.node.files import Tail
from resile.model.failure import LogRange

Key = tuple[int, int]
Line = Started | Ended | Withdrawn | Lost
# If a node of another machine gives no sign of life for this time, it counts as gone.
SILENT_SECONDS_MAX = 60.0


class Identity(Struct, frozen=True):
    """The machine, the block and the allocation of a node; `tag` marks the processes of Parsl there."""

    host: str
    boot: str
    pid: int
    born: int
    pool: str
    block: str
    tag: str
    allocation: str
    node: str
    number: int

    def is_here(self) -> bool:
        """Is the node on this machine, in this boot, so that its processes can be seen?"""
        return self.host == os.uname().nodename and self.boot == processes.boot_id().decode()

    def agent(self) -> processes.Process | None:
        """The living process of the agent, if it is on this machine."""
        entry = processes.read_process(self.pid) if self.is_here() else None
        return entry if entry is not None and entry.alive and entry.start_ticks == self.born else None


class Happening(Struct, frozen=True):
    """A line of a node about an attempt: the node took or dropped this submission, begins it, or reports."""

    key: Key
    node: Node
    taken: str = ""
    dropped: str = ""
    report: Line | None = None
    born: float = 0.0


class Node:
    """The records of one node: those of one launcher and of the agent above it."""

    def __init__(self, folder: str, token: str) -> None:
        self.token = token
        self.folder = os.path.join(folder, wire.FOLDER, token)
        self.author: Author | None = None
        self.ends: set[Key] = set()
        self._identity: Identity | None = None
        self._spool = Tail(os.path.join(self.folder, token + SUFFIX))
        self._taken = Tail(os.path.join(self.folder, files.TAKEN))
        self._seen_beat = -1.0
        self._seen_at = time.monotonic()

    @property
    def identity(self) -> Identity | None:
        """The identity that the node wrote; None until it has done so."""
        if self._identity is None:
            try:
                with open(os.path.join(self.folder, files.NODE), "rb") as file:
                    self._identity = msgspec.json.decode(file.read(), type=Identity)
            except (FileNotFoundError, msgspec.MsgspecError):
                return None
        return self._identity

    def has_grown(self) -> bool:
        """Has the node written more since the last read?"""
        return self._spool.has_grown() or self._taken.has_grown()

    def read(self) -> list[Happening]:
        """Everything that the node has written since the last call: which attempts it took, then their reports.

        The node writes that it takes an attempt before it starts it. Reading the files in the opposite order makes sure
        that each report comes with the line by which the node took the attempt.
        """
        became = list(self._read_spool())
        return [*self._read_taken(), *became]

    def _read_taken(self) -> Iterator[Happening]:
        """The attempts that the node has taken or dropped."""
        for line in self._taken.read():
            words = line.split()
            kind, key, submission = words[0], wire.decode_attempt(words), words[3].decode()
            if kind == files.TAKES:
                yield Happening(key, self, taken=submission)
            else:
                yield Happening(key, self, dropped=submission)

    def _read_spool(self) -> Iterator[Happening]:
        """The node's reports of its attempts."""
        for line in self._spool.read():
            words = line.split()
            if words[0] == wire.HEADER:
                # The header is that of a local spool, with another version.
                assert words[1] == CHECKED_VERSION
                plain = b" ".join([words[0], b"%d" % wire.VERSION, *words[2:]])
                self.author = recovery.decode_author(plain)
            elif words[0] == wire.BEGINS:
                yield Happening(wire.decode_attempt(words), self)
            elif words[0] == wire.STARTED:
                started = wire.read_started(words)
                report = replace(started, log=self._place(started.log))
                yield Happening(wire.decode_attempt(words), self, report=report, born=wire.decode_born(words))
            elif words[0] in wire.ABOUT_ATTEMPTS:
                end = wire.read_end(words)
                if isinstance(end, Ended):
                    end = replace(end, log=self._place(end.log))
                self.ends.add((end.job, end.attempt))
                yield Happening(wire.decode_attempt(words), self, report=end)

    def _place(self, log: LogRange) -> LogRange:
        """A log range of the launcher, with the segment's path in the node's folder."""
        if not log.segment:
            return log
        return replace(log, segment=f"{wire.FOLDER}/{self.token}/{os.path.basename(log.segment)}")

    def fate(self) -> str:
        """Why the node ended its attempts; empty if it wrote no reason."""
        try:
            with open(os.path.join(self.folder, files.FATE)) as file:
                return file.read(1000)
        except FileNotFoundError:
            return ""

    def is_gone(self) -> bool:
        """Is the node dead, or has it been silent for too long?"""
        return self.is_dead() or self.is_silent()

    def is_dead(self) -> bool:
        """Is it certain that the node's agent and launcher have ended and write nothing more?"""
        identity = self.identity
        if identity is None:
            return False
        if identity.is_here():
            is_alive = self.author is not None and recovery.is_alive(self.author)
            return not is_alive and identity.agent() is None
        # On this machine, but in another boot: the machine has restarted since.
        return identity.host == os.uname().nodename

    def is_lonely(self) -> bool:
        """Is the node on this machine and its agent dead, so that orders do not reach its launcher?"""
        identity = self.identity
        return identity is not None and identity.is_here() and identity.agent() is None

    def is_silent(self, seconds: float = SILENT_SECONDS_MAX) -> bool:
        """Is this a node of another machine that gave no sign of life for this time, by the clock of this machine?"""
        if self.identity is not None and self.identity.is_here():
            return False
        try:
            beat = os.stat(os.path.join(self.folder, files.NODE)).st_mtime
        except OSError:
            beat = 0.0
        if beat != self._seen_beat:
            self._seen_beat, self._seen_at = beat, time.monotonic()
        return time.monotonic() - self._seen_at > seconds

    def end_leftovers(self, keys: dict[Key, tuple[int, float] | None]) -> None:
        """Kill what a node on this machine left of these attempts; `keys` has each leader's pid and birth, if known."""
        identity = self.identity
        if identity is not None and identity.is_here():
            tags = {
                processes.attempt_tag(self.token.encode(), wire.key_of(*key)): leader for key, leader in keys.items()
            }
            processes.end_orphans(tags)


class Nodes:
    """All nodes of an epoch."""

    def __init__(self, folder: str) -> None:
        self._epoch_folder = folder
        self._folder = os.path.join(folder, wire.FOLDER)
        self._arrivals = files.Arrivals(folder)
        self.known: dict[str, Node] = {}

    def look(self) -> None:
        """Find new nodes by listing the folder; on a shared disk the list may be old."""
        for name in os.listdir(self._folder):
            is_whole = not name.startswith(files.UNFINISHED)
            if is_whole and name not in self.known and os.path.isdir(os.path.join(self._folder, name)):
                self._add(name)

    def find_all(self) -> None:
        """Find all nodes that may take an attempt without having read the present orders and fence."""
        for token in self._arrivals.close():
            if token not in self.known:
                self._add(token)

    def _add(self, token: str) -> None:
        self.known[token] = Node(self._epoch_folder, token)

    def has_grown(self) -> bool:
        """Has a node written more, or has a new node come up?"""
        count = len(self.known)
        self.look()
        return len(self.known) > count or any(node.has_grown() for node in list(self.known.values()))

    def read(self) -> list[Happening]:
        """Everything that all nodes have written since the last call."""
        self.look()
        return [happening for node in list(self.known.values()) for happening in node.read()]
