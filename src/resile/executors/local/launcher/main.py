"""The launcher: one lean process for each driven run. It starts attempts, watches them, and outlives the engine.

    engine --frames--> launcher --fork/exec--> attempts (own session each)
           <--lines---    |  \\--> spool (the same lines)
                          \\--> segments (what the attempts wrote)

A frame is four bytes of length and NUL-separated fields; argv and environment can't hold a NUL:

    C token folder slots directory nsecrets secret-in-hex... NAME=value...   what all attempts share
    S job attempt timeout grace cwd nargv nfallback after argv... fallback... NAME=value...
    K job attempt      end it: SIGTERM, grace, SIGKILL; a queued one is withdrawn
    D                  withdraw everything queued
    A bytes            so much of what you told me since I connected is on disk
    T                  kill everything and end

`after` names attempts as `job attempt,job attempt`: this one waits for all of them (waiting.py).

Lines are those of the spool (spool.py). An engine that connects later, through the socket in the folder, first
hears the whole spool and then `R`. When an engine goes away what is queued is withdrawn and what runs goes on;
the launcher ends when nothing runs and nobody is connected.

Its first thread talks to the engine and keeps the time; each slot has a thread of its own (attempts.py). One lock is
held by whichever of them does anything but wait, so they need no other care.

It is 10 MB and starts in 20 ms because little more than built-in modules are imported; a child's max RSS is never below
that.
"""

from __future__ import annotations

import posix
import select
import sys
import time
from errno import ENOSPC

from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.attempts import LOOK_AGAIN_SECONDS, NEVER, Attempts
from resile.executors.local.redaction import patterns
from resile.executors.local.spool import Spool

FRAME_BYTES_MAX = 64 * 1024 * 1024
RECEIVE_BYTES = 256 * 1024
START_TOLD_SECONDS = 0.010
STARTED_LOOK_SECONDS = 0.0005


