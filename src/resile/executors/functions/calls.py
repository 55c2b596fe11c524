"""One call of a Python function: its arguments, its result, and the records of it.

    Call --> find the function --> call it --> Done(value as JSON, or the exception)

This module runs in workers, in threads of the engine's process, and in the engine itself, which only encodes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from resile.executors.local.processes import boot_seconds
from resile.languages.python.modules import NO_HOME, Home, object_named, type_name
from resile.languages.python.values import ValueUnfit, portable, revive
from resile.model.failure import Kind
from resile.model.limits import MESSAGE_CHARACTERS_MAX


class Failed(Struct, frozen=True):
    """The failed attempt that a function is called to repair; the names are those of `${error.…}`."""

    step: str
    job: int
    attempt: int
    kind: str
    exit_code: int | None
    message: str
    types: tuple[str, ...] = ()


class Call(Struct, frozen=True, gc=False, array_like=True):
    """One attempt to make: a function by its file or module and its name, and its arguments as JSON values.

    `env` is added to the worker's environment for this call alone. If the call is `escaped` its arguments are one JSON
    text.
    """

    job: int
    attempt: int
    function: tuple[str, str, str]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout_seconds: float = 0.0
    grace_seconds: float = 0.0
    pickled: bool = False
    step: str = ""
    env: tuple[tuple[bytes, bytes], ...] = ()
    failed: Failed | None = None
    escaped: bool = False
    memory_bytes: int = 0


class Current(Struct, frozen=True):
    """The current call: the run and its epoch, the step, its job and the attempt.

    If the call repairs another step, `failed` describes the failure.
    """

    run: int
    epoch: int
    step: str
    job: int
    attempt: int
    failed: Failed | None = None


class Begun(Struct, frozen=True, gc=False, array_like=True, tag="B"):
    """A call has begun; its output begins at these offsets of the worker's files."""

    job: int
    attempt: int
    at: float
    timeout_seconds: float = 0.0
    grace_seconds: float = 0.0
    out: int = 0
    err: int = 0
    memory_bytes: int = 0


class Done(Struct, gc=False, array_like=True, tag="D"):
    """A call is over: `value` is JSON, empty for None; or it failed, with `kind` and the exception.

    The worker adds the resources that the call used, and the number of its spool file.
    """

    job: int
    attempt: int
    started_at: float
    at: float
    value: bytes = b""
    kind: str = ""
    message: str = ""
    types: tuple[str, ...] = ()
    traceback: str = ""
    exit_code: int = 0
    cpu_seconds: float = 0.0
    rss_bytes_max: int = 0
    out: int = 0
    out_length: int = 0
    err: int = 0
    err_length: int = 0
    spool: int = 0


class Dropped(Struct, frozen=True, gc=False, array_like=True, tag="W"):
    """A worker took this call and did not begin it, because its engine is gone."""

    job: int
    attempt: int
    at: float


Record = Begun | Done | Dropped
encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode
_encode_call = msgspec.msgpack.Encoder().encode
_decode_call = msgspec.msgpack.Decoder(Call).decode


def encode_call(call: Call) -> bytes:
    """A call as bytes; text that UTF-8 can't encode (bytes of a file name, say) is escaped."""
    try:
        return _encode_call(call)
    except UnicodeEncodeError:
        import json

        text = json.dumps([call.args, call.kwargs])
        return _encode_call(replace(call, args=[text], kwargs={}, escaped=True))


def decode_call(data: bytes) -> Call:
    """The call that `encode_call` encoded."""
    call = _decode_call(data)
    if not call.escaped:
        return call
    import json

    args, kwargs = json.loads(call.args[0])
    return replace(call, args=args, kwargs=kwargs, escaped=False)


_calling: ContextVar[tuple[Functions, Call] | None] = ContextVar("calling", default=None)


