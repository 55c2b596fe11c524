"""One call of a Python function: what it is given, what it gives back, and what is written down of it.

    Call --> find the function --> call it --> Done(value as JSON, or what it raised)

A value is JSON where that brings back the very same value, else a pickle inside JSON: `{"__pickle__": base64}`.
Values are only unpickled here, where the user's own code runs, and by a caller who asks for a result. A pickle that was
made in the workflow's own program names its classes by `__main__`; they are looked for at `home`, that program's file
or module, whatever program runs now.

This module runs in workers, in threads of the engine's process, and in the engine itself, which only encodes.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from threading import RLock
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from resile.model.limits import MESSAGE_CHARACTERS_MAX, VALUE_BYTES_MAX, VALUE_DEPTH_MAX

MARK = "__pickle__"
MAIN = "__resile_main__"
"""The module that a workflow's own file is loaded as, in every process alike, so that pickles find their classes."""

loading = False
"""Is a workflow's file being loaded right now?"""
_loading = RLock()

Home = tuple[str, str]
"""The program that a workflow was written in, by its file or by its module; both empty where nobody knows it."""
NO_HOME: Home = ("", "")

_PLAIN = frozenset((type(None), bool, str, float))
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


class Failed(Struct, frozen=True):
    """What a function is called to mend: the attempt that failed, and how; the names are those of `${error.…}`."""

    step: str
    job: int
    attempt: int
    kind: str
    exit_code: int | None
    message: str
    types: tuple[str, ...] = ()


class Call(Struct, frozen=True, gc=False, array_like=True):
    """One attempt to make: a function by its file or module and its name, and its arguments as JSON values.

    `env` is what its environment has beyond that of its worker, for this call alone. Where the call is `escaped` its
    arguments are one JSON text.
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


class Current(Struct, frozen=True):
    """What a function is being called for: the run and its epoch, the step, its job and the attempt.

    Where it is called to mend another step, `failed` says what failed.
    """

    run: int
    epoch: int
    step: str
    job: int
    attempt: int
    failed: Failed | None = None


class Begun(Struct, frozen=True, gc=False, array_like=True, tag="B"):
    """A call has begun; its output begins at these places of the worker's files."""

    job: int
    attempt: int
    at: float
    timeout_seconds: float = 0.0
    grace_seconds: float = 0.0
    out: int = 0
    err: int = 0


class Done(Struct, gc=False, array_like=True, tag="D"):
    """A call is over: `value` is JSON, empty for None; or it failed, with `kind` and what was raised.

    Whoever made the call adds what it took, and where it is written down.
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
    """A call that was taken and never begun, because its engine is gone."""

    job: int
    attempt: int
    at: float


Record = Begun | Done | Dropped
encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode
_encode_call = msgspec.msgpack.Encoder().encode
_decode_call = msgspec.msgpack.Decoder(Call).decode


def encode_call(call: Call) -> bytes:
    """A call as bytes; text that UTF-8 can't hold (bytes of a file name, say) is escaped."""
    try:
        return _encode_call(call)
    except UnicodeEncodeError:
        import json

        text = json.dumps([call.args, call.kwargs])
        return _encode_call(replace(call, args=[text], kwargs={}, escaped=True))


def decode_call(data: bytes) -> Call:
    """The call that `encode_call` was given."""
    call = _decode_call(data)
    if not call.escaped:
        return call
    import json

    args, kwargs = json.loads(call.args[0])
    return replace(call, args=args, kwargs=kwargs, escaped=False)


class ValueUnfit(Exception):
    """A value that can't be carried: too large, or nothing that pickle takes."""


def plain(value: Any, depth: int = 0) -> bool:
    """Does JSON bring back this very value?"""
    kind = type(value)
    if kind in _PLAIN:
        return kind is not float or value - value == 0
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    if depth >= VALUE_DEPTH_MAX:
        return False
    if kind is list:
        return all(plain(item, depth + 1) for item in value)
    if kind is dict:
        return MARK not in value and all(type(key) is str and plain(item, depth + 1) for key, item in value.items())
    return False


