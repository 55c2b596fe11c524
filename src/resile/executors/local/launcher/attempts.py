"""The attempts of a launcher: queued, running in slots, being terminated, over.

    queue --fill_slots--> assign --> spawn --> started --(leader exits)--> leader_exited --> finish --> the next attempt
                                                  |                              |
                                                  '--terminate: SIGTERM--> check: SIGKILL when the grace is over, until
                                                                           no process of the attempt is left

Each slot has a thread, which spawns the leader and waits for it, so that attempts start in parallel; for all other work
a thread holds the launcher's lock. Everything that happens becomes a line (wire.py), and the launcher publishes the
lines. When an attempt ends, its slot gets the next one before the launcher publishes the end.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
import time
from _thread import allocate_lock, start_new_thread
from errno import EAGAIN, EMFILE, ENFILE, ENOSPC

from resile.executors import descriptors
from resile.executors.local import processes, wire
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.orphans import Orphans
from resile.executors.local.launcher.slots import Slot
from resile.executors.local.launcher.spawner import Spawner
from resile.executors.local.launcher.start_after import WaitingStarts
from resile.executors.local.launcher.system_calls import signal
from resile.executors.local.oom import OomCounter
from resile.executors.local.processes import boot_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

    from resile.executors.local.wire import Start

LISTEN_AFTER_SECONDS = 0.005
CHECK_AGAIN_SECONDS = 0.1
SWEEP_SECONDS = 1.0
GIVE_UP_SECONDS = 5.0
DISCARD_BYTES = 256 * 1024
ABANDONED_PIPES_MAX = 256
NEVER = float("inf")
TIMEOUT, KILLED = b"timeout", b"killed"
_KILLED_BY_KERNEL = (signal.SIGKILL, (128 + signal.SIGKILL) << 8)


class Attempts:
    """All attempts that this launcher knows, and the slots they run in."""

    def __init__(
        self,
        epoll: select.epoll,
        publish: Callable[[], None],
        receive: Callable[[], object],
        wake: Callable[[float], None],
        crash: Callable[[], None],
    ) -> None:
        self.epoll = epoll
        self.publish = publish
        self.receive = receive
        # Asks the launcher's first thread to call `check` by that time.
        self.wake = wake
        self.crash = crash
        # Every thread that changes these attributes holds it; the launcher's first thread holds it unless it waits.
        self.lock = allocate_lock()
        self.lines: list[bytes] = []
        self.queue: dict[bytes, Start] = {}
        self.waiting = WaitingStarts()
        # Has an attempt's end released attempts that waited for it?
        self.followed = False
        self.free: list[Slot] = []
        self.running: dict[bytes, Slot] = {}
        self.listened: dict[int, Slot] = {}
        self.abandoned_pipes: dict[int, None] = {}
        self.orphans = Orphans(epoll)
        self.spawner = Spawner()
        self.secrets: tuple[bytes, ...] = ()
        self.folder = self.token = b""
        # Slots wanted, open now, and ever made: the last one numbers slots, so that no two share a segment.
        self.slots = self.opened = self.made = 0
        self.abandoned_pipes_max = ABANDONED_PIPES_MAX
        # Why no attempt may start: the spool can't be written.
        self.blocked_errno = ENOSPC
        self.clock_offset = 0.0
        self.check_at = NEVER
        self.oom = OomCounter()
        # Read once for all attempts that are checked or killed in one turn, because reading it takes milliseconds.
        self.table: dict[int, processes.Process] | None = None

    def now(self) -> float:
        """The time of the run."""
        return boot_seconds() + self.clock_offset

    def handle(self, descriptor: int) -> None:
        """Read output, or note that a process has ended."""
        if descriptor in self.listened:
            slot = self.listened[descriptor]
            (slot.out if descriptor == slot.out.reader else slot.err).pump()
        elif descriptor in self.abandoned_pipes:
            self.discard_output(descriptor)
        elif descriptor in self.orphans.expected:
            self.orphans.take_exit_of(descriptor)
            if any(slot.reason for slot in self.running.values()):
                self.check_at = 0.0

    def set_slots(self, wanted: int) -> None:
        """Open at most so many slots, and no more than there are descriptors for.

        If the soft limit is too low for them, raise it to the hard one; attempts still start with the former.
        """
        soft, hard = descriptors.open_files_max()
        if wanted > descriptors.slots_within(soft) and soft < hard:
            self.spawner.soft_limit = soft
            descriptors.set_soft(hard)
            soft = hard
        self.slots = max(1, min(wanted, descriptors.slots_within(soft)))
        self.orphans.expected_max = descriptors.leftovers_within(soft)
        self.abandoned_pipes_max = min(ABANDONED_PIPES_MAX, self.orphans.expected_max)

    def enqueue(self, start: Start) -> None:
        """Queue an attempt, or let it wait for the attempts in its `after`."""
        self.waiting.forget_end(start.key)
        if start.after:
            may_start = self.waiting.add(start, self.queue, self.running)
            if not may_start:
                if may_start is False:
                    self.report_withdrawn(start.key)
                return
        self.queue[start.key] = start

    def release_followers(self, key: bytes, succeeded: bool) -> None:
        """Queue the attempts that waited for this one, or withdraw them, because it has ended or will never start."""
        freed, doomed = self.waiting.end(key, succeeded)
        if freed:
            self.followed = True
            self.queue.update((start.key, start) for start in freed)
        for follower in doomed:
            self.report_withdrawn(follower)

    def fill_slots(self, mine: Slot | None = None) -> None:
        """Assign queued attempts to free slots; the caller is the thread of `mine`.

        Attempts of one batch start in their order, as people expect; later ones start as slots become free.
        """
        turn: LockType | None = None
        while self.queue:
            if self.free:
                slot = self.free.pop()
            elif self.opened < self.slots:
                try:
                    slot = self.open_slot()
                except OSError as error:
                    if error.errno in (EMFILE, ENFILE, EAGAIN) and self.opened:
                        # This process has no files or threads for more slots: the other attempts wait.
                        self.slots = self.opened
                        return
                    self.refuse(self.next_queued().key, error.errno or ENOSPC, b"output")
                    continue
            else:
                return
            if self.assign(slot, self.next_queued()) and slot is not mine:
                slot.turn, turn = turn, slot.has_started
                slot.has_work.release()

    def open_slot(self) -> Slot:
        """Open one more slot, with its thread."""
        slot = Slot(self.made, self.folder, self.token)
        try:
            start_new_thread(self.serve, (slot,))
        except RuntimeError:
            slot.close()
            raise OSError(EAGAIN, "no more threads") from None
        self.opened += 1
        self.made += 1
        return slot

    def next_queued(self) -> Start:
        """Take the attempt that has been queued longest."""
        return self.queue.pop(next(iter(self.queue)))

    def assign(self, slot: Slot, start: Start) -> bool:
        """Assign an attempt to a slot; the spool first gets a line that it is about to start, so no start is missed."""
        if not self.blocked_errno:
            slot.line = wire.begins_line(start.key)
            self.lines.append(slot.line)
            self.publish()
        if self.blocked_errno:
            # If this process died now, no engine would know about the attempt.
            slot.reset()
            self.free.append(slot)
            self.refuse(start.key, self.blocked_errno, b"output")
            return False
        slot.out.begin(self.secrets)
        slot.err.begin(self.secrets)
        slot.key = start.key
        slot.order = start
        slot.has_started = allocate_lock()
        slot.has_started.acquire()
        slot.grace_seconds = start.grace_seconds
        slot.deadline = NEVER
        self.running[start.key] = slot
        return True

    def serve(self, slot: Slot) -> None:
        """Run one attempt after the other; the thread of a slot does this until the slot closes."""
        try:
            while not slot.closed:
                slot.has_work.acquire()
                while slot.order is not None:
                    self.run_attempt(slot, slot.order)
        except BaseException:
            self.crash()

    def run_attempt(self, slot: Slot, start: Start) -> None:
        """Spawn one attempt, and wait until its leader exits."""
        if slot.turn is not None:
            with slot.turn:
                slot.turn = None
        # Read the clock before the spawn, which returns when the program already runs.
        slot.started = boot_seconds()
        if self.spawner.soft_limit:
            # The spawner lowers the limit for a moment; other threads open files only with the lock held.
            with self.lock:
                pid, errno, stage = self.spawner.spawn(start, slot.actions)
        else:
            pid, errno, stage = self.spawner.spawn(start, slot.actions)
        with self.lock:
            slot.has_started.release()
            if not pid:
                self.free_unstarted(slot, errno, stage)
                return
            self.leader_started(slot, pid, start.timeout_seconds)
        # Reap with the lock held: until then no other process gets the pid, and any thread may signal it.
        posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOWAIT)
        with self.lock:
            _, status, usage = posix.wait4(pid, 0)
            self.leader_exited(slot, (status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))

    def leader_started(self, slot: Slot, pid: int, timeout_seconds: float) -> None:
        """Note that the leader of an attempt runs, and signal it if the attempt was killed before it had a pid."""
        slot.pid = pid
        if timeout_seconds > 0:
            slot.deadline = slot.started + timeout_seconds
        place = (slot.segment, slot.out.start, slot.err.start)
        slot.line = wire.started_line(slot.key, slot.started + self.clock_offset, pid, boot_seconds(), *place)
        # Publish this with the next line, or when the launcher begins to read the attempt's output.
        self.lines.append(slot.line)
        if slot.reason:
            self.table = None
            self.terminate(slot, slot.reason, boot_seconds())
        self.check_by(min(slot.deadline, slot.started + LISTEN_AFTER_SECONDS))

    def free_unstarted(self, slot: Slot, errno: int, stage: bytes) -> None:
        """Report an attempt that could not be spawned, and free its slot."""
        key = slot.key
        del self.running[key]
        slot.reset()
        self.free.append(slot)
        self.refuse(key, errno, stage)
        self.refill(slot)

    def leader_exited(self, slot: Slot, usage: tuple[int, float, int]) -> None:
        """Finish an attempt whose leader exited; if it is being terminated, its other processes must end first."""
        slot.usage = usage
        slot.reaped = True
        slot.order = None
        if slot.reason:
            self.check_by(0.0)
            return
        self.finish(slot)
        if self.followed:
            # The engine may have withdrawn attempts that would start now.
            self.receive()
        self.refill(slot)

    def refill(self, slot: Slot) -> None:
        """Fill the calling thread's slot, and publish the new lines."""
        self.fill_slots(slot)
        if self.lines:
            self.publish()
        if not self.running:
            # The launcher exits when nothing is left to do.
            self.wake(0.0)

    def check_by(self, at: float) -> None:
        """Make the launcher call `check` by that time."""
        if at < self.check_at:
            self.check_at = at
            self.wake(at)

    def refuse(self, key: bytes, errno: int, stage: bytes) -> None:
        """Report the end of an attempt that could not be started."""
        self.lines.append(wire.refused_line(key, self.now(), errno, stage))
        self.release_followers(key, succeeded=False)

    def finish(self, slot: Slot) -> None:
        """Finish an attempt: close its range, report it, and free its slot."""
        now = self.now()
        has_leftovers = self.has_leftovers(slot)
        if slot.has_output():
            # A reader that follows the slot's last attempt must see its end before the segment grows.
            if self.lines:
                self.publish()
            slot.drain()
        status = slot.usage[0]
        oom_kills = 0
        if status in _KILLED_BY_KERNEL and not slot.reason:
            # The clock of the kernel's log.
            kernel_now = time.monotonic()
            oom_kills = self.oom.kills(slot.pid, kernel_now, kernel_now - (boot_seconds() - slot.started))
        out, err = slot.out, slot.err
        errno = out.errno or err.errno
        log = (slot.segment, out.start, out.size - out.start, err.start, err.size - err.start)
        began = slot.started + self.clock_offset
        line = wire.ended_line(slot.key, began, now, slot.usage, log, slot.reason, errno, oom_kills)
        self.lines.append(line)
        del self.running[slot.key]
        self.release_followers(slot.key, succeeded=not (status or slot.reason or errno))
        if slot.listened:
            self.unlisten(slot)
        if not self.prepare(slot, has_leftovers) or self.opened > self.slots:
            self.opened -= 1
            slot.close()
            return
        slot.reset()
        self.free.append(slot)

    def prepare(self, slot: Slot, has_leftovers: bool) -> bool:
        """Give a slot the pipes and segments for its next attempt; False if the system has none."""
        try:
            if has_leftovers:
                for descriptor in slot.renew():
                    self.abandoned_pipes[descriptor] = None
                    self.epoll.register(descriptor, select.EPOLLIN)
                while len(self.abandoned_pipes) > self.abandoned_pipes_max:
                    self.discard_output(next(iter(self.abandoned_pipes)), close=True)
            if slot.is_full():
                slot.roll()
        except OSError:
            return False
        return True

    def has_leftovers(self, slot: Slot) -> bool:
        """Might a process still hold the pipes of this attempt, whose leader was reaped?"""
        if not self.orphans.can_be_found():
            return slot.has_orphans or system_calls.group_exists(slot.pid)
        self.find_orphans()
        return slot.has_orphans

    def find_orphans(self) -> None:
        """Assign new orphans to attempts by their tags; one without a tag may belong to any running attempt."""
        for orphan in self.orphans.find():
            owner = processes.key_in(orphan.tag, self.token)
            for candidate in (self.running[owner],) if owner in self.running else tuple(self.running.values()):
                candidate.has_orphans = True

    def check(self) -> None:
        """Do all work that is due: read the output of longer attempts, terminate those whose time is up."""
        now = boot_seconds()
        self.check_at = now + SWEEP_SECONDS if self.running else NEVER
        self.table = None
        if self.orphans.can_be_found():
            # Orphans of an attempt that runs for hours must not pile up until it ends.
            self.find_orphans()
        for slot in list(self.running.values()):
            self.check_at = min(self.check_at, self.advance(slot, now))

    def advance(self, slot: Slot, now: float) -> float:
        """Do the work that is due for one attempt; return when to check it again."""
        if not slot.pid:
            return NEVER
        if not slot.listened and now >= slot.started + LISTEN_AFTER_SECONDS:
            self.listen(slot)
        if not slot.reason:
            if now >= slot.deadline:
                self.terminate(slot, TIMEOUT, now)
                return min(slot.deadline, now + CHECK_AGAIN_SECONDS)
            return slot.deadline if slot.listened else min(slot.deadline, slot.started + LISTEN_AFTER_SECONDS)
        if not slot.reaped and now < slot.deadline:
            return slot.deadline
        found = self.members(slot)
        if slot.reaped and (not found or now >= slot.deadline + GIVE_UP_SECONDS):
            self.finish(slot)
            return NEVER
        for pid in found:
            if pid != slot.pid:
                self.orphans.expect_exit_of(pid)
        if now < slot.deadline:
            return min(slot.deadline, now + CHECK_AGAIN_SECONDS)
        if not slot.reaped:
            system_calls.signal_group(slot.pid, signal.SIGKILL)
        processes.send_all(found, signal.SIGKILL)
        return now + CHECK_AGAIN_SECONDS

    def terminate(self, slot: Slot, reason: bytes, now: float) -> None:
        """Send SIGTERM to every process of an attempt; `advance` kills the rest when the grace is over."""
        slot.reason = reason
        if not slot.pid:
            return
        slot.deadline = now + slot.grace_seconds
        self.check_by(slot.deadline)
        found = self.members(slot)
        # The group first, so that no child forked in between is missed; then the processes that left the group.
        system_calls.signal_group(slot.pid, signal.SIGTERM)
        system_calls.signal_group(slot.pid, signal.SIGCONT)
        outside = {pid: entry for pid, entry in found.items() if entry.group != slot.pid}
        processes.send_all(outside, signal.SIGTERM, signal.SIGCONT)

    def members(self, slot: Slot) -> dict[int, processes.Process]:
        """The living processes of an attempt, from the process table of this turn."""
        if self.table is None:
            self.table = processes.read_table()
        tag = processes.attempt_tag(self.spawner.token, slot.key)
        return processes.members_of(self.table, slot.pid, not slot.reaped, tag, slot.known)

    def listen(self, slot: Slot) -> None:
        """Begin to read the attempt's output while it runs."""
        slot.listened = True
        for pipe in (slot.out, slot.err):
            self.listened[pipe.reader] = slot
            self.epoll.register(pipe.reader, select.EPOLLIN)

    def unlisten(self, slot: Slot) -> None:
        """Stop reading the output: the attempt is over."""
        slot.listened = False
        for pipe in (slot.out, slot.err):
            del self.listened[pipe.reader]
            self.epoll.unregister(pipe.reader)

    def discard_output(self, descriptor: int, close: bool = False) -> None:
        """Discard the output of leftover processes; forget the pipe when the last of them has closed it."""
        try:
            close = close or not posix.read(descriptor, DISCARD_BYTES)
        except BlockingIOError:
            return
        if close:
            del self.abandoned_pipes[descriptor]
            posix.close(descriptor)

    def kill(self, key: bytes) -> None:
        """Terminate this attempt, or withdraw it if it has not started; ignore one that is over."""
        if key in self.queue or key in self.waiting.missing:
            self.withdraw(key)
        elif key in self.running and not self.running[key].reason:
            self.terminate(self.running[key], KILLED, boot_seconds())

    def withdraw(self, key: bytes) -> None:
        """Withdraw an attempt that is queued or waits for others."""
        if key in self.queue:
            del self.queue[key]
        else:
            self.waiting.forget(key)
        self.report_withdrawn(key)

    def report_withdrawn(self, key: bytes) -> None:
        """Report that an attempt never starts, and withdraw the attempts that come after it."""
        self.lines.append(wire.withdrawn_line(key, self.now()))
        self.release_followers(key, succeeded=False)

    def withdraw_all(self) -> None:
        """Withdraw all attempts that are queued or wait for others."""
        while self.queue or self.waiting.missing:
            self.withdraw(next(iter(self.queue or self.waiting.missing)))

    def terminate_all(self) -> None:
        """Kill all attempts at once."""
        self.withdraw_all()
        for slot in self.running.values():
            slot.grace_seconds = 0.0
            self.terminate(slot, KILLED, boot_seconds())
        for descriptor in list(self.abandoned_pipes):
            self.discard_output(descriptor, close=True)
