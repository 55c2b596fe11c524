"""Which processes belong to an attempt, and how to end exactly those.

An attempt's leader starts a session of its own, and everything it starts inherits the mark
`RESILE_ATTEMPT=token:job:attempt` in its environment. A process belongs to the attempt when it carries the mark,
is in the leader's session or group while the leader's number is known to be the leader's, or descends from one
that belongs. A signal goes through a pidfd that was opened before the start time was looked at once more, so a
number that was given to somebody else in the meantime is never hit.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
import time
from _signal import SIGKILL, pidfd_send_signal

MARK = b"RESILE_ATTEMPT"
STAT_BYTES = 1024
ENVIRON_BYTES = 4 * 1024 * 1024
LEADER_START_SECONDS_MAX = 1.0
KILL_SECONDS_MAX = 5.0
TICKS_PER_SECOND: int = posix.sysconf("SC_CLK_TCK")


class Process:
    """One line of the process table, from /proc/PID/stat."""

    __slots__ = ("alive", "group", "known_mark", "parent", "pid", "session", "start_ticks")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.alive = fields[0] not in (b"Z", b"X")
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.start_ticks = int(fields[19])
        self.known_mark: bytes | None = None

    @property
    def mark(self) -> bytes:
        """The mark in the environment that the process was started with; empty where there is none."""
        if self.known_mark is None:
            self.known_mark = mark_of(self.pid)
        return self.known_mark


def read_file(path: bytes, limit: int) -> bytes:
    """The first `limit` bytes of a file; empty where it can't be read."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return b""
    try:
        chunks = []
        while limit > 0 and (chunk := posix.read(descriptor, min(limit, 65536))):
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    except OSError:
        return b""
    finally:
        posix.close(descriptor)


def process(pid: int) -> Process | None:
    """The process of this number, if there is one."""
    text = read_file(b"/proc/%d/stat" % pid, STAT_BYTES)
    # The command's name may hold spaces and parentheses; the fields begin after the last closing one.
    fields = text[text.rfind(b")") + 1 :].split()
    return Process(pid, fields) if len(fields) > 19 else None


def table() -> dict[int, Process]:
    """Every process that can be seen."""
    try:
        names = posix.listdir("/proc")
    except OSError:
        names = []
    found = (process(int(name)) for name in names if name.isdigit())
    return {entry.pid: entry for entry in found if entry is not None}


def mark_of(pid: int) -> bytes:
    """The mark in the environment that a process was started with; empty where there is none."""
    text = b"\0" + read_file(b"/proc/%d/environ" % pid, ENVIRON_BYTES)
    at = text.find(b"\0" + MARK + b"=")
    return text[at + len(MARK) + 2 :].partition(b"\0")[0] if at >= 0 else b""


def boot_seconds() -> float:
    """Seconds since the machine started, the clock of process start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> bytes:
    """The name of this boot: start times of another one mean nothing here."""
    return read_file(b"/proc/sys/kernel/random/boot_id", 64).strip() or b"-"


def is_leader(entry: Process | None, spawned_at_boot_seconds: float) -> bool:
    """Is this the process that was spawned just before that time, and not a later one of the same number?"""
    if entry is None:
        return False
    age = spawned_at_boot_seconds - entry.start_ticks / TICKS_PER_SECOND
    return -0.1 <= age <= LEADER_START_SECONDS_MAX


def closure(processes: dict[int, Process], seeds: set[int]) -> dict[int, Process]:
    """The living ones among the seeds and everything that descends from a seed."""
    children: dict[int, list[int]] = {}
    for entry in processes.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    found: set[int] = set()
    waiting = list(seeds)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return {pid: processes[pid] for pid in found if pid in processes and processes[pid].alive}


def members(
    processes: dict[int, Process], leader: int, leader_is_ours: bool, mark: bytes, known: dict[int, int]
) -> dict[int, Process]:
    """The living processes of an attempt; `known` is pid -> start of those seen before, and is brought up to date.

    Where the leader has been reaped its number may already be somebody else's, so only the mark, what was
    known before and orphans that fell to this process from the leader's session count then.
    """
    me = posix.getpid()
    seeds = set()
    for pid, entry in processes.items():
        same_session = leader in (entry.session, entry.group)
        if (
            (known.get(pid) == entry.start_ticks)
            or (same_session and pid != me and (leader_is_ours or (entry.parent == me and pid != leader)))
            or entry.mark == mark
        ):
            seeds.add(pid)
    found = closure(processes, seeds)
    known.clear()
    known.update({pid: entry.start_ticks for pid, entry in found.items()})
    return found


def send(entry: Process, signal: int) -> int:
    """Signal exactly this process; its pidfd (the caller closes it), or -1 where it is gone."""
    try:
        descriptor = posix.pidfd_open(entry.pid)
    except OSError:
        return -1
    now = process(entry.pid)
    try:
        if now is not None and now.start_ticks == entry.start_ticks:
            pidfd_send_signal(descriptor, signal)
            return descriptor
    except OSError:
        pass
    posix.close(descriptor)
    return -1


def send_all(found: dict[int, Process], *signals: int) -> None:
    """Signal each of these processes."""
    for entry in found.values():
        for signal in signals:
            descriptor = send(entry, signal)
            if descriptor >= 0:
                posix.close(descriptor)


def end_orphans(attempts: dict[bytes, tuple[int, float]]) -> set[bytes]:
    """SIGKILL everything of attempts whose launcher is dead, and wait until it is gone.

    Attempts are given as mark -> leader and when it was spawned (0 where no leader is known); returns the marks
    of those of which something was still there.
    """
    met: set[bytes] = set()
    known: dict[int, int] = {}
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while attempts and time.monotonic() < deadline:
        found = orphans(attempts, known, met)
        if not found:
            break
        for descriptor in [send(entry, SIGKILL) for entry in found.values()]:
            if descriptor >= 0:
                waiting = select.poll()
                waiting.register(descriptor, select.POLLIN)
                waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
                posix.close(descriptor)
    return met


def orphans(attempts: dict[bytes, tuple[int, float]], known: dict[int, int], met: set[bytes]) -> dict[int, Process]:
    """What is left of these attempts, in one look at the process table; `known` and `met` grow."""
    processes = table()
    leaders = {}
    for mark, (leader, born) in attempts.items():
        if leader and is_leader(processes.get(leader), born):
            leaders[leader] = mark
    seeds = set()
    for pid, entry in processes.items():
        mark = leaders.get(entry.session) or leaders.get(entry.group) or entry.mark
        if mark in attempts:
            met.add(mark)
            seeds.add(pid)
        elif known.get(pid) == entry.start_ticks:
            seeds.add(pid)
    found = closure(processes, seeds)
    known.update({pid: entry.start_ticks for pid, entry in found.items()})
    return found
