"""The launcher: one lean process for each driven run, or for all runs of a server. It starts attempts and watches them,
and it outlives the engine.

    engine --frames--> launcher --fork/exec--> attempts (own session each)
           <--lines---    |  \\--> spool (the same lines)
                          \\--> segments (the output of the attempts)

wire.py defines the frames and lines. An engine that connects later, through the socket in the folder, first sends its
number. The launcher refuses an engine that is not newer than the present one; a newer engine replaces that and receives
the whole spool. When an engine disconnects, the launcher withdraws the queued attempts, and running ones go on; it
exits when nothing runs and no engine is connected.

The launcher's first thread talks to the engine and enforces time limits; each slot has a thread of its own
(attempts.py). A thread holds the one lock unless it waits.

The launcher takes 10 MB and starts in 20 ms because it imports little more than built-in modules. The kernel never
reports a smaller max RSS for a child than the launcher's own.
"""

from __future__ import annotations

import posix
import select
import sys
import time
from errno import ENOSPC

from resile.executors.local import wire
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.attempts import CHECK_AGAIN_SECONDS, Attempts
from resile.executors.local.launcher.pool import NEVER
from resile.executors.local.launcher.profiles import Profile, profile_of
from resile.executors.local.processes import boot_seconds
from resile.executors.local.spool import Spool
from resile.executors.redaction import Patterns

