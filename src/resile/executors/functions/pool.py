"""The pool that makes calls: worker processes that share a socket, or threads that share a queue.

    CallQueue   send(call) -> taken?    take_back() -> calls that no worker has taken yet
    Worker      receive() -> records    current: the running call    signal(number)

A worker of an earlier engine that still makes a call is adopted: this engine enforces the limits of that call.

Only one worker can take a call out of the queue, so a call that `take_back` returns is certain never to run.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

import msgspec

from resile.executors.functions.calls import (
    Begun,
    Call,
    Done,
    Dropped,
    Functions,
    Record,
    decode_record,
    encode_call,
    encode_record,
    perform,
)
from resile.executors.functions.spool import Spool, is_alive, records_of, write_all, writer_of
from resile.executors.functions.worker import IN_A_FILE, INLINE, MESSAGE_BYTES_MAX, Setting, decode_message
from resile.executors.local.launcher.memory import WATCH_SECONDS, used_by
from resile.executors.local.launcher.system_calls import socket
from resile.executors.local.processes import read_file, read_process, read_table, with_descendants
from resile.model.folders import create_file

WAKE_AT = 64
CLOSE_SECONDS_MAX = 5.0
SILENT_SECONDS_MAX = 30.0
RECEIVE_BYTES = 256 * 1024
CALL_QUEUE_BYTES = 1024 * 1024
CGROUP_BYTES_MAX = 64 * 1024
CGROUP_MOUNTS = (b"/sys/fs/cgroup", b"/sys/fs/cgroup/unified")
_BOOT = "from resile.executors.functions.worker import main; main()"


def is_frozen(pid: int) -> bool:
    """Is this process frozen by its cgroup, as the processes of a paused container are?"""
    membership = read_file(b"/proc/%d/cgroup" % pid, CGROUP_BYTES_MAX)
    paths = [line[3:] for line in membership.splitlines() if line.startswith(b"0::")]
    files = [mount + path + b"/cgroup.events" for path in paths for mount in CGROUP_MOUNTS]
    return any(b"frozen 1" in read_file(file, CGROUP_BYTES_MAX) for file in files)


class SocketCallQueue:
    """Calls for worker processes: one message each, which the first free worker reads whole."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CALL_QUEUE_BYTES)

    def send(self, call: Call) -> bool:
        """Offer a call to the workers; False if their queue is full."""
        body = encode_call(call)
        message = INLINE + body
        if len(message) > MESSAGE_BYTES_MAX:
            path = os.path.join(self._folder, f"call_j{call.job}_a{call.attempt}")
            with create_file(path) as file:
                file.write(body)
            message = IN_A_FILE + os.fsencode(path)
        try:
            self._ours.send(message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def take_back(self) -> list[Call]:
        """Remove and return the calls that no worker has taken yet, in order."""
        found: list[Call] = []
        while True:
            try:
                message = self.theirs.recv(2 * MESSAGE_BYTES_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            found.append(decode_message(message))

    def close(self) -> None:
        """Drop the remaining calls; idle workers exit."""
        self.take_back()
        self._ours.close()
        self.theirs.close()


class ThreadCallQueue:
    """Calls for threads."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Call | None] = SimpleQueue()

    def send(self, call: Call) -> None:
        """Offer a call to the threads."""
        self.queue.put(call)

    def take_back(self) -> list[Call]:
        """Remove and return the calls that no worker has taken yet, in order."""
        found: list[Call] = []
        while True:
            try:
                call = self.queue.get_nowait()
            except Empty:
                return found
            if call is not None:
                found.append(call)

    def close(self) -> None:
        """Drop the remaining calls; idle threads exit."""
        self.take_back()
        self.queue.put(None)


class Worker:
    """The common state of both kinds of workers: the running call, and the progress of its termination.

    `signal_is_pending`: a call returned before its SIGTERM arrived, which may then hit the next call.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.pid = os.getpid()
        self.current: Begun | None = None
        self.reported_key = self.abandoned_key = (0, 0)
        self.reason = ""
        self.terminated_at = self.kill_at = 0.0
        self.signal_is_pending = False
        self.recorded_spool = self.received_spool = 0
        self.has_begun = False
        self.memory_peak = 0
        self._measured_at = 0.0

    @property
    def key(self) -> tuple[int, int] | None:
        """The attempt that the worker is making."""
        begun = self.current
        return None if begun is None else (begun.job, begun.attempt)

    def uses_too_much(self, now: float) -> bool:
        """Does the process, with those that it started, use more memory than its call may? Measured now and then."""
        begun = self.current
        if begun is None or self.pid == os.getpid() or now < max(begun.at, self._measured_at) + WATCH_SECONDS:
            return False
        if begun.at > self._measured_at:
            self.memory_peak = 0
        self._measured_at = now
        table = read_table()
        family = with_descendants(table, {pid for pid, entry in table.items() if entry.session == self.pid})
        used = used_by(family, begun.memory_bytes)
        self.memory_peak = max(self.memory_peak, used)
        return used > begun.memory_bytes

    def unreported_pid(self, key: tuple[int, int]) -> int:
        """The worker's pid, unless the start of this attempt has been reported."""
        return 0 if self.reported_key == key else self.pid


class ProcessWorker(Worker):
    """A worker process."""

    def __init__(
        self, base: str, calls: socket.socket, setting: Setting, env: dict[str, str], directory: str | None
    ) -> None:
        super().__init__(base)
        import subprocess

        self._reports, theirs = socket.socketpair()
        setting = msgspec.structs.replace(setting, calls=calls.fileno(), reports=theirs.fileno(), base=base)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        out, err = (os.open(base + ending, flags, 0o600) for ending in (".o", ".e"))
        try:
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
        except OSError:
            self._reports.close()
            raise
        finally:
            os.close(out)
            os.close(err)
            theirs.close()
        self.pid = self._process.pid
        self._inbox = b""

    def fileno(self) -> int:
        """Readable when there are records, and when the process has exited."""
        return self._reports.fileno()

    def receive(self) -> tuple[list[Record], bool]:
        """The worker's records since the last call, and whether it has exited."""
        has_exited = False
        while True:
            try:
                data = self._reports.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if not data:
                has_exited = True
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
        return found, has_exited

    def wait_status(self) -> int:
        """The wait status of a worker that has exited."""
        code = self._process.wait()
        return -code if code < 0 else code << 8

    def signal(self, number: int) -> None:
        """Signal the worker and everything that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def close(self) -> bool:
        """Close the socket: the worker finishes its call and exits. Return whether it has exited already."""
        import subprocess

        self._reports.close()
        if self.current is None:
            # The worker may have taken a call that it has not reported yet.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS_MAX)
                return True
        # init reaps the worker when this process is gone; keep Popen from warning about it.
        self._process.returncode = 0
        return False


class ThreadWorker(Worker):
    """A thread of this process. It can't be killed: one whose call takes too long is abandoned.

    It ends with a `problem` if it can't write a record.
    """

    def __init__(
        self,
        base: str,
        queue: SimpleQueue[Call | None],
        functions: Functions,
        is_fenced: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(base)
        self._is_fenced = is_fenced
        self.done: deque[Done] = deque()
        self.problem = ""
        self._queue = queue
        self._functions = functions
        self._wake = wake
        self._spool = Spool(base, "thread")
        self._log = -1
        self._thread = Thread(target=self._work, name=f"resile {os.path.basename(base)}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._spool.close()
            raise

    def _work(self) -> None:
        """Make calls; at the end, wake the engine if it still has records to receive."""
        try:
            self._make_calls()
        except BaseException as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._spool.close()
            if self._log >= 0:
                os.close(self._log)
            if self.done or self.problem:
                self._wake()

    def _make_calls(self) -> None:
        """Make calls until the queue is closed (None); wake the engine when the queue is empty."""
        queue, spool, done = self._queue, self._spool, self.done
        while not self.reason:
            try:
                call = queue.get_nowait()
            except Empty:
                if done:
                    self._wake()
                call = queue.get()
            if call is None:
                # For the next thread.
                queue.put(None)
                return
            begun = Begun(call.job, call.attempt, self._functions.now(), call.timeout_seconds, call.grace_seconds)
            self.current = begun
            spool.add(encode_record(begun))
            if self._is_fenced():
                spool.add(encode_record(Dropped(call.job, call.attempt, self._functions.now())))
                return
            cpu = time.thread_time()
            ended = perform(call, self._functions, begun)
            ended.cpu_seconds = time.thread_time() - cpu
            ended.spool = spool.number
            if ended.traceback:
                self._log_traceback(ended)
            try:
                spool.add(encode_record(ended))
            finally:
                # The engine gets the record even if the disk has no room for it.
                done.append(ended)
                self.current = None
            if len(done) == WAKE_AT:
                self._wake()

    def _log_traceback(self, ended: Done) -> None:
        """Write the traceback to the log of the call; if there is no room, the record keeps it."""
        data = ended.traceback.encode()
        with suppress(OSError):
            if self._log < 0:
                self._log = os.open(self.base + ".e", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            place = os.fstat(self._log).st_size
            write_all(self._log, data)
            ended.err, ended.err_length, ended.traceback = place, len(data), ""

    def receive(self) -> tuple[list[Record], bool]:
        """The thread's records since the last call, and whether it has ended."""
        has_exited = not self._thread.is_alive()
        # A few at a time: while the engine handles these, the writer commits the previous ones.
        done = self.done
        found: list[Record] = [done.popleft() for _ in range(min(len(done), WAKE_AT))]
        if done:
            self._wake()
        return found, has_exited and not done

    def close(self) -> bool:
        """Wait for an idle thread to end; a running call goes on. Return whether the thread has ended."""
        if self.current is None:
            self._thread.join(CLOSE_SECONDS_MAX)
        return not self._thread.is_alive()


class AdoptedWorker(Worker):
    """A worker of an earlier engine: a process, or a thread that an earlier engine of this process abandoned.

    It is not our child, so its exit status is unknown; `sent_signal`, the last signal that we sent, replaces it. A
    thread can't be terminated: it goes on, and counts as gone.
    """

    def __init__(self, base: str, begun: Begun, now: float) -> None:
        super().__init__(base)
        self.pid, kind = writer_of(base)
        self.current = begun
        self.reported_key = (begun.job, begun.attempt)
        self.sent_signal = 0
        self._silent_since = now
        self._is_process = kind == "process"

    def receive(self) -> tuple[list[Record], bool]:
        """No records, because only its spool has them, and whether it has exited."""
        return [], not is_alive(self.base) or bool(self.reason and not self._is_process)

    def is_silent(self, now: float) -> bool:
        """Will this worker report nothing more?

        Its process has been stopped or frozen for a while; or it is a thread of another engine that should have ended.
        """
        process = read_process(self.pid)
        is_foreign_thread = not self._is_process and self.pid != os.getpid()
        if not is_foreign_thread and (process is None or not (process.stopped or is_frozen(self.pid))):
            self._silent_since = now
        return now - self._silent_since >= SILENT_SECONDS_MAX

    def last_record(self) -> Record:
        """The last record of its call."""
        return [record for record in records_of(self.base) if (record.job, record.attempt) == self.key][-1]

    def signal(self, number: int) -> None:
        """Signal the worker and everything that it started, while it holds its lock."""
        self.sent_signal = number
        if self._is_process and is_alive(self.base):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
