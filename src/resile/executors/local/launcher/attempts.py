"""Takes the attempts of a launcher from the queue through their slots to their end.

    queue --fill_slots--> assign --> spawn --> started --(leader exits)--> leader_exited --> finish --> the next attempt
                                                  |                              |
                                                  '--terminate: SIGTERM--> check: SIGKILL when the grace is over, until
                                                                           no process of the attempt is left

Each slot has a thread, which spawns the leader and waits for it, so that attempts start in parallel; for all other work
a thread holds the launcher's lock. Everything that happens becomes a line (wire.py), and the launcher publishes the
lines. When an attempt ends, its slot gets the next one before the launcher publishes the end.

If the system has no process, thread or memory for an attempt, the attempt keeps its slot, waits and tries again, for a
minute at most. If the thread of a slot dies, `check` ends the slot's attempt and reports it as lost.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
from _thread import allocate_lock
from errno import ENOSPC

from resile.executors import descriptors
from resile.executors.fence import FenceReader
from resile.executors.local import processes, wire
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.memory import OOM, MemoryLimits
from resile.executors.local.launcher.orphans import Orphans
from resile.executors.local.launcher.output import ABANDONED_MAX, Output
from resile.executors.local.launcher.pool import AGAIN_SECONDS, AGAIN_SECONDS_MAX, NEVER, PASSING, SECONDS_MAX, SlotPool
from resile.executors.local.launcher.spawner import Spawner
from resile.executors.local.launcher.start_after import WaitingStarts
from resile.executors.local.launcher.system_calls import signal
from resile.executors.local.processes import boot_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from _thread import LockType
    from collections.abc import Callable

    from resile.executors.local.launcher.profiles import Profile
    from resile.executors.local.launcher.slots import Slot
    from resile.executors.local.wire import Start

LISTEN_AFTER_SECONDS = 0.005
CHECK_AGAIN_SECONDS = 0.1
# The unit in which the kernel counts reads and writes of a process.
IO_BLOCK_BYTES = 512
SWEEP_SECONDS = 1.0
GIVE_UP_SECONDS = 5.0
TIMEOUT, KILLED = b"timeout", b"killed"


class Attempts:
    """All attempts that this launcher knows, and the slots they run in."""

    def __init__(
        self,
        epoll: select.epoll,
        publish: Callable[[], None],
        receive: Callable[[], object],
        wake: Callable[[float], None],
        report_error: Callable[[], None],
    ) -> None:
        self.publish = publish
        self.receive = receive
        # Asks the launcher's first thread to call `check` by that time.
        self.wake = wake
        # Writes down the exception that ended a thread.
        self.report_error = report_error
        # Every thread that changes these attributes holds it; the launcher's first thread holds it unless it waits.
        self.lock = allocate_lock()
        self.lines: list[bytes] = []
        self.queue: dict[bytes, Start] = {}
        self.waiting = WaitingStarts()
        # Has an attempt's end released attempts that waited for it?
        self.followed = False
        self.pool = SlotPool(self.serve)
        self.running: dict[bytes, Slot] = {}
        self.output = Output(epoll)
        self.orphans = Orphans(epoll)
        self.spawner = Spawner()
        # The settings that attempts share, by the profile number in their jobs' numbers.
        self.profiles: dict[int, Profile] = {}
        self.folder = self.token = b""
        self.fence = FenceReader()
        # If the spool can't be written, the errno of that, and no attempt may start; else 0.
        self.blocked_errno = ENOSPC
        self.clock_offset = 0.0
        self.check_at = NEVER
        self.memory = MemoryLimits()
        # Read once for all attempts that are checked or killed in one turn, because reading it takes milliseconds.
        self.table: dict[int, processes.Process] | None = None

    def now(self) -> float:
        """The time of the run."""
        return boot_seconds() + self.clock_offset

    def handle(self, descriptor: int) -> None:
        """Read output, or note that a process has ended."""
        if not self.output.read(descriptor) and descriptor in self.orphans.expected:
            self.orphans.take_exit_of(descriptor)
            if any(slot.reason for slot in self.running.values()):
                self.check_at = 0.0

    def set_slots(self, wanted: int) -> None:
        """Open at most `wanted` slots, and no more than the limit of descriptors allows.

        If the soft limit is too low for them, raise it to the hard one; attempts still start with the old soft limit.
        """
        soft, hard = descriptors.open_files_max()
        if wanted > descriptors.slots_within(soft) and soft < hard:
            self.spawner.raised = (soft, hard)
            descriptors.set_soft(hard)
            soft = hard
        self.pool.count_max = max(1, min(wanted, descriptors.slots_within(soft)))
        self.orphans.expected_max = descriptors.leftovers_within(soft)
        self.output.abandoned_max = min(ABANDONED_MAX, self.orphans.expected_max)

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

        The attempts of one call start in the order of the queue, as people expect.
        """
        turn: LockType | None = None
        while self.queue:
            if self.pool.free:
                slot = self.pool.free.pop()
            elif self.pool.can_grow() and (now := boot_seconds()) >= self.pool.open_at:
                try:
                    slot = self.pool.open(self.folder, self.token)
                except OSError as error:
                    errno = error.errno or ENOSPC
                    if not self.pool.can_open_later(errno, now):
                        self.refuse(self.next_queued().key, errno, b"exec" if errno in PASSING else b"output")
                    continue
            else:
                if self.pool.can_grow():
                    self.check_by(self.pool.open_at)
                return
            if self.assign(slot, self.next_queued()) and slot is not mine:
                slot.turn, turn = turn, slot.has_started
                slot.has_work.release()
        self.pool.refuse_at = NEVER

    def next_queued(self) -> Start:
        """Take the attempt that has been queued longest."""
        return self.queue.pop(next(iter(self.queue)))

    def assign(self, slot: Slot, start: Start) -> bool:
        """Assign an attempt to a slot; the spool first gets a line that it is about to start, so no start is missed."""
        if not self.blocked_errno:
            slot.line = wire.begins_line(start.key)
            self.lines.append(slot.line)
            self.publish()
        profile = self.profiles.get(start.profile)
        if self.blocked_errno or profile is None or profile.fence.is_closed():
            # It must not start if no engine would know of it, if it has no settings, or if a newer engine may start it.
            slot.reset()
            self.pool.free.append(slot)
            if self.blocked_errno:
                self.refuse(start.key, self.blocked_errno, b"output")
            else:
                self.report_withdrawn(start.key)
            return False
        if slot.folder != profile.folder:
            slot.enter(profile.folder)
        slot.out.begin(profile.secrets)
        slot.err.begin(profile.secrets)
        slot.key = start.key
        slot.order = start
        slot.profile = profile
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
                while slot.order is not None and slot.profile is not None:
                    self.run_attempt(slot, slot.order, slot.profile)
        except BaseException:
            self.report_error()
        finally:
            # If this thread dies even here, the next sweep finds the slot.
            slot.is_served = False
            with self.lock:
                self.check_by(0.0)

    def run_attempt(self, slot: Slot, start: Start, profile: Profile) -> None:
        """Spawn one attempt, and wait until its leader exits."""
        if slot.turn is not None:
            with slot.turn:
                slot.turn = None
        if start.memory_bytes:
            self.memory.prepare(slot, start.memory_bytes)
        until = boot_seconds() + SECONDS_MAX
        pause = AGAIN_SECONDS
        while True:
            # Read the clock before the spawn, which returns when the program already runs.
            slot.started = boot_seconds()
            if self.spawner.raised:
                # The spawner lowers the limit for a moment; other threads open files only with the lock held.
                with self.lock:
                    pid, errno, stage = self.spawner.spawn(start, slot.actions, profile.environment, profile.directory)
            else:
                pid, errno, stage = self.spawner.spawn(start, slot.actions, profile.environment, profile.directory)
            with self.lock:
                slot.release_turn()
                if pid:
                    self.leader_started(slot, pid, start.timeout_seconds)
                    break
                if errno not in PASSING or slot.started + pause >= until or slot.is_interrupted():
                    self.free_unstarted(slot, errno, stage)
                    return
            if slot.interrupted.acquire(timeout=pause) or profile.fence.is_closed():
                with self.lock:
                    slot.interrupt()
                    self.free_unstarted(slot, errno, stage)
                return
            pause = min(2 * pause, AGAIN_SECONDS_MAX)
        # Reap with the lock held: until then no other process gets the pid, and any thread may signal it.
        posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOWAIT)
        with self.lock:
            _, status, usage = posix.wait4(pid, 0)
            io_bytes = (usage.ru_inblock + usage.ru_oublock) * IO_BLOCK_BYTES
            cpu_seconds = usage.ru_utime + usage.ru_stime
            self.leader_exited(slot, (status, cpu_seconds, usage.ru_maxrss * 1024, io_bytes))

    def leader_started(self, slot: Slot, pid: int, timeout_seconds: float) -> None:
        """Note that the leader of an attempt runs, and signal it if the attempt was killed before it had a pid."""
        slot.pid = pid
        if slot.memory_max:
            self.check_by(self.memory.enter(slot))
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
        """Free the slot of an attempt that could not be spawned; report it as failed, or withdrawn if interrupted."""
        key, is_withdrawn = slot.key, errno in PASSING and slot.is_interrupted()
        self.memory.leave(slot)
        del self.running[key]
        slot.reset()
        self.pool.free.append(slot)
        if is_withdrawn:
            self.report_withdrawn(key)
        else:
            self.refuse(key, errno, stage)
        self.refill(slot)

    def leader_exited(self, slot: Slot, usage: tuple[int, float, int, int]) -> None:
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
        if slot.memory_max:
            self.memory.close(slot)
        oom_kills = self.memory.kernel_kills(slot) if status else 0
        out, err = slot.out, slot.err
        errno = out.errno or err.errno
        lengths = [pipe.size - pipe.start + pipe.lost for pipe in (out, err)]
        log = (slot.segment, out.start, lengths[0], err.start, lengths[1])
        began = slot.started + self.clock_offset
        line = wire.ended_line(slot.key, began, now, slot.usage, log, slot.reason, errno, oom_kills)
        self.lines.append(line)
        del self.running[slot.key]
        self.release_followers(slot.key, succeeded=not (status or slot.reason or errno))
        self.output.unlisten(slot)
        if not self.prepare(slot, has_leftovers) or self.pool.opened > self.pool.count_max:
            self.pool.close(slot)
            return
        slot.reset()
        self.pool.free.append(slot)

    def prepare(self, slot: Slot, has_leftovers: bool) -> bool:
        """Give a slot the pipes and segments for its next attempt; False if the system has none."""
        try:
            if has_leftovers:
                self.output.abandon(slot.renew())
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
        """Assign new orphans to attempts by their tags; an orphan without one may belong to any running attempt."""
        for orphan in self.orphans.find():
            owner = processes.key_in(orphan.tag, self.token)
            for candidate in (self.running[owner],) if owner in self.running else tuple(self.running.values()):
                candidate.has_orphans = True

    def check(self) -> None:
        """Do all work that is due: begin to read the output of longer attempts, and terminate those over their time."""
        now = boot_seconds()
        self.check_at = now + SWEEP_SECONDS if self.running else NEVER
        self.table = None
        if self.orphans.can_be_found():
            # Orphans of an attempt that runs for hours must not pile up until it ends.
            self.find_orphans()
        for slot in (*self.pool.free, *self.running.values()):
            if not slot.is_served:
                self.give_up(slot)
        for slot in list(self.running.values()):
            self.check_at = min(self.check_at, self.advance(slot, now))

    def give_up(self, slot: Slot) -> None:
        """Close a slot whose thread died: kill the processes of its attempt, and report the attempt as lost."""
        key = slot.key
        if self.running.get(key) is slot:
            if slot.pid and not slot.reaped:
                self.orphans.expect_exit_of(slot.pid)
                system_calls.signal_group(slot.pid, signal.SIGKILL)
            processes.send_all(self.members(slot), signal.SIGKILL)
            del self.running[key]
            self.output.unlisten(slot)
            self.lines.append(wire.lost_line(key, self.now()))
            self.release_followers(key, succeeded=False)
        else:
            self.pool.free.remove(slot)
        slot.release_turn()
        self.pool.close(slot)

    def advance(self, slot: Slot, now: float) -> float:
        """Do the work that is due for one attempt; return when to check it again."""
        if not slot.pid:
            return NEVER
        if not slot.listened and now >= slot.started + LISTEN_AFTER_SECONDS:
            self.output.listen(slot)
        if not slot.reason:
            if now >= slot.deadline:
                self.terminate(slot, TIMEOUT, now)
                return min(slot.deadline, now + CHECK_AGAIN_SECONDS)
            due = min(slot.deadline, self.memory.watch(slot, now, self.members)) if slot.memory_max else slot.deadline
            if not due:
                self.terminate(slot, OOM, now)
                return now
            return due if slot.listened else min(due, slot.started + LISTEN_AFTER_SECONDS)
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
        """Send SIGTERM to every process of an attempt; `advance` kills the rest when the grace is over.

        An attempt that uses too much memory gets SIGKILL at once, because it would use still more during the grace.
        """
        slot.reason = reason
        if not slot.pid:
            slot.interrupt()
            return
        slot.deadline = now + slot.grace_seconds
        self.check_by(slot.deadline)
        found = self.members(slot)
        # The group first, so that no child forked in between is missed; then the processes that left the group.
        number = signal.SIGKILL if reason == OOM else signal.SIGTERM
        system_calls.signal_group(slot.pid, number)
        system_calls.signal_group(slot.pid, signal.SIGCONT)
        outside = {pid: entry for pid, entry in found.items() if entry.group != slot.pid}
        processes.send_all(outside, number, signal.SIGCONT)

    def members(self, slot: Slot) -> dict[int, processes.Process]:
        """The living processes of an attempt, from the process table of this turn."""
        if self.table is None:
            self.table = processes.read_table()
        tag = processes.attempt_tag(self.spawner.token, slot.key)
        return processes.members_of(self.table, slot.pid or -1, not slot.reaped, tag, slot.known)

    def kill(self, key: bytes, grace_seconds: float | None = None) -> None:
        """Terminate this attempt, with this grace or its own, or withdraw it if it has not started."""
        if key in self.queue or key in self.waiting.missing:
            self.withdraw(key)
        elif key in self.running and not (slot := self.running[key]).reason:
            slot.grace_seconds = slot.grace_seconds if grace_seconds is None else grace_seconds
            self.terminate(slot, KILLED, boot_seconds())

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
        """Withdraw all attempts that are queued, wait for others, or wait in their slot for a free process."""
        while self.queue or self.waiting.missing:
            self.withdraw(next(iter(self.queue or self.waiting.missing)))
        for slot in self.running.values():
            if not slot.pid:
                slot.interrupt()

    def terminate_all(self) -> None:
        """Kill all attempts at once."""
        self.withdraw_all()
        for slot in self.running.values():
            slot.grace_seconds = 0.0
            self.terminate(slot, KILLED, boot_seconds())
        self.output.discard_all()