RECEIVE_BYTES = 256 * 1024
PUBLISH_STARTS_SECONDS = 0.010
STARTED_CHECK_SECONDS = 0.0005
KNOCKING_MAX = 4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Launcher:
    """The engine's connection, the spool, and the attempts; `run` serves them."""

    def __init__(self, connection: int) -> None:
        self.epoll = select.epoll()
        self.attempts = Attempts(self.epoll, self.flush, self.receive, self.wake, self.report_error)
        self.spool: Spool | None = None
        self.listener = -1
        # The number of the present engine, and the connections that have not sent their first frame.
        self.number = 0
        self.knocking: dict[int, bytearray] = {}
        self.inbox = bytearray()
        self.outbox = b""
        self.delayed = b""
        self.publish_at = NEVER
        self.ending = False
        self.wakeup_fd = posix.eventfd(0, posix.EFD_NONBLOCK | posix.EFD_CLOEXEC)
        self.epoll.register(self.wakeup_fd, select.EPOLLIN)
        # The time at which this thread wakes by itself; 0 while it is awake.
        self.asleep_until = 0.0
        self.attach(connection)

    def run(self) -> None:
        """Serve until no engine is connected and nothing runs."""
        attempts = self.attempts
        with attempts.lock:
            while (self.connection >= 0 and not self.ending) or attempts.running or attempts.output.abandoned:
                for descriptor in self.sleep():
                    if descriptor == self.connection:
                        self.receive()
                    elif descriptor == self.listener:
                        self.accept()
                    elif descriptor in self.knocking:
                        self.answer(descriptor)
                    else:
                        attempts.handle(descriptor)
                if attempts.check_at != NEVER and boot_seconds() >= attempts.check_at:
                    attempts.check()
                if attempts.queue:
                    attempts.fill_slots()
                due = self.publish_at != NEVER and boot_seconds() >= self.publish_at
                if due or attempts.lines or self.outbox or (self.spool and self.spool.pending):
                    self.flush()
        if self.spool:
            self.spool.close()
            system_calls.unlink_socket(attempts.folder)

    def sleep(self) -> list[int]:
        """Release the lock until a descriptor is ready or work is due; return the ready descriptors."""
        lock = self.attempts.lock
        wake_at = self.asleep_until = min(self.attempts.check_at, self.publish_at)
        lock.release()
        try:
            ready = self.epoll.poll(None if wake_at == NEVER else max(0.0, wake_at - boot_seconds()))
        finally:
            lock.acquire()
            self.asleep_until = 0.0
        descriptors = [descriptor for descriptor, _ in ready]
        if self.wakeup_fd in descriptors:
            posix.eventfd_read(self.wakeup_fd)
        return descriptors

    def wake(self, at: float) -> None:
        """Wake the first thread by that time; the other threads call this."""
        if at < self.asleep_until:
            self.asleep_until = at
            posix.eventfd_write(self.wakeup_fd, 1)

    def report_error(self) -> None:
        """Write the traceback of the present exception to a file beside the spool, if possible."""
        error = sys.exc_info()
        system_calls.redirect_errors(self.attempts.folder, self.attempts.token)
        sys.excepthook(*error)

    def crash(self) -> None:
        """Write the traceback, and exit at once even if that fails.

        The engine sees the end of the connection, and reports the running attempts as lost.
        """
        try:
            # The traceback's file needs a descriptor.
            posix.close(0)
            self.report_error()
        finally:
            posix._exit(1)

    def attach(self, connection: int) -> None:
        """Serve this engine from now on."""
        self.connection = connection
        posix.set_blocking(connection, False)
        self.epoll.register(connection, select.EPOLLIN)

    def detach(self) -> None:
        """Close the connection to an engine that is gone, and withdraw its queued attempts."""
        if self.connection < 0:
            return
        posix.close(self.connection)
        self.connection = -1
        self.inbox.clear()
        self.outbox = self.delayed = b""
        self.publish_at = NEVER
        self.attempts.withdraw_all()

    def accept(self) -> None:
        """Accept a connection, and watch for its first frame."""
        connection = system_calls.accept(self.listener)
        if connection < 0:
            return
        posix.set_blocking(connection, False)
        if len(self.knocking) >= KNOCKING_MAX:
            self.refuse(next(iter(self.knocking)))
        self.knocking[connection] = bytearray()
        self.epoll.register(connection, select.EPOLLIN)

    def refuse(self, connection: int) -> None:
        """Close a connection that the launcher will not serve."""
        del self.knocking[connection]
        posix.close(connection)

    def answer(self, connection: int) -> None:
        """Read the first frames of a connection: serve an engine that is newer than the present one, refuse others."""
        inbox = self.knocking[connection]
        try:
            data = posix.read(connection, RECEIVE_BYTES)
            inbox += data
            frames = list(wire.take_frames(inbox))
            newer = bool(frames) and wire.Configuration(frames[0]).number > self.number
        except BlockingIOError:
            return
        except (OSError, ValueError):
            data, newer = b"", False
        if data and not newer and not frames:
            return
        if not newer:
            self.refuse(connection)
            return
        del self.knocking[connection]
        self.epoll.unregister(connection)
        self.take_over(connection)
        self.inbox = inbox
        self.obey_all(frames)

    def take_over(self, connection: int) -> None:
        """Serve another engine, after reading everything that the previous one sent."""
        while self.receive():
            pass
        if self.connection >= 0:
            self.detach()
        # Wait until each assigned attempt has a process: the new engine would report an attempt without one as lost.
        while any(not slot.pid for slot in self.attempts.running.values()):
            self.attempts.lock.release()
            time.sleep(STARTED_CHECK_SECONDS)
            self.attempts.lock.acquire()
        self.flush()
        self.attach(connection)
        if self.spool:
            self.outbox = self.spool.greet() + wire.GREETING_END

    def receive(self) -> bool:
        """Read and execute the frames that the engine sent; False if there were none or the engine is gone."""
        if self.connection < 0:
            return False
        try:
            data = posix.read(self.connection, RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.detach()
            return False
        self.inbox += data
        self.obey_all(wire.take_frames(self.inbox))
        return True

    def obey_all(self, frames: Iterable[list[bytes]]) -> None:
        """Execute frames; disconnect if one is malformed, because the next one can't be found."""
        try:
            self.attempts.table = None
            for fields in frames:
                self.obey(fields)
        except (ValueError, IndexError):
            self.detach()

    def obey(self, fields: list[bytes]) -> None:
        """Execute one frame."""
        match fields[0]:
            case wire.START:
                self.attempts.enqueue(wire.Start(fields))
            case wire.ACKNOWLEDGE:
                if self.spool:
                    running = [wire.COMPACTED + b"\n", *(slot.line for slot in self.attempts.running.values())]
                    received, last = wire.decode_acknowledgement(fields)
                    self.spool.acknowledge(received, running, last)
            case wire.KILL:
                self.attempts.kill(wire.decode_key(fields), wire.decode_grace(fields))
            case wire.DRAIN:
                self.attempts.withdraw_all()
            case wire.CONFIGURE:
                self.configure(wire.Configuration(fields))
            case wire.DEFINE:
                given = wire.ProfileFields(fields)
                self.attempts.profiles[given.profile] = profile_of(given)
            case wire.FORGET:
                self.attempts.profiles.pop(int(fields[1]), None)
            case wire.TERMINATE:
                self.ending = True
                self.attempts.terminate_all()
            case _:
                raise ValueError

    def configure(self, given: wire.Configuration) -> None:
        """Apply the settings of the present engine; those of the first engine also name the folder for the files."""
        attempts = self.attempts
        self.number = given.number
        attempts.fence.watch(given.fence)
        if attempts.fence.is_closed():
            # Leave the socket in the folder to the launcher of a newer engine.
            self.detach()
            return
        if self.spool is None:
            attempts.token, attempts.folder = given.token, given.folder
            try:
                self.spool = Spool(attempts.folder, attempts.token)
                self.listener = system_calls.listen(attempts.folder)
                self.epoll.register(self.listener, select.EPOLLIN)
                attempts.blocked_errno = 0
            except OSError as error:
                attempts.blocked_errno = error.errno or ENOSPC
        attempts.set_slots(given.slots)
        attempts.clock_offset = given.offset
        attempts.spawner.configure(attempts.token, given.directory, given.env)
        own = Profile(attempts.fence, attempts.folder, Patterns(given.secrets), attempts.spawner.environment)
        attempts.profiles = {0: own}

    def flush(self) -> None:
        """Write the new lines to the spool, then send them to the engine.

        It delays lines that the engine does not need at once, so that one message has more lines. These are the lines
        about starts, because most attempts end within the delay; and all lines while enough attempts are queued to keep
        the slots busy, or after an end released attempts that waited for it.
        """
        attempts = self.attempts
        lines = b"".join(attempts.lines)
        only_starts = bool(lines) and all(map(wire.is_of_start, attempts.lines))
        attempts.lines.clear()
        if self.spool:
            kept = self.spool.append(lines)
            attempts.blocked_errno = 0 if kept else ENOSPC
            if not kept:
                attempts.check_by(boot_seconds() + CHECK_AGAIN_SECONDS)
        if self.connection < 0:
            return
        enough = attempts.followed or len(attempts.queue) >= attempts.pool.count_max
        attempts.followed = False
        if (only_starts or enough) and lines and not self.outbox:
            self.delayed += lines
            if self.publish_at == NEVER:
                self.publish_at = boot_seconds() + PUBLISH_STARTS_SECONDS
                self.wake(self.publish_at)
            return
        waiting = bool(self.outbox)
        self.outbox += self.delayed + lines
        self.delayed, self.publish_at = b"", NEVER
        try:
            self.outbox = self.outbox[posix.write(self.connection, self.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            # The engine is gone; `receive` notices that after it has read the engine's last frames.
            self.outbox = b""
        if bool(self.outbox) != waiting:
            events = select.EPOLLIN | (select.EPOLLOUT if self.outbox else 0)
            self.epoll.modify(self.connection, events)


def main() -> None:
    """Serve the engine whose socket is standard input."""
    launcher = Launcher(system_calls.take_stdin())
    try:
        launcher.run()
    except BaseException:
        launcher.crash()
