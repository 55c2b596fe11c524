"""Finds out whether the kernel killed a process because memory ran out, from cgroup counters or the kernel's log.

    cgroup v1   memory.oom_control   `oom_kill N`
    cgroup v2   memory.events        `oom_kill N`

Runs inside the launcher, so it imports only built-in modules.
"""

from __future__ import annotations

import posix

from resile.executors.local.processes import read_file

TABLE_BYTES_MAX = 1024 * 1024
COUNTER_BYTES_MAX = 4096
KERNEL_RECORDS_MAX = 20_000
SHARE_SECONDS = 1.0


def counter_file(membership: bytes, mounts: bytes) -> bytes:
    """The path of a process's counter, from the text of its /proc/PID/cgroup and mountinfo; empty if there is none."""
    paths: dict[bytes, bytes] = {}
    for line in membership.splitlines():
        _, controllers, path = [*line.split(b":", 2), b"", b""][:3]
        if b"memory" in controllers.split(b","):
            paths[b"cgroup"] = path
        elif not controllers:
            paths[b"cgroup2"] = path
    found = {}
    for line in mounts.splitlines():
        left, _, right = line.partition(b" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in paths:
            continue
        if kind[0] == b"cgroup" and b"memory" not in kind[2].split(b","):
            continue
        found[kind[0]] = _folder_below(place[4], place[3], paths[kind[0]])
    if b"cgroup" in found:
        return found[b"cgroup"] + b"/memory.oom_control"
    return found[b"cgroup2"] + b"/memory.events" if b"cgroup2" in found else b""


def _folder_below(mount: bytes, root: bytes, path: bytes) -> bytes:
    """The folder of a cgroup below a mount that shows the hierarchy from `root` on."""
    if root != b"/" and path.startswith(root):
        path = path[len(root) :]
    return mount + (b"" if path == b"/" else path)


def parse_counter(text: bytes) -> int:
    """The number after `oom_kill`; 0 if there is none."""
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == b"oom_kill" and value.strip().isdigit():
            return int(value)
    return 0


class OomCounter:
    """Counts the kernel's out-of-memory kills, and decides which SIGKILLs of attempts they explain."""

    def __init__(self) -> None:
        mounts = read_file(b"/proc/self/mountinfo", TABLE_BYTES_MAX)
        self.path = counter_file(read_file(b"/proc/self/cgroup", TABLE_BYTES_MAX), mounts)
        self.seen = self.read()
        self.spare = 0
        self.spare_until = 0.0

    def read(self) -> int:
        """The counter now."""
        return parse_counter(read_file(self.path, COUNTER_BYTES_MAX)) if self.path else 0

    def kills(self, pid: int, now: float, started: float) -> int:
        """The number of out-of-memory kills that may explain the end of this attempt; times are monotonic.

        If the kernel kills several attempts at once, the first call sees the counter raised for all of them. It keeps
        the other kills for SHARE_SECONDS, for the calls about the other attempts.
        """
        value = self.read()
        fresh, self.seen = value - self.seen, value
        if fresh > 0:
            self.spare, self.spare_until = fresh - 1, now + SHARE_SECONDS
            return fresh
        if self.spare > 0 and now < self.spare_until:
            self.spare -= 1
            return 1
        return 1 if kernel_says_killed(pid, started) else 0


def kernel_says_killed(pid: int, started: float) -> bool:
    """Does the kernel's log report an out-of-memory kill of this process since `started`?"""
    try:
        log = posix.open(b"/dev/kmsg", posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError:
        return False
    victim = b"illed process %d " % pid
    try:
        for _ in range(KERNEL_RECORDS_MAX):
            if record_names(posix.read(log, 8192), victim, started):
                return True
    except OSError:
        pass
    finally:
        posix.close(log)
    return False


def record_names(record: bytes, victim: bytes, started: float) -> bool:
    """Does this record of the kernel's log report an out-of-memory kill of the victim since `started`?

    A record is `priority,seq,microseconds,flags;text`.
    """
    head, _, text = record.partition(b";")
    fields = head.split(b",")
    if victim not in text or b"ut of memory" not in text or len(fields) < 3 or not fields[2].isdigit():
        return False
    return int(fields[2]) / 1e6 >= started - 1.0
