"""Enforces memory limits: an attempt with a limit gets a cgroup of its own, else the launcher watches its processes.

    cgroup v2   FOLDER/resile-TOKEN-SLOT   memory.max; the kernel kills the whole attempt, and counts that
    watched     every 250 ms               the memory of all its processes together, from /proc

The launcher makes these cgroups below its own, or else beside it, if it may write there and the folder gives its
children the memory controller. The kernel puts a new process into its parent's cgroup. So right after the start the
launcher moves the leader, and the children that the leader may have by then.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import time

from resile.executors.local.launcher.pool import NEVER
from resile.executors.local.launcher.system_calls import signal
from resile.executors.local.oom import OomCounter, parse_counter
from resile.executors.local.processes import boot_seconds, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from resile.executors.local.launcher.slots import Slot

WATCH_SECONDS = 0.25
SMALL_BYTES_MAX = 4096
PAGE_BYTES: int = posix.sysconf("SC_PAGE_SIZE")
OOM = b"oom"
KILLED_BY_KERNEL = (signal.SIGKILL, (128 + signal.SIGKILL) << 8)
_PREFIX = b"resile-"
_MEASURED = (b"Pss_Anon:", b"Pss_Shmem:")


def used_by(pids: Iterable[int], limit: int) -> int:
    """The memory that these processes use together, in bytes.

    Add up the resident pages, which counts shared pages several times. If the sum is over the limit, add up the
    kernel's proportional shares instead, without the pages of files, which the kernel can drop at any time.
    """
    pids = [*pids]
    resident = 0
    for pid in pids:
        fields = read_file(b"/proc/%d/statm" % pid, SMALL_BYTES_MAX).split()
        resident += int(fields[1]) * PAGE_BYTES if len(fields) > 1 else 0
    if resident <= limit:
        return resident
    shares = [_share_of(pid) for pid in pids]
    return resident if None in shares else sum(share or 0 for share in shares)


def _share_of(pid: int) -> int | None:
    """The memory of one process, with its part of shared pages; None if the kernel does not report that."""
    text = read_file(b"/proc/%d/smaps_rollup" % pid, SMALL_BYTES_MAX)
    found = [line.split() for line in text.splitlines() if line.startswith(_MEASURED)]
    if not found:
        # A process that has just ended has no memory.
        return None if read_file(b"/proc/%d/statm" % pid, SMALL_BYTES_MAX).split()[1:2] not in ([], [b"0"]) else 0
    return sum(int(words[1]) * 1024 for words in found)


class MemoryLimits:
    """The limits of the running attempts; `oom` counts the kernel's kills in the launcher's own cgroup."""

    def __init__(self) -> None:
        self.oom = OomCounter()
        # The folder in which the launcher may make cgroups; None before it has looked for one, empty if there is none.
        self.parent: bytes | None = None
        self.undeleted: list[bytes] = []

    def prepare(self, slot: Slot, limit: int) -> None:
        """Set the limit of the attempt that is about to start, and make its cgroup if that is possible."""
        slot.memory_max = limit
        if self.parent is None:
            self.parent = parent_of(self.oom.path.removesuffix(b"/memory.events"), self.oom.path)
        if self.parent:
            slot.cgroup = make_group(self.parent + b"/" + _PREFIX + slot.token + b"-%d" % slot.number, limit)
            if not slot.cgroup:
                self.parent = b""

    def enter(self, slot: Slot) -> float:
        """Move the leader, which has just started, into its cgroup; return when to measure it if there is no cgroup."""
        slot.measured_at = slot.started
        members = slot.cgroup + b"/cgroup.procs"
        if not slot.cgroup or not write(members, b"%d" % slot.pid):
            self.leave(slot)
            return slot.started + WATCH_SECONDS
        for child in read_file(b"/proc/%d/task/%d/children" % (slot.pid, slot.pid), SMALL_BYTES_MAX).split():
            write(members, child)
        return NEVER

    def watch(self, slot: Slot, now: float, members: Callable[[Slot], Iterable[int]]) -> float:
        """Measure an attempt without a cgroup if that is due; return when to do so again, 0 if it uses too much."""
        if slot.cgroup:
            return NEVER
        if now >= slot.measured_at + WATCH_SECONDS:
            slot.measured_at = now
            used = used_by(members(slot), slot.memory_max)
            slot.memory_peak = max(slot.memory_peak, used)
            if used > slot.memory_max:
                slot.grace_seconds = 0.0
                return 0.0
        return slot.measured_at + WATCH_SECONDS

    def close(self, slot: Slot) -> None:
        """Note the peak of an attempt that ended, and whether the kernel killed it at its limit; remove its cgroup."""
        if slot.cgroup:
            kills = parse_counter(read_file(slot.cgroup + b"/memory.events", SMALL_BYTES_MAX))
            peak = read_file(slot.cgroup + b"/memory.peak", SMALL_BYTES_MAX).strip()
            slot.memory_peak = int(peak) if peak.isdigit() else 0
            if kills and slot.usage[0] in KILLED_BY_KERNEL and not slot.reason:
                slot.reason = OOM
            self.leave(slot)
        status, cpu_seconds, rss_bytes_max, io_bytes = slot.usage
        slot.usage = (status, cpu_seconds, max(rss_bytes_max, slot.memory_peak), io_bytes)

    def kernel_kills(self, slot: Slot) -> int:
        """The out-of-memory kills on this machine that may explain the end of an attempt."""
        if slot.reason or slot.usage[0] not in KILLED_BY_KERNEL:
            return 0
        # The kernel's log has times of this clock.
        now = time.monotonic()
        return self.oom.kills(slot.pid, now, now - (boot_seconds() - slot.started))

    def leave(self, slot: Slot) -> None:
        """Remove the cgroup of a slot; if it still has processes, a later call for any slot removes it."""
        self.undeleted = [folder for folder in (*self.undeleted, slot.cgroup) if folder and not remove(folder)]
        slot.cgroup = b""


def parent_of(own: bytes, counter: bytes) -> bytes:
    """The folder in which the launcher may make cgroups with a memory limit; empty if there is none."""
    if not counter.endswith(b"/memory.events"):
        return b""
    for folder in (own, own.rpartition(b"/")[0]):
        controllers = read_file(folder + b"/cgroup.subtree_control", SMALL_BYTES_MAX).split()
        if b"memory" in controllers and posix.access(folder, posix.W_OK):
            return folder
    return b""


def make_group(folder: bytes, limit: int) -> bytes:
    """Make a cgroup with this limit, which the kernel kills as a whole; return its folder, or an empty text."""
    remove(folder)
    try:
        posix.mkdir(folder)
    except OSError:
        return b""
    if not write(folder + b"/memory.max", b"%d" % limit):
        remove(folder)
        return b""
    write(folder + b"/memory.swap.max", b"0")
    write(folder + b"/memory.oom.group", b"1")
    return folder


def remove(folder: bytes) -> bool:
    """Remove a cgroup; False if it still has processes."""
    try:
        posix.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def write(path: bytes, text: bytes) -> bool:
    """Write a file of the kernel; False if it can't be written."""
    try:
        descriptor = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    except OSError:
        return False
    try:
        return posix.write(descriptor, text) == len(text)
    except OSError:
        return False
    finally:
        posix.close(descriptor)