def portable(value: Any, what: str) -> Any:
    """A value as JSON data; raises ValueUnfit."""
    if plain(value):
        try:
            size = len(msgspec.json.encode(value))
        except UnicodeEncodeError:
            size = -1
        if size >= 0:
            return _fit(value, size, what)
    import base64
    import pickle

    try:
        data = pickle.dumps(value, protocol=5)
    except Exception as error:
        raise ValueUnfit(f"{what} is neither JSON nor can it be pickled: {error}") from error
    return _fit({MARK: base64.b64encode(data).decode()}, len(data), what)


def _fit(value: Any, size: int, what: str) -> Any:
    """The value, where it is small enough."""
    if size > VALUE_BYTES_MAX:
        raise ValueUnfit(f"{what} has {size} bytes, at most {VALUE_BYTES_MAX} are kept: hand over a path instead")
    return value


def revived(value: Any, home: Home) -> Any:
    """JSON data with the objects that were pickled into it."""
    if isinstance(value, list):
        return [revived(item, home) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {MARK}:
        import base64
        import io

        return _unpickler()(io.BytesIO(base64.b64decode(value[MARK])), home).load()
    return {key: revived(item, home) for key, item in value.items()}


@cache
def _unpickler() -> Any:
    """A class that reads pickles as pickle does, but for what the workflow's own program has defined."""
    import pickle

    class Unpickler(pickle.Unpickler):
        """Finds the classes of the workflow's own program in whatever program this is."""

        def __init__(self, file: Any, home: Home) -> None:
            super().__init__(file)
            self._home = home

        def find_class(self, module: str, name: str, /) -> Any:
            """A class or a function by its module and its name."""
            if module in ("__main__", MAIN) and self._home != NO_HOME:
                try:
                    return named(self._home, name)
                except AttributeError:
                    # Then it is of a program that the workflow does not know, which may be this one.
                    pass
            return super().find_class(module, name)

    return Unpickler


def mentions_pickle(value: Any) -> bool:
    """Is there anything to revive?"""
    if isinstance(value, list):
        return any(map(mentions_pickle, value))
    if isinstance(value, dict):
        return MARK in value or any(map(mentions_pickle, value.values()))
    return False


_calling: ContextVar[tuple[Functions, Call] | None] = ContextVar("calling", default=None)


def current_call() -> Current | None:
    """The call that is being made here, in this thread or by what it awaits."""
    calling = _calling.get()
    if calling is None:
        return None
    functions, call = calling
    return Current(functions.run, functions.epoch, call.step, call.job, call.attempt, call.failed)


class Functions:
    """Finds functions by their names, each once, for one epoch of a run; `pid` is the process that calls them."""

    def __init__(self, run: int, epoch: int, home: Home = NO_HOME) -> None:
        self.run = run
        self.epoch = epoch
        self.home = home
        self.pid = os.getpid()
        self._found: dict[tuple[str, str, str], Any] = {}

    def find(self, function: tuple[str, str, str]) -> Any:
        """The function itself, and whether it is a coroutine's."""
        found = self._found.get(function)
        if found is None:
            file, module, name = function
            marked = named((file, module), name)
            found = self._found[function] = getattr(marked, "function", marked)
        return found


def named(home: Home, name: str) -> Any:
    """What a file or a module calls by this name, which may have dots."""
    file, module = home
    found = load_file(file) if file else import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def import_module(module: str) -> Any:
    """A module by its name."""
    import importlib

    return importlib.import_module(module)


def load_file(file: str) -> Any:
    """The module in a workflow's own file: the running program where that is it, else loaded once.

    `<stdin>` and its like are no files: what was typed there is part of the running program. Threads that need the
    file at the same time wait for the one that loads it.
    """
    if file.startswith("<"):
        return sys.modules["__main__"]
    with _loading:
        for name in ("__main__", MAIN):
            known = sys.modules.get(name)
            where = getattr(known, "__file__", None)
            if where is not None and os.path.abspath(where) == file:
                sys.modules.setdefault(MAIN, known)  # type: ignore[arg-type]
                return known
        return _loaded(file)


def _loaded(file: str) -> Any:
    """The module in a file, loaded now."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(MAIN, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    sys.path.insert(0, os.path.dirname(file))
    global loading
    loading = True
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(MAIN, None)
        raise
    finally:
        loading = False
        sys.path.remove(os.path.dirname(file))
    return module


def perform(call: Call, functions: Functions, begun: Begun) -> Done:
    """Call the function; whatever it raises is what became of the call."""
    done = _performed(call, functions, begun)
    if os.getpid() != functions.pid:
        _end_copy(done)
    return done


def _performed(call: Call, functions: Functions, begun: Begun) -> Done:
    """What became of a call."""
    try:
        _calling.set((functions, call))
        function = functions.find(call.function)
        args, kwargs = call.args, call.kwargs
        if call.pickled:
            home = (call.function[0], "") if call.function[0] else functions.home
            args, kwargs = revived(args, home), revived(kwargs, home)
        value = function(*args, **kwargs)
        if hasattr(value, "__await__"):
            import asyncio

            value = asyncio.run(_awaited(value))
        data = b"" if value is None else msgspec.json.encode(portable(value, "the result"))
    except ValueUnfit as problem:
        return Done(call.job, call.attempt, begun.at, time.time(), kind="contract", message=_carried(str(problem)))
    except BaseException as error:
        return _raised(call, begun, error)
    return Done(call.job, call.attempt, begun.at, time.time(), data)


def _end_copy(done: Done) -> None:
    """A function that forked came back here in the child too: only what its own process says counts."""
    try:
        if done.traceback:
            sys.stderr.write(done.traceback)
        flush_output()
    finally:
        os._exit(done.exit_code or (1 if done.kind else 0))


def flush_output() -> None:
    """Bring what a function printed to where it goes; one that closed its output has printed all it wanted to."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            stream.flush()


async def _awaited(value: Any) -> Any:
    """What an awaitable gives."""
    return await value


def _raised(call: Call, begun: Begun, error: BaseException) -> Done:
    """An exception as data: its types from the most special to the most general, its text, its traceback."""
    types = tuple(_carried(type_name(kind)) for kind in type(error).__mro__ if kind is not object)
    code = error.code if isinstance(error, SystemExit) and type(error.code) is int else 1
    said = f"{types[0]}: {_words(error)}".removesuffix(": ").splitlines() or [""]
    return Done(
        call.job,
        call.attempt,
        begun.at,
        time.time(),
        kind="exit",
        message=_carried(said[0])[:MESSAGE_CHARACTERS_MAX],
        types=types,
        traceback=_carried(_trace(error)),
        exit_code=code & 0xFF or 1,
    )


def _trace(error: BaseException) -> str:
    """The traceback of an exception; none where its own code fails when it is asked."""
    import traceback

    # The frames of this module say nothing about the user's code.
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, own or error.__traceback__))
    except Exception:
        return ""


def _carried(text: str) -> str:
    """Text that UTF-8 and every database hold: half a character and NUL are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _words(error: BaseException) -> str:
    """What an exception says; one that can't say anything says nothing."""
    try:
        return str(error)
    except Exception:
        return ""


def type_name(kind: type) -> str:
    """A type as rules name it: built-in ones and those of the workflow's own file bare, others with their module."""
    module = kind.__module__
    if module == "__main__":
        # Workers know a program that was started by `python -m` by its module.
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = MAIN if spec is None else spec.name
    return kind.__qualname__ if module in ("builtins", MAIN) else f"{module}.{kind.__qualname__}"
