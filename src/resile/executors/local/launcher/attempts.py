"""The attempts of a launcher: queued, running in slots, being terminated, over.

    queue --fill_slots--> assign --> spawn --> started --(leader exits)--> leader_exited --> finish --> the next attempt
                                                  |                              |
                                                  '--terminate: SIGTERM--> check: SIGKILL when the grace is over, until
                                                                           no process of the attempt is left

Each slot has a thread, which spawns and waits for the leader, so that attempts start side by side; everything else is
done with the launcher's lock held, by one thread at a time. Everything that happens becomes a line (wire.py), and the
launcher publishes the lines. A slot is filled again in the turn in which its attempt ended, before that is published.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
import time
from _signal import SIGCONT, SIGKILL, SIGTERM
from _thread import allocate_lock, start_new_thread
from errno import EAGAIN, EMFILE, ENFILE, ENOSPC

from resile.executors.local import processes, wire
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.orphans import Orphans
from resile.executors.local.launcher.slots import Slot
from resile.executors.local.launcher.spawner import Spawner
from resile.executors.local.launcher.start_after import WaitingStarts
from resile.executors.local.oom import OomCounter

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
_KILLED_BY_KERNEL = (SIGKILL, (128 + SIGKILL) << 8)


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
        # Has the launcher's own thread check by that time.
        self.wake = wake
        self.crash = crash
        # Every thread that changes anything here holds it; the launcher's own holds it whenever it does not wait.
        self.lock = allocate_lock()
        self.lines: list[bytes] = []
        self.queue: dict[bytes, Start] = {}
        self.waiting = WaitingStarts()
        # Has an end let attempts start that waited for it?
        self.followed = False
        self.free: list[Slot] = []
        self.running: dict[bytes, Slot] = {}
        self.listened: dict[int, Slot] = {}
        self.abandoned_pipes: dict[int, None] = {}
        self.orphans = Orphans(epoll)
        self.spawner = Spawner()
        self.secrets: tuple[bytes, ...] = ()
        self.folder = self.token = b""
        # Slots wanted, open now, and ever made: the last one numbers them, so no two share a segment.
        self.slots = self.opened = self.made = 0
        # Why nothing may be started: the spool could not say so.
        self.blocked_errno = ENOSPC
        self.check_at = NEVER
        self.oom = OomCounter()
        # Read once for all attempts that are checked or killed in one turn: it costs milliseconds.
        self.table: dict[int, processes.Process] | None = None

    def handle(self, descriptor: int) -> None:
        """There is output, or a process has ended."""
        if descriptor in self.listened:
            slot = self.listened[descriptor]
            (slot.out if descriptor == slot.out.reader else slot.err).pump()
        elif descriptor in self.abandoned_pipes:
            self.discard_output(descriptor)
        elif descriptor in self.orphans.expected:
            self.orphans.take_exit_of(descriptor)
            if any(slot.reason for slot in self.running.values()):
                self.check_at = 0.0

    def enqueue(self, start: Start) -> None:
        """Queue an attempt, or let it wait for those that it comes after."""
        self.waiting.forget_end(start.key)
        if start.after:
            may_start = self.waiting.add(start, self.queue, self.running)
            if not may_start:
                if may_start is False:
                    self.report_withdrawn(start.key)
                return
        self.queue[start.key] = start

    def release_followers(self, key: bytes, succeeded: bool) -> None:
        """Queue the attempts that waited for this one, or withdraw them: it has ended, or will never start."""
        freed, doomed = self.waiting.end(key, succeeded)
        if freed:
            self.followed = True
            self.queue.update((start.key, start) for start in freed)
        for follower in doomed:
            self.report_withdrawn(follower)

    def fill_slots(self, mine: Slot | None = None) -> None:
        """Give what is queued to slots, as far as there are free ones; the caller is the thread of `mine`.

        What is given out in one go starts in its order, as people expect; only later ones go on as their slots do.
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
                        # As many at a time as this process may have files and threads for: the rest waits.
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
        """One more slot, with its thread."""
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
        """Take the attempt that has waited longest."""
        return self.queue.pop(next(iter(self.queue)))

    def assign(self, slot: Slot, start: Start) -> bool:
        """Give a slot an attempt; the spool first says that it is about to start, so that no start goes unnoticed."""
        if not self.blocked_errno:
            slot.line = wire.begins_line(start.key)
            self.lines.append(slot.line)
            self.publish()
        if self.blocked_errno:
            # No engine would know about it if this process died now.
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
        """The life of a slot's thread: run one attempt after the other."""
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
        # Read before the spawn, which returns when the program runs: its time counts from here.
        slot.started_at, slot.started = time.time(), time.monotonic()
        pid, errno, stage = self.spawner.spawn(start, slot.actions)
        with self.lock:
            slot.has_started.release()
            if not pid:
                self.free_unstarted(slot, errno, stage)
                return
            self.leader_started(slot, pid, start.timeout_seconds)
        # Reaped with the lock held: until then no other process gets its pid, and any thread may signal it.
        posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOWAIT)
        with self.lock:
            _, status, usage = posix.wait4(pid, 0)
            self.leader_exited(slot, (status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))

    def leader_started(self, slot: Slot, pid: int, timeout_seconds: float) -> None:
        """Note that the leader of an attempt runs, and signal it where it was killed before it had a pid."""
        slot.pid = pid
        if timeout_seconds > 0:
            slot.deadline = slot.started + timeout_seconds
        slot.line = wire.started_line(
            slot.key,
            slot.started_at,
            pid,
            processes.boot_seconds(),
            slot.segment,
            slot.out.start,
            slot.err.start,
        )
        # Published with the next line, or when the launcher begins to read its output.
        self.lines.append(slot.line)
        if slot.reason:
            self.table = None
            self.terminate(slot, slot.reason, time.monotonic())
        self.check_by(min(slot.deadline, slot.started + LISTEN_AFTER_SECONDS))

    def free_unstarted(self, slot: Slot, errno: int, stage: bytes) -> None:
        """Report an attempt that could not be spawned, and make its slot free."""
        key = slot.key
        del self.running[key]
        slot.reset()
        self.free.append(slot)
        self.refuse(key, errno, stage)
        self.refill(slot)

    def leader_exited(self, slot: Slot, usage: tuple[int, float, int]) -> None:
        """Finish an attempt whose leader exited; of one that is being terminated the other processes must end too."""
        slot.usage = usage
        slot.reaped = True
        slot.order = None
        if slot.reason:
            self.check_by(0.0)
            return
        self.finish(slot)
        if self.followed:
            # The engine may have withdrawn what now starts without its asking.
            self.receive()
        self.refill(slot)

    def refill(self, slot: Slot) -> None:
        """Fill the calling thread's slot, and publish what has happened."""
        self.fill_slots(slot)
        if self.lines:
            self.publish()
        if not self.running:
            # The launcher ends when there is nothing left to do.
            self.wake(0.0)

    def check_by(self, at: float) -> None:
        """Have `check` called by that time."""
        if at < self.check_at:
            self.check_at = at
            self.wake(at)

    def refuse(self, key: bytes, errno: int, stage: bytes) -> None:
        """Report the end of an attempt that could not be started at all."""
        self.lines.append(wire.refused_line(key, time.time(), errno, stage))
        self.release_followers(key, succeeded=False)

    def finish(self, slot: Slot) -> None:
        """An attempt is over: close its range, report it, and make its slot free."""
        now = time.time()
        has_leftovers = self.has_leftovers(slot)
        if slot.has_output():
            # A reader that follows the slot's last attempt must see its end before the segment goes on.
            if self.lines:
                self.publish()
            slot.drain()
        status = slot.usage[0]
        oom_kills = 0
        if status in _KILLED_BY_KERNEL and not slot.reason:
            oom_kills = self.oom.kills(slot.pid, time.monotonic(), slot.started)
        out, err = slot.out, slot.err
        errno = out.errno or err.errno
        self.lines.append(
            wire.ended_line(
                slot.key,
                slot.started_at,
                now,
                slot.usage,
                (slot.segment, out.start, out.size - out.start, err.start, err.size - err.start),
                reason=slot.reason,
                output_errno=errno,
                oom_kills=oom_kills,
            )
        )
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
        """Give a slot the pipes and segments that its next attempt needs; False where the system has none."""
        try:
            if has_leftovers:
                for descriptor in slot.renew():
                    self.abandoned_pipes[descriptor] = None
                    self.epoll.register(descriptor, select.EPOLLIN)
                while len(self.abandoned_pipes) > ABANDONED_PIPES_MAX:
                    self.discard_output(next(iter(self.abandoned_pipes)), close=True)
            if slot.is_full():
                slot.roll()
        except OSError:
            return False
        return True

    def has_leftovers(self, slot: Slot) -> bool:
        """May a process still hold the pipes of this attempt, whose leader was reaped?"""
        if not self.orphans.can_be_found():
            return slot.has_orphans or system_calls.group_exists(slot.pid)
        self.find_orphans()
        return slot.has_orphans

    def find_orphans(self) -> None:
        """Note which attempts new orphans belong to: their tags say; one without a tag may be of any that runs."""
        for orphan in self.orphans.find():
            owner = processes.key_in(orphan.tag, self.token)
            for candidate in (self.running[owner],) if owner in self.running else tuple(self.running.values()):
                candidate.has_orphans = True

    def check(self) -> None:
        """Do what is due: read along with longer attempts, end those whose time is up."""
        now = time.monotonic()
        self.check_at = now + SWEEP_SECONDS if self.running else NEVER
        self.table = None
        if self.orphans.can_be_found():
            # Those of an attempt that goes on for hours must not pile up until it ends.
            self.find_orphans()
        for slot in list(self.running.values()):
            due = self.advance(slot, now)
            self.check_at = min(self.check_at, due)

    def advance(self, slot: Slot, now: float) -> float:
        """Do what is due for one attempt; returns when to check it again."""
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
            system_calls.signal_group(slot.pid, SIGKILL)
        processes.send_all(found, SIGKILL)
        return now + CHECK_AGAIN_SECONDS

    def terminate(self, slot: Slot, reason: bytes, now: float) -> None:
        """Send SIGTERM to every process of an attempt; `advance` kills the rest when the grace is over."""
        slot.reason = reason
        if not slot.pid:
            return
        slot.deadline = now + slot.grace_seconds
        self.check_by(slot.deadline)
        found = self.members(slot)
        # The group at once, so that no child forked in between is missed; then those that left the group.
        system_calls.signal_group(slot.pid, SIGTERM)
        system_calls.signal_group(slot.pid, SIGCONT)
        processes.send_all({pid: entry for pid, entry in found.items() if entry.group != slot.pid}, SIGTERM, SIGCONT)

    def members(self, slot: Slot) -> dict[int, processes.Process]:
        """The living processes of an attempt, by the process table of this turn."""
        if self.table is None:
            self.table = processes.read_table()
        tag = processes.attempt_tag(self.spawner.token, slot.key)
        return processes.members_of(self.table, slot.pid, not slot.reaped, tag, slot.known)

    def listen(self, slot: Slot) -> None:
        """Read the attempt's output as it comes."""
        slot.listened = True
        for pipe in (slot.out, slot.err):
            self.listened[pipe.reader] = slot
            self.epoll.register(pipe.reader, select.EPOLLIN)

    def unlisten(self, slot: Slot) -> None:
        """Stop reading along: the attempt is over."""
        slot.listened = False
        for pipe in (slot.out, slot.err):
            del self.listened[pipe.reader]
            self.epoll.unregister(pipe.reader)

    def discard_output(self, descriptor: int, close: bool = False) -> None:
        """Throw away what leftover processes write; forget the pipe when the last of them has closed it."""
        try:
            close = close or not posix.read(descriptor, DISCARD_BYTES)
        except BlockingIOError:
            return
        if close:
            del self.abandoned_pipes[descriptor]
            posix.close(descriptor)

    def kill(self, key: bytes) -> None:
        """Terminate this attempt, or withdraw it where it has not started; one that is over stays over."""
        if key in self.queue or key in self.waiting.missing:
            self.withdraw(key)
        elif key in self.running and not self.running[key].reason:
            self.terminate(self.running[key], KILLED, time.monotonic())

    def withdraw(self, key: bytes) -> None:
        """Never start an attempt that is queued or waits for others."""
        if key in self.queue:
            del self.queue[key]
        else:
            self.waiting.forget(key)
        self.report_withdrawn(key)

    def report_withdrawn(self, key: bytes) -> None:
        """Report that an attempt never starts, and so none that comes after it."""
        self.lines.append(wire.withdrawn_line(key, time.time()))
        self.release_followers(key, succeeded=False)

    def withdraw_all(self) -> None:
        """Withdraw everything that is queued or waits."""
        while self.queue or self.waiting.missing:
            self.withdraw(next(iter(self.queue or self.waiting.missing)))

    def terminate_all(self) -> None:
        """Kill everything at once."""
        self.withdraw_all()
        for slot in self.running.values():
            slot.grace_seconds = 0.0
            self.terminate(slot, KILLED, time.monotonic())
        for descriptor in list(self.abandoned_pipes):
            self.discard_output(descriptor, close=True)
