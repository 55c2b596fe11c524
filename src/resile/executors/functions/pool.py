"""Who makes the calls: worker processes that share a socket, or threads that share a queue.

    Channel   send(call) -> taken?    take_back() -> calls that nobody has taken yet
    Hand      receive() -> records    current: the call that it makes    end(signal)

Whoever takes a call out of a channel has it, so what is taken back is certain never to run.
"""

from __future__ import annotations

import os
import sys
import time
from _queue import Empty, SimpleQueue
from _socket import AF_UNIX, MSG_DONTWAIT, SO_SNDBUF, SOCK_SEQPACKET, SOL_SOCKET, socket, socketpair
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import msgspec

from resile.executors.functions.calls import (
    Begun,
    Call,
    Done,
    Functions,
    Record,
    decode_call,
    decode_record,
    encode_call,
    encode_record,
    perform,
)
from resile.executors.functions.spool import Spool, write_all
from resile.executors.functions.worker import IN_A_FILE, INLINE, MESSAGE_BYTES_MAX, Setting

RING_AT = 64
CLOSE_SECONDS_MAX = 5.0
RECEIVE_BYTES = 256 * 1024
CHANNEL_BYTES = 1024 * 1024
_BOOT = "from resile.executors.functions.worker import main; main()"


class SocketChannel:
    """Calls for worker processes: one message each, whole, for whoever reads first."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ours, self.theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self._ours.setsockopt(SOL_SOCKET, SO_SNDBUF, CHANNEL_BYTES)

    def send(self, call: Call) -> bool:
        """Offer a call to the workers; False where they have enough for a while."""
        body = encode_call(call)
        message = INLINE + body
        if len(message) > MESSAGE_BYTES_MAX:
            path = os.path.join(self._folder, f"call_j{call.job}_a{call.attempt}")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(body)
            message = IN_A_FILE + os.fsencode(path)
        try:
            self._ours.send(message, MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def take_back(self) -> list[Call]:
        """The calls that nobody has taken yet, in order."""
        found: list[Call] = []
        while True:
            try:
                message = self.theirs.recv(2 * MESSAGE_BYTES_MAX, MSG_DONTWAIT)
            except BlockingIOError:
                return found
            if message[:1] == INLINE:
                found.append(decode_call(message[1:]))
            else:
                with open(message[1:], "rb") as file:
                    found.append(decode_call(file.read()))
                os.unlink(message[1:])

    def close(self) -> None:
        """Nobody gets a call any more: what lies there is thrown away, and workers that wait for one end."""
        self.take_back()
        self._ours.close()
        self.theirs.close()


class QueueChannel:
    """Calls for threads."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Call | None] = SimpleQueue()
        self.threads = 0

    def send(self, call: Call) -> bool:
        """Offer a call to the threads."""
        self.queue.put(call)
        return True

    def take_back(self) -> list[Call]:
        """The calls that nobody has taken yet, in order."""
        found: list[Call] = []
        while True:
            try:
                call = self.queue.get_nowait()
            except Empty:
                return found
            if call is not None:
                found.append(call)

    def close(self) -> None:
        """Nobody gets a call any more, and threads that wait for one end."""
        self.take_back()
        for _ in range(self.threads):
            self.queue.put(None)


