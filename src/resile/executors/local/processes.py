"""Finds the processes that belong to an attempt, and ends exactly those.

An attempt's leader starts a session of its own, and everything it starts inherits the attempt's tag
`RESILE_ATTEMPT=token:job:attempt` in its environment. A process belongs to the attempt if it has the tag, if it is in
the leader's session or group (while the leader's pid surely is the leader's), or if its parent belongs to the attempt.
To signal a process, this module opens a pidfd, then compares the start time, then signals through the pidfd. So it
never signals another process to which the kernel has given the pid in the meantime.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
import time

from resile.executors.local.launcher.system_calls import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

TAG_VARIABLE = b"RESILE_ATTEMPT"
STAT_BYTES = 1024
ENVIRON_BYTES = 4 * 1024 * 1024
LEADER_START_SECONDS_MAX = 1.0
KILL_SECONDS_MAX = 5.0
TICKS_PER_SECOND: int = posix.sysconf("SC_CLK_TCK")


class Process:
    """One line of the process table, from /proc/PID/stat."""

    __slots__ = ("alive", "group", "known_tag", "parent", "pid", "session", "start_ticks", "stopped")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.alive = fields[0] not in (b"Z", b"X")
        self.stopped = fields[0] in (b"T", b"t")
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.start_ticks = int(fields[19])
        self.known_tag: bytes | None = None

    @property
    def tag(self) -> bytes:
        """The attempt's tag in the initial environment of the process; empty if there is none."""
        if self.known_tag is None:
            text = b"\0" + read_file(b"/proc/%d/environ" % self.pid, ENVIRON_BYTES)
            self.known_tag = text.partition(b"\0" + TAG_VARIABLE + b"=")[2].partition(b"\0")[0]
        return self.known_tag


def read_file(path: bytes, limit: int) -> bytes:
    """The first `limit` bytes of a file; empty if it can't be read."""
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


def read_process(pid: int) -> Process | None:
    """The process with this pid, if there is one."""
    text = read_file(b"/proc/%d/stat" % pid, STAT_BYTES)
    # The command's name may contain spaces and parentheses; the fields begin after the last closing one.
    fields = text[text.rfind(b")") + 1 :].split()
    return Process(pid, fields) if fields else None


def read_table() -> dict[int, Process]:
    """All visible processes."""
    try:
        names = posix.listdir("/proc")
    except OSError:
        names = []
    found = (read_process(int(name)) for name in names if name.isdigit())
    return {entry.pid: entry for entry in found if entry is not None}


def attempt_tag(token: bytes, key: bytes) -> bytes:
    """The tag of an attempt: the token of its launcher, then its key with colons."""
    return token + b":" + key.replace(b" ", b":")


def key_in(tag: bytes, token: bytes) -> bytes:
    """The key of the attempt in the tag of a launcher."""
    return tag.rpartition(token + b":")[2].replace(b":", b" ")


def boot_seconds() -> float:
    """Seconds since the machine started, the clock of process start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> bytes:
    """The id of this boot: start times of another boot can't be compared."""
    return read_file(b"/proc/sys/kernel/random/boot_id", 64).strip() or b"-"


def is_leader(entry: Process | None, spawned_at_boot_seconds: float) -> bool:
    """Did this process start just before that time, so that it is the leader and no later process with its pid?"""
    if entry is None:
        return False
    age = spawned_at_boot_seconds - entry.start_ticks / TICKS_PER_SECOND
    return -0.1 <= age <= LEADER_START_SECONDS_MAX


def with_descendants(processes: dict[int, Process], seeds: set[int]) -> dict[int, Process]:
    """The living processes among the seeds and their descendants."""
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


def members_of(
    processes: dict[int, Process], leader: int, leader_is_ours: bool, tag: bytes, known: dict[int, int]
) -> dict[int, Process]:
    """The living processes of an attempt; `known` maps pid -> start of those seen before, and is updated.

    Once the leader has been reaped, the kernel may give its pid to another process. From then on a process belongs to
    the attempt only if it has the tag, is known, is an orphan of the leader's session that this process adopted, or
    descends from one of these.
    """
    me = posix.getpid()
    seeds = set()
    for pid, entry in processes.items():
        same_session = leader in (entry.session, entry.group)
        if (
            (known.get(pid) == entry.start_ticks)
            or (same_session and pid != me and (leader_is_ours or (entry.parent == me and pid != leader)))
            or entry.tag == tag
        ):
            seeds.add(pid)
    found = with_descendants(processes, seeds)
    known.clear()
    known.update({pid: entry.start_ticks for pid, entry in found.items()})
    return found


def send(entry: Process, number: int) -> int:
    """Signal exactly this process; return its pidfd (the caller closes it), or -1 if the process is gone."""
    try:
        descriptor = posix.pidfd_open(entry.pid)
    except OSError:
        return -1
    now = read_process(entry.pid)
    try:
        if now is not None and now.start_ticks == entry.start_ticks:
            signal.pidfd_send_signal(descriptor, number)
            return descriptor
    except OSError:
        pass
    posix.close(descriptor)
    return -1


def send_all(found: dict[int, Process], *signals: int) -> None:
    """Signal each of these processes."""
    for entry in found.values():
        for number in signals:
            descriptor = send(entry, number)
            if descriptor >= 0:
                posix.close(descriptor)


def end_orphans(attempts: dict[bytes, tuple[int, float] | None]) -> set[bytes]:
    """SIGKILL all processes of attempts whose launcher is dead, and wait until they are gone.

    `attempts` maps tag -> leader and when it was spawned (None if no leader is known); returns the tags of the attempts
    that still had a process.
    """
    met: set[bytes] = set()
    known: dict[int, int] = {}
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while attempts and time.monotonic() < deadline:
        found = orphans_of(attempts, known, met)
        if not found:
            break
        kill_all(found.values(), deadline)
    return met


def kill_all(found: Iterable[Process], deadline: float) -> None:
    """SIGKILL these processes, and wait until they are gone, but not past `deadline` of the monotonic clock."""
    for descriptor in [send(entry, signal.SIGKILL) for entry in found]:
        if descriptor >= 0:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
            posix.close(descriptor)


def orphans_of(
    attempts: dict[bytes, tuple[int, float] | None], known: dict[int, int], met: set[bytes]
) -> dict[int, Process]:
    """The living processes of these attempts, from one reading of the process table; updates `known` and `met`."""
    processes = read_table()
    leaders = {}
    for tag, started in attempts.items():
        if started is not None:
            leader, born = started
            if is_leader(processes.get(leader), born):
                leaders[leader] = tag
    seeds = set()
    for pid, entry in processes.items():
        tag = leaders.get(entry.session) or leaders.get(entry.group) or entry.tag
        if tag in attempts:
            met.add(tag)
            seeds.add(pid)
        elif known.get(pid) == entry.start_ticks:
            seeds.add(pid)
    found = with_descendants(processes, seeds)
    known.update({pid: entry.start_ticks for pid, entry in found.items()})
    return found
