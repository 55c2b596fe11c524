"""The attempts of a launcher: queued, running in slots, asked to end, over.

    queue --fill--> begin --> spawn --> started --(leader exits)--> left --> finish --> the slot's next attempt
                                           |                         |
                                           '--cut: SIGTERM------> look: SIGKILL when the grace is over, until
                                                                  nothing is left

Each slot has a thread, which spawns and waits for the leader, so that attempts start side by side; whatever else is
done is done with the launcher's lock held, one thread at a time. Everything that happens becomes a line (spool.py);
the launcher passes the lines on. A slot is filled again in the turn in which its attempt ended, before anybody is told.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
import time
from _signal import SIGCONT, SIGKILL, SIGTERM
from _thread import allocate_lock, start_new_thread
from errno import EAGAIN, EMFILE, ENFILE, ENOSPC

from resile.executors.local import processes
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.orphans import Orphans
from resile.executors.local.launcher.slots import Slot
from resile.executors.local.launcher.spawner import Spawner
from resile.executors.local.launcher.start_after import Waiting
from resile.executors.local.oom import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

WATCH_AFTER_SECONDS = 0.005
LOOK_AGAIN_SECONDS = 0.1
SWEEP_SECONDS = 1.0
GIVE_UP_SECONDS = 5.0
SINK_BYTES = 256 * 1024
SINKS_MAX = 256
NEVER = float("inf")
_KILLED_BY_KERNEL = (SIGKILL, (128 + SIGKILL) << 8)


class Attempts:
    """All attempts that this launcher knows, and the slots they run in."""

    def __init__(
        self,
        epoll: select.epoll,
        publish: Callable[[], None],
        hear: Callable[[], object],
        wake: Callable[[float], None],
        crash: Callable[[], None],
    ) -> None:
        self.epoll = epoll
        self.publish = publish
        self.hear = hear
        # Has the launcher's own thread look again by that time.
        self.wake = wake
        self.crash = crash
        # Whoever changes anything here holds it; its own thread does whenever it does not wait.
        self.lock = allocate_lock()
        self.lines: list[bytes] = []
        self.queue: dict[bytes, list[bytes]] = {}
        self.waiting = Waiting()
        # Has an end let others start that nobody had to ask for?
        self.followed = False
        self.free: list[Slot] = []
        self.running: dict[bytes, Slot] = {}
        self.listened: dict[int, Slot] = {}
        self.sinks: dict[int, None] = {}
        self.orphans = Orphans(epoll)
        self.spawner = Spawner()
        self.secrets: tuple[bytes, ...] = ()
        self.folder = self.token = b""
        # Slots wanted, open now, and ever made: the last one numbers them, so no two share a segment.
        self.slots = self.opened = self.made = 0
        # Why nothing may be started: the spool could not say so.
        self.blocked_errno = ENOSPC
        self.wake_at = NEVER
        self.oom = Watch()
        # Read once for all attempts that are looked at or killed in one turn: it costs milliseconds.
        self.table: dict[int, processes.Process] | None = None

    def ready(self, descriptor: int) -> None:
        """There is output, or a process has ended."""
        if descriptor in self.listened:
            slot = self.listened[descriptor]
            (slot.out if descriptor == slot.out.reader else slot.err).pump()
        elif descriptor in self.sinks:
            self.empty(descriptor)
        elif descriptor in self.orphans.mortals:
            self.orphans.bury(descriptor)
            if any(slot.cut for slot in self.running.values()):
                self.wake_at = 0.0

    def take(self, key: bytes, fields: list[bytes]) -> None:
        """Queue an attempt, or let it wait for those that it comes after."""
        self.waiting.begin(key)
        if fields[8]:
            ready = self.waiting.add(key, fields, fields[8].split(b","), self.queue, self.running)
            if not ready:
                if ready is False:
                    self.withdrawn(key)
                return
        self.queue[key] = fields

    def over(self, key: bytes, well: bool) -> None:
        """An attempt has ended or never will start: those that come after it may, or never will."""
        freed, doomed = self.waiting.over(key, well)
        if freed:
            self.followed = True
            self.queue.update(freed)
        for follower in doomed:
            self.withdrawn(follower)

    def fill(self, mine: Slot | None = None) -> None:
        """Give what is queued to slots, as far as there are free ones; the thread of `mine` is the caller's.

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
                    self.refuse(self.next_queued()[0], error.errno or ENOSPC, b"output")
                    continue
            else:
                return
            if self.begin(slot, *self.next_queued()) and slot is not mine:
                slot.turn, turn = turn, slot.has_started
                slot.given.release()

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

    def next_queued(self) -> tuple[bytes, list[bytes]]:
        """The attempt that has waited longest."""
        key = next(iter(self.queue))
        return key, self.queue.pop(key)

    def begin(self, slot: Slot, key: bytes, fields: list[bytes]) -> bool:
        """Give a slot an attempt; that it is about to start is on the spool first, so that no start goes unnoticed."""
        if not self.blocked_errno:
            slot.line = b"B %s\n" % key
            self.lines.append(slot.line)
            self.publish()
        if self.blocked_errno:
            # Nobody would know about it if this process died now.
            slot.reset()
            self.free.append(slot)
            self.refuse(key, self.blocked_errno, b"output")
            return False
        slot.out.begin(self.secrets)
        slot.err.begin(self.secrets)
        slot.key = key
        slot.frame = fields
        slot.has_started = allocate_lock()
        slot.has_started.acquire()
        slot.grace_seconds = float(fields[4])
        slot.deadline = NEVER
        self.running[key] = slot
        return True

    def serve(self, slot: Slot) -> None:
        """The life of a slot's thread: start what it is given, wait for its end, go on with the next."""
        try:
            while not slot.closed:
                slot.given.acquire()
                while slot.frame is not None:
                    self.attend(slot, slot.frame)
        except BaseException:
            self.crash()

    def attend(self, slot: Slot, fields: list[bytes]) -> None:
        """One attempt, from its start to the end of its leader."""
        if slot.turn is not None:
            with slot.turn:
                slot.turn = None
        # Read before the spawn, which returns when the program runs: its time counts from here.
        slot.started_at, slot.started = time.time(), time.monotonic()
        pid, errno, stage = self.spawner.spawn(slot, fields)
        with self.lock:
            slot.has_started.release()
            if not pid:
                self.not_started(slot, errno, stage)
                return
            self.started(slot, pid, float(fields[3]))
        # It is reaped with the lock held: as long as it is not, nobody else has its number, and it can be signalled.
        posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOWAIT)
        with self.lock:
            _, status, usage = posix.wait4(pid, 0)
            self.left(slot, (status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))

    def started(self, slot: Slot, pid: int, timeout_seconds: float) -> None:
        """The leader of an attempt runs; it may have been killed before there was anything to kill."""
        slot.pid = pid
        if timeout_seconds > 0:
            slot.deadline = slot.started + timeout_seconds
        slot.line = b"S %s %.6f %d %.2f %s %d %d\n" % (
            slot.key,
            slot.started_at,
            pid,
            processes.boot_seconds(),
            slot.segment,
            slot.out.start,
            slot.err.start,
        )
        # Told with whatever comes next, or when its output is listened to.
        self.lines.append(slot.line)
        if slot.cut:
            self.table = None
            self.cut(slot, slot.cut, time.monotonic())
        self.look_by(min(slot.deadline, slot.started + WATCH_AFTER_SECONDS))

    def not_started(self, slot: Slot, errno: int, stage: bytes) -> None:
        """There was nothing to start; the slot is free for the next attempt."""
        key = slot.key
        del self.running[key]
        slot.reset()
        self.free.append(slot)
        self.refuse(key, errno, stage)
        self.go_on(slot)

    def left(self, slot: Slot, usage: tuple[int, float, int]) -> None:
        """The leader of an attempt has ended; of one that was cut short the rest must end too."""
        slot.usage = usage
        slot.reaped = True
        slot.frame = None
        if slot.cut:
            self.look_by(0.0)
            return
        self.finish(slot)
        if self.followed:
            # What goes on by itself may have been taken back before this end.
            self.hear()
        self.go_on(slot)

    def go_on(self, slot: Slot) -> None:
        """The caller's slot is free: fill it, and say what has happened."""
        self.fill(slot)
        if self.lines:
            self.publish()
        if not self.running:
            # Perhaps nobody has anything to do any more.
            self.wake(0.0)

    def look_by(self, at: float) -> None:
        """Have what is due at that time done then."""
        if at < self.wake_at:
            self.wake_at = at
            self.wake(at)

    def refuse(self, key: bytes, errno: int, stage: bytes) -> None:
        """An attempt that could not be started at all has ended."""
        now = time.time()
        self.lines.append(b"E %s %.6f %.6f 0 0 0 - 0 0 0 0 - %d %s 0\n" % (key, now, now, errno, stage))
        self.over(key, well=False)

    def finish(self, slot: Slot) -> None:
        """An attempt is over: close its range, report it, and make its slot free."""
        now = time.time()
        leftovers = self.has_leftovers(slot)
        if slot.wrote():
            # Whoever follows the slot's last attempt must be able to see its end before the segment goes on.
            if self.lines:
                self.publish()
            slot.drain()
        status, cpu_seconds, rss_bytes = slot.usage
        oom = 0
        if status in _KILLED_BY_KERNEL and not slot.cut:
            oom = self.oom.kills(slot.pid, time.monotonic(), slot.started)
        out, err = slot.out, slot.err
        errno = out.errno or err.errno
        self.lines.append(
            b"E %s %.6f %.6f %d %.6f %d %s %d %d %d %d %s %d %s %d\n"
            % (
                slot.key,
                slot.started_at,
                now,
                status,
                cpu_seconds,
                rss_bytes,
                slot.segment,
                out.start,
                out.size - out.start,
                err.start,
                err.size - err.start,
                slot.cut or b"-",
                errno,
                b"output" if errno else b"-",
                oom,
            )
        )
        del self.running[slot.key]
        self.over(slot.key, well=not (status or slot.cut or errno))
        if slot.watched:
            self.unlisten(slot)
        if not self.make_ready(slot, leftovers) or self.opened > self.slots:
            self.opened -= 1
            slot.close()
            return
        slot.reset()
        self.free.append(slot)

    def make_ready(self, slot: Slot, leftovers: bool) -> bool:
        """Give a slot what the next attempt needs; False where it can't be had."""
        try:
            if leftovers:
                for descriptor in slot.renew():
                    self.sinks[descriptor] = None
                    self.epoll.register(descriptor, select.EPOLLIN)
                while len(self.sinks) > SINKS_MAX:
                    self.empty(next(iter(self.sinks)), close=True)
            if slot.full():
                slot.roll()
        except OSError:
            return False
        return True

    def has_leftovers(self, slot: Slot) -> bool:
        """May somebody still hold the pipes of this attempt, whose leader was reaped?"""
        if not self.orphans.can_be_found():
            return slot.suspect or system_calls.group_exists(slot.pid)
        self.find_orphans()
        return slot.suspect

    def find_orphans(self) -> None:
        """Whose the new ones are, their marks say; one without a mark may be that of any running attempt."""
        for orphan in self.orphans.find():
            owner = orphan.mark.rpartition(self.token + b":")[2].replace(b":", b" ")
            for candidate in (self.running[owner],) if owner in self.running else tuple(self.running.values()):
                candidate.suspect = True

    def look(self) -> None:
        """Something is due: listen to the output of longer attempts, end those whose time is up."""
        now = time.monotonic()
        self.wake_at = now + SWEEP_SECONDS if self.running else NEVER
        self.table = None
        if self.orphans.can_be_found():
            # Those of an attempt that goes on for hours must not pile up until it ends.
            self.find_orphans()
        for slot in list(self.running.values()):
            due = self.advance(slot, now)
            self.wake_at = min(self.wake_at, due)

    def advance(self, slot: Slot, now: float) -> float:
        """Do what is due for one attempt; when to look again."""
        if not slot.pid:
            return NEVER
        if not slot.watched and now >= slot.started + WATCH_AFTER_SECONDS:
            self.listen(slot)
        if not slot.cut:
            if now >= slot.deadline:
                self.cut(slot, b"timeout", now)
                return min(slot.deadline, now + LOOK_AGAIN_SECONDS)
            return slot.deadline if slot.watched else min(slot.deadline, slot.started + WATCH_AFTER_SECONDS)
        if not slot.reaped and now < slot.deadline:
            return slot.deadline
        found = self.members(slot)
        if slot.reaped and (not found or now >= slot.deadline + GIVE_UP_SECONDS):
            self.finish(slot)
            return NEVER
        for pid in found:
            if pid != slot.pid:
                self.orphans.mourn(pid)
        if now < slot.deadline:
            return min(slot.deadline, now + LOOK_AGAIN_SECONDS)
        if not slot.reaped:
            system_calls.signal_group(slot.pid, SIGKILL)
        processes.send_all(found, SIGKILL)
        return now + LOOK_AGAIN_SECONDS

    def cut(self, slot: Slot, why: bytes, now: float) -> None:
        """Ask everything of an attempt to end; the rest is killed when the grace is over."""
        slot.cut = why
        if not slot.pid:
            return
        slot.deadline = now + slot.grace_seconds
        self.look_by(slot.deadline)
        found = self.members(slot)
        # The group at once, so that no child forked in between is missed; then those that left the group.
        system_calls.signal_group(slot.pid, SIGTERM)
        system_calls.signal_group(slot.pid, SIGCONT)
        processes.send_all({pid: entry for pid, entry in found.items() if entry.group != slot.pid}, SIGTERM, SIGCONT)

    def members(self, slot: Slot) -> dict[int, processes.Process]:
        """The living processes of an attempt, by the process table of this turn."""
        if self.table is None:
            self.table = processes.table()
        mark = self.spawner.mark + b":" + slot.key.replace(b" ", b":")
        return processes.members(self.table, slot.pid, not slot.reaped, mark, slot.known)

    def listen(self, slot: Slot) -> None:
        """Take the attempt's output as it comes."""
        slot.watched = True
        for pipe in (slot.out, slot.err):
            self.listened[pipe.reader] = slot
            self.epoll.register(pipe.reader, select.EPOLLIN)

    def unlisten(self, slot: Slot) -> None:
        """The attempt is over."""
        slot.watched = False
        for pipe in (slot.out, slot.err):
            del self.listened[pipe.reader]
            self.epoll.unregister(pipe.reader)

    def empty(self, descriptor: int, close: bool = False) -> None:
        """Throw away what leftover processes write; forget the pipe when the last of them has closed it."""
        try:
            close = close or not posix.read(descriptor, SINK_BYTES)
        except BlockingIOError:
            return
        if close:
            del self.sinks[descriptor]
            posix.close(descriptor)

    def kill(self, key: bytes) -> None:
        """End this attempt; one that is queued never starts, one that is over stays over."""
        if key in self.queue or key in self.waiting.missing:
            self.withdraw(key)
        elif key in self.running and not self.running[key].cut:
            self.cut(self.running[key], b"killed", time.monotonic())

    def withdraw(self, key: bytes) -> None:
        """An attempt that is queued, or waits for others, never starts."""
        if key in self.queue:
            del self.queue[key]
        else:
            self.waiting.forget(key)
        self.withdrawn(key)

    def withdrawn(self, key: bytes) -> None:
        """Say that an attempt never starts, and so none that comes after it."""
        self.lines.append(b"W %s %.6f\n" % (key, time.time()))
        self.over(key, well=False)

    def withdraw_all(self) -> None:
        """Nothing that is queued or waits starts."""
        while self.queue or self.waiting.missing:
            self.withdraw(next(iter(self.queue or self.waiting.missing)))

    def terminate(self) -> None:
        """Kill everything at once."""
        self.withdraw_all()
        for slot in self.running.values():
            slot.grace_seconds = 0.0
            self.cut(slot, b"killed", time.monotonic())
        for descriptor in list(self.sinks):
            self.empty(descriptor, close=True)