class Hand:
    """What both kinds have: the call that is being made, and how far ending it has come.

    Its signal goes astray where the call was over before it came.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.pid = os.getpid()
        self.current: Begun | None = None
        self.told = self.left_key = (0, 0)
        self.cut = ""
        self.cut_at = self.kill_at = 0.0
        self.is_astray = False
        self.recorded = 0
        self.heard = 0
        self.has_begun = False

    @property
    def key(self) -> tuple[int, int] | None:
        """The attempt that is being made."""
        begun = self.current
        return None if begun is None else (begun.job, begun.attempt)

    @property
    def untold_pid(self) -> int:
        """Its process, unless the start of its call has been told."""
        return 0 if self.told == self.key else self.pid


class ProcessHand(Hand):
    """A worker process."""

    def __init__(self, base: str, calls: socket, setting: Setting, env: dict[str, str], directory: str | None) -> None:
        super().__init__(base)
        import subprocess

        self._reports, theirs = socketpair()
        setting = msgspec.structs.replace(setting, calls=calls.fileno(), reports=theirs.fileno(), base=base)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        out, err = (os.open(base + ending, flags, 0o600) for ending in (".o", ".e"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, msgspec.json.encode(setting).decode()],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env,
            cwd=directory,
            pass_fds=(calls.fileno(), theirs.fileno()),
            start_new_session=True,
        )
        for descriptor in (out, err):
            os.close(descriptor)
        theirs.close()
        self.pid = self._process.pid
        self._inbox = b""

    def fileno(self) -> int:
        """Readable when it has something to tell, or is gone."""
        return self._reports.fileno()

    def receive(self) -> tuple[list[Record], bool]:
        """What it has told since the last time, and whether it is gone."""
        gone = False
        while True:
            try:
                data = self._reports.recv(RECEIVE_BYTES, MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if not data:
                gone = True
                break
            self._inbox += data
        found: list[Record] = []
        place, inbox = 0, self._inbox
        while place + 4 <= len(inbox):
            end = place + 4 + int.from_bytes(inbox[place : place + 4], "big")
            if end > len(inbox):
                break
            found.append(decode_record(inbox[place + 4 : end]))
            place = end
        self._inbox = inbox[place:]
        return found, gone

    def wait_status(self) -> int:
        """How a worker that is gone has ended."""
        code = self._process.wait()
        return -code if code < 0 else code << 8

    def end(self, number: int) -> None:
        """Send a signal to it and to everything that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def close(self) -> bool:
        """Let go: a call that it makes goes on, and it ends after that. Has it ended already?"""
        import subprocess

        self._reports.close()
        if self.current is None:
            # It may have taken a call of which nobody has heard.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS_MAX)
                return True
        # Its exit is the system's to take, once this process is gone; it must not warn of that.
        self._process.returncode = 0
        return False


class ThreadHand(Hand):
    """A thread of this process. It can't be killed: one whose call takes too long is left to itself.

    Where it can't go on by itself, because what it must write down can't be written, it ends with a `problem`.
    """

    def __init__(self, base: str, queue: SimpleQueue[Call | None], functions: Functions, ring: Callable[[], None]):
        super().__init__(base)
        self.done: deque[Done] = deque()
        self.problem = ""
        self._queue = queue
        self._functions = functions
        self._ring = ring
        self._spool = Spool(base, "thread")
        self._log = -1
        self._thread = Thread(target=self._work, name=f"resile {os.path.basename(base)}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Make calls, and never end unheard."""
        try:
            self._make_calls()
        except BaseException as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._spool.close()
            if self._log >= 0:
                os.close(self._log)
            if self.done or self.problem:
                self._ring()

    def _make_calls(self) -> None:
        """Make calls until there is a None; the bell is rung when there is nothing left to do."""
        queue, spool, done = self._queue, self._spool, self.done
        while not self.cut:
            try:
                call = queue.get_nowait()
            except Empty:
                if done:
                    self._ring()
                call = queue.get()
            if call is None:
                return
            begun = Begun(call.job, call.attempt, time.time(), call.timeout_seconds, call.grace_seconds)
            self.current = begun
            spool.add(encode_record(begun))
            cpu = time.thread_time()
            ended = perform(call, self._functions, begun)
            ended.cpu_seconds = time.thread_time() - cpu
            ended.spool = spool.number
            if ended.traceback:
                self._keep(ended)
            try:
                spool.add(encode_record(ended))
            finally:
                # Known here, so not lost, also where there is no room for it.
                done.append(ended)
                self.current = None
            if len(done) == RING_AT:
                self._ring()

    def _keep(self, ended: Done) -> None:
        """Put the traceback into the log of the call; where there is no room the engine is told of it as it is."""
        data = ended.traceback.encode()
        with suppress(OSError):
            if self._log < 0:
                self._log = os.open(self.base + ".e", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            place = os.fstat(self._log).st_size
            write_all(self._log, data)
            ended.err, ended.err_length, ended.traceback = place, len(data), ""

    def receive(self) -> tuple[list[Record], bool]:
        """What it has done since the last time."""
        gone = not self._thread.is_alive()
        # A little at a time: while the engine takes that in, what it took in before goes to disk.
        done = self.done
        found: list[Record] = [done.popleft() for _ in range(min(len(done), RING_AT))]
        if done:
            self._ring()
        return found, gone and not done

    def close(self) -> bool:
        """Let go: a call that it makes goes on as long as this process does. Has it ended already?"""
        if self.current is None:
            self._thread.join(CLOSE_SECONDS_MAX)
        return not self._thread.is_alive()
