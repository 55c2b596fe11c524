"""A warm worker process: takes calls from a socket that all workers of a run share, and reports their results.

    engine --calls (one message each)--> a free worker --> spool, then reports --> engine

A function's output goes to the worker's two files; each call has a range of them. When the engine is gone, or a newer
engine has closed its fence (fence.py), the worker finishes its call, records that, and begins no other. A call that is
too large for a message is in a file.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress

import msgspec

from resile.executors.functions.calls import (
    Begun,
    Call,
    Done,
    Dropped,
    Functions,
    decode_call,
    encode_record,
    flush_output,
    perform,
)
from resile.executors.functions.spool import Spool, fence_reader, write_all
from resile.executors.local.launcher.system_calls import socket
from resile.languages.python.modules import NO_HOME, Home, import_module, load_file

MESSAGE_BYTES_MAX = 64 * 1024
IN_A_FILE = b"@"
INLINE = b"="


class Setting(msgspec.Struct):
    """The settings that a worker is started with.

    `file` or `module` defines the first function, `home` is the program that defines the workflow.
    """

    calls: int = -1
    reports: int = -1
    base: str = ""
    path: list[str] = []
    file: str = ""
    module: str = ""
    run: int = 0
    epoch: int = 1
    home: Home = NO_HOME
    clock_offset: float = 0.0
    fence: str = ""


class WorkerProcess:
    """One worker process."""

    def __init__(self, setting: Setting) -> None:
        import resource

        self._usage = resource.getrusage
        self._self = resource.RUSAGE_SELF
        self._calls = socket.socket(fileno=setting.calls)
        self._reports = socket.socket(fileno=setting.reports)
        self._is_fenced = fence_reader(setting.fence)
        self._spool = Spool(setting.base, "process")
        self._functions = Functions(setting.run, setting.epoch, setting.home, setting.clock_offset)
        self._hangup = select.poll()
        self._hangup.register(setting.reports, select.POLLHUP)
        os.register_at_fork(after_in_child=self._close_sockets)

    def _close_sockets(self) -> None:
        """Close the sockets in a child that a function forked, so that the engine does not take it for the worker."""
        self._calls.close()
        self._reports.close()

    def work(self) -> None:
        """Make calls until the engine closes its socket."""
        unsent = b""
        while True:
            try:
                message = self._calls.recv(2 * MESSAGE_BYTES_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if unsent and not self._send(unsent):
                    return
                unsent = b""
                message = self._calls.recv(2 * MESSAGE_BYTES_MAX)
            if not message:
                return
            call = decode_message(message)
            limits = (call.timeout_seconds, call.grace_seconds)
            begun = Begun(call.job, call.attempt, self._functions.now(), *limits, *_output_sizes(), call.memory_bytes)
            record = encode_record(begun)
            try:
                self._spool.add(record)
            except OSError:
                # Do not make a call that could not be recorded.
                self._send(unsent + frame_of(encode_record(Dropped(call.job, call.attempt, self._functions.now()))))
                raise
            if self._is_fenced() or self._hangup.poll(0) or not self._send(unsent + frame_of(record)):
                # The engine is gone, or no longer drives the run; tell the next one that this call never ran.
                self._spool.add(encode_record(Dropped(call.job, call.attempt, self._functions.now())))
                return
            unsent = self._make_call(call, begun)

    def _make_call(self, call: Call, begun: Begun) -> bytes:
        """Make one call and spool its record; return the framed record for the engine."""
        before = self._usage(self._self)
        displaced = {name: os.environb.get(name) for name, _ in call.env}
        os.environ["RESILE_JOB_ID"] = str(call.job)
        os.environ["RESILE_JOB_NAME"] = call.step
        os.environ["RESILE_ATTEMPT_ID"] = str(call.attempt)
        os.environb.update(call.env)
        done = perform(call, self._functions, begun)
        _restore_environment(displaced)
        flush_output()
        if done.traceback:
            # The engine reads the traceback from the log, unless the function has closed that.
            with suppress(OSError):
                write_all(2, done.traceback.encode())
                done.traceback = ""
        used = self._usage(self._self)
        done.cpu_seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        done.rss_bytes_max = used.ru_maxrss * 1024
        done.out, done.err = begun.out, begun.err
        out, err = _output_sizes()
        done.out_length, done.err_length = out - begun.out, err - begun.err
        return frame_of(self._spool_done(done))

    def _spool_done(self, done: Done) -> bytes:
        """Encode the record of a finished call, and add it to the spool if there is room."""
        with suppress(OSError):
            self._spool.reserve(len(encode_record(done)) + 16)
            done.spool = self._spool.number
            self._spool.add(encode_record(done))
        return encode_record(done)

    def _send(self, data: bytes) -> bool:
        """Send records to the engine; False if it is gone."""
        try:
            self._reports.sendall(data)
        except OSError:
            return False
        return True


def frame_of(record: bytes) -> bytes:
    """A record prefixed with its length."""
    return len(record).to_bytes(4, "big") + record


def _restore_environment(displaced: dict[bytes, bytes | None]) -> None:
    """Restore the values that a call replaced."""
    for name, value in displaced.items():
        if value is None:
            os.environb.pop(name, None)
        else:
            os.environb[name] = value


def decode_message(message: bytes) -> Call:
    """The call in a message, or in the file that the message names; the file is removed."""
    body = message[1:]
    if message[:1] == INLINE:
        return decode_call(body)
    with open(body, "rb") as file:
        call = decode_call(file.read())
    os.unlink(body)
    return call


def _output_sizes() -> tuple[int, int]:
    """The sizes of the two output files."""
    try:
        return os.fstat(1).st_size, os.fstat(2).st_size
    except OSError:
        return 0, 0


def main() -> None:
    """Run a worker process; its setting is its one argument."""
    setting = msgspec.json.decode(sys.argv[1], type=Setting)
    sys.path[:] = setting.path
    sys.argv = [setting.file or setting.module or "resile"]
    worker = WorkerProcess(setting)
    if setting.file or setting.module:
        # If the program can't be loaded, each call of its functions reports why.
        with suppress(BaseException):
            # Pickles of the caller's program name its classes by `__main__`.
            sys.modules["__main__"] = load_file(setting.file) if setting.file else import_module(setting.module)
    worker.work()