class Launcher:
    """The engine's connection, the spool, and the attempts; `run` is its life."""

    def __init__(self, connection: int) -> None:
        self.epoll = select.epoll()
        self.attempts = Attempts(self.epoll, self.flush, self.receive, self.wake, self.crash)
        self.spool: Spool | None = None
        self.listener = -1
        self.inbox = bytearray()
        self.outbox = b""
        self.starts = b""
        self.tell_at = NEVER
        self.ending = False
        self.bell = posix.eventfd(0, posix.EFD_NONBLOCK | posix.EFD_CLOEXEC)
        self.epoll.register(self.bell, select.EPOLLIN)
        # When this thread looks up by itself; while it is at work it needs no waking.
        self.asleep_until = 0.0
        self.attach(connection)

    def run(self) -> None:
        """Answer whatever happens until there is nobody to serve and nothing to watch."""
        attempts = self.attempts
        with attempts.lock:
            while (self.connection >= 0 and not self.ending) or attempts.running or attempts.sinks:
                for descriptor in self.sleep():
                    if descriptor == self.connection:
                        self.receive()
                    elif descriptor == self.listener:
                        self.accept()
                    else:
                        attempts.ready(descriptor)
                if attempts.wake_at != NEVER and time.monotonic() >= attempts.wake_at:
                    attempts.look()
                if attempts.queue:
                    attempts.fill()
                due = self.tell_at != NEVER and time.monotonic() >= self.tell_at
                if due or attempts.lines or self.outbox or (self.spool and self.spool.pending):
                    self.flush()
        if self.spool:
            self.spool.close()
            system_calls.unlink_socket(attempts.folder)

    def sleep(self) -> list[int]:
        """Let the slots go on until something happens or is due; the descriptors that are ready."""
        lock = self.attempts.lock
        wake_at = self.asleep_until = min(self.attempts.wake_at, self.tell_at)
        lock.release()
        try:
            ready = self.epoll.poll(None if wake_at == NEVER else max(0.0, wake_at - time.monotonic()))
        finally:
            lock.acquire()
            self.asleep_until = 0.0
        descriptors = [descriptor for descriptor, _ in ready]
        if self.bell in descriptors:
            posix.eventfd_read(self.bell)
        return descriptors

    def wake(self, at: float) -> None:
        """Have the first thread look up by that time; called by the others."""
        if at < self.asleep_until:
            self.asleep_until = at
            posix.eventfd_write(self.bell, 1)

    def crash(self) -> None:
        """End at once, and leave what went wrong beside the spool."""
        system_calls.redirect_errors(self.attempts.folder, self.attempts.token)
        sys.excepthook(*sys.exc_info())
        posix._exit(1)

    def attach(self, connection: int) -> None:
        """Serve this engine from now on."""
        self.connection = connection
        posix.set_blocking(connection, False)
        self.epoll.register(connection, select.EPOLLIN)

    def detach(self) -> None:
        """The engine is gone: nobody waits for what is queued."""
        posix.close(self.connection)
        self.connection = -1
        self.inbox.clear()
        self.outbox = self.starts = b""
        self.tell_at = NEVER
        self.attempts.withdraw_all()

    def accept(self) -> None:
        """Another engine takes over, once everything that the last one sent has been read."""
        connection = system_calls.accept(self.listener)
        if connection < 0:
            return
        while self.receive():
            pass
        if self.connection >= 0:
            self.detach()
        # Whoever hears that an attempt is about to start, and no more, takes it for lost.
        while any(not slot.pid for slot in self.attempts.running.values()):
            self.attempts.lock.release()
            time.sleep(STARTED_LOOK_SECONDS)
            self.attempts.lock.acquire()
        self.flush()
        self.attach(connection)
        if self.spool:
            self.outbox = self.spool.connected() + b"R\n"

    def receive(self) -> bool:
        """Take what the engine sent; False where there was nothing or the engine is gone."""
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
        try:
            self.take_frames()
        except (ValueError, IndexError):
            # Not our language: there is no way to find the next frame.
            self.detach()
        return True

    def take_frames(self) -> None:
        """Act on every complete frame in the inbox."""
        inbox = self.inbox
        self.attempts.table = None
        at = 0
        while len(inbox) - at >= 4:
            length = int.from_bytes(inbox[at : at + 4], "big")
            if length > FRAME_BYTES_MAX:
                raise ValueError
            end = at + 4 + length
            if len(inbox) < end:
                break
            fields = bytes(inbox[at + 4 : end]).split(b"\0")
            at = end
            self.obey(fields)
        del inbox[:at]

    def obey(self, fields: list[bytes]) -> None:
        """One frame."""
        match fields[0]:
            case b"S":
                # Numbers are looked at here, where a wrong one costs the connection and not the launcher.
                float(fields[3]), float(fields[4]), int(fields[6]), int(fields[7])
                self.attempts.take(b"%d %d" % (int(fields[1]), int(fields[2])), fields)
            case b"A":
                if self.spool:
                    running = [slot.line for slot in self.attempts.running.values()]
                    self.spool.acknowledge(int(fields[1]), running)
            case b"K":
                self.attempts.kill(b"%d %d" % (int(fields[1]), int(fields[2])))
            case b"D":
                self.attempts.withdraw_all()
            case b"C":
                self.configure(fields)
            case b"T":
                self.ending = True
                self.attempts.terminate()
            case _:
                raise ValueError

    def configure(self, fields: list[bytes]) -> None:
        """The run that this launcher serves; from a later engine, how it wants things from now on."""
        attempts = self.attempts
        first = 6 + int(fields[5])
        if self.spool is None:
            attempts.token, attempts.folder = fields[1], fields[2]
            try:
                self.spool = Spool(attempts.folder, attempts.token)
                self.listener = system_calls.listen(attempts.folder)
                self.epoll.register(self.listener, select.EPOLLIN)
                attempts.blocked_errno = 0
            except OSError as error:
                attempts.blocked_errno = error.errno or ENOSPC
        attempts.slots = max(1, int(fields[3]))
        attempts.secrets = patterns(bytes.fromhex(field.decode()) for field in fields[6:first])
        attempts.spawner.configure(attempts.token, fields[4], fields[first:])

    def flush(self) -> None:
        """Put the new lines on the spool, then tell the engine.

        What nobody waits for is kept for a moment, so that one message says more: beginnings and starts, because
        most attempts end before it is over, and everything while there is enough queued to go on with, or what
        ended was followed by what had waited for it.
        """
        attempts = self.attempts
        lines = b"".join(attempts.lines)
        only_starts = bool(lines) and all(line.startswith((b"B ", b"S ")) for line in attempts.lines)
        attempts.lines.clear()
        if self.spool:
            kept = self.spool.append(lines)
            attempts.blocked_errno = 0 if kept else ENOSPC
            if not kept:
                attempts.look_by(time.monotonic() + LOOK_AGAIN_SECONDS)
        if self.connection < 0:
            return
        enough = attempts.followed or len(attempts.queue) >= attempts.slots
        attempts.followed = False
        if (only_starts or enough) and lines and not self.outbox:
            self.starts += lines
            if self.tell_at == NEVER:
                self.tell_at = time.monotonic() + START_TOLD_SECONDS
                self.wake(self.tell_at)
            return
        waiting = bool(self.outbox)
        self.outbox += self.starts + lines
        self.starts, self.tell_at = b"", NEVER
        try:
            self.outbox = self.outbox[posix.write(self.connection, self.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            # The engine is gone; reading from it will say so, after what it still sent.
            self.outbox = b""
        if bool(self.outbox) != waiting:
            events = select.EPOLLIN | (select.EPOLLOUT if self.outbox else 0)
            self.epoll.modify(self.connection, events)


def main() -> None:
    """Serve the engine whose socket is our standard input."""
    launcher = Launcher(system_calls.take_stdin())
    try:
        launcher.run()
    except BaseException:
        launcher.crash()