def current_call() -> Current | None:
    """The call that this thread is making, also for the tasks it awaits."""
    calling = _calling.get()
    if calling is None:
        return None
    functions, call = calling
    return Current(functions.run, functions.epoch, call.step, call.job, call.attempt, call.failed)


class Functions:
    """Finds functions by name, each once, for one epoch of a run; `pid` is the process that calls them."""

    def __init__(self, run: int, epoch: int, home: Home = NO_HOME, clock_offset: float = 0.0) -> None:
        self.run = run
        self.epoch = epoch
        self.home = home
        self.pid = os.getpid()
        self._clock_offset = clock_offset
        self._found: dict[tuple[str, str, str], Any] = {}

    def now(self) -> float:
        """The time of the run."""
        return boot_seconds() + self._clock_offset

    def find(self, function: tuple[str, str, str]) -> Any:
        """The function itself."""
        found = self._found.get(function)
        if found is None:
            file, module, name = function
            marked = object_named((file, module), name)
            found = self._found[function] = getattr(marked, "function", marked)
        return found


def perform(call: Call, functions: Functions, begun: Begun) -> Done:
    """Call the function; an exception becomes the record of a failed call."""
    done = _call_function(call, functions, begun)
    if os.getpid() != functions.pid:
        _end_copy(done)
    return done


def _call_function(call: Call, functions: Functions, begun: Begun) -> Done:
    """Call the function and encode its result or its exception."""
    try:
        _calling.set((functions, call))
        function = functions.find(call.function)
        args, kwargs = call.args, call.kwargs
        if call.pickled:
            home = (call.function[0], "") if call.function[0] else functions.home
            args, kwargs = revive(args, home), revive(kwargs, home)
        value = function(*args, **kwargs)
        if hasattr(value, "__await__"):
            import asyncio

            value = asyncio.run(_await_value(value))
        data = b"" if value is None else msgspec.json.encode(portable(value, "the result"))
    except ValueUnfit as problem:
        return Done(
            call.job, call.attempt, begun.at, functions.now(), kind=Kind.CONTRACT, message=_storable_text(str(problem))
        )
    except BaseException as error:
        return _failure_of(call, functions, begun, error)
    return Done(call.job, call.attempt, begun.at, functions.now(), data)


def _end_copy(done: Done) -> None:
    """Exit a process that the function forked and that returned here too."""
    try:
        if done.traceback:
            sys.stderr.write(done.traceback)
        flush_output()
    finally:
        os._exit(done.exit_code or (1 if done.kind else 0))


def flush_output() -> None:
    """Flush the output of a function, which may have closed it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            stream.flush()


async def _await_value(value: Any) -> Any:
    """The value of an awaitable."""
    return await value


def _failure_of(call: Call, functions: Functions, begun: Begun, error: BaseException) -> Done:
    """An exception as data: its types from the most specific to the most general, its text, its traceback."""
    types = tuple(_storable_text(type_name(kind)) for kind in type(error).__mro__ if kind is not object)
    code = error.code if isinstance(error, SystemExit) and type(error.code) is int else 1
    lines = f"{types[0]}: {_message_of(error)}".removesuffix(": ").splitlines() or [""]
    return Done(
        call.job,
        call.attempt,
        begun.at,
        functions.now(),
        kind=Kind.EXIT,
        message=_storable_text(lines[0])[:MESSAGE_CHARACTERS_MAX],
        types=types,
        traceback=_storable_text(_traceback_of(error)),
        exit_code=code & 0xFF or 1,
    )


def _traceback_of(error: BaseException) -> str:
    """The traceback of an exception; empty if formatting it fails."""
    import traceback

    # Leave out the frames of this module.
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, own or error.__traceback__))
    except Exception:
        return ""


def _storable_text(text: str) -> str:
    """Text that UTF-8 and every database can store: lone surrogates and NULs are escaped."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _message_of(error: BaseException) -> str:
    """The message of an exception; empty if its `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""
