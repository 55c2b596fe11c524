"""One call of a Python function: what it is given, what it gives back, and what is written down of it.

    Call --> find the function --> call it --> Done(value as JSON, or what it raised)

A value is JSON where that brings back the very same value, else a pickle inside JSON: `{"__pickle__": base64}`.
Values are only unpickled here, where the user's own code runs, and by a caller who asks for a result.

This module runs in workers, in threads of the engine's process, and in the engine itself, which only encodes.
"""

from __future__ import annotations

import sys
import time
from contextvars import ContextVar
from threading import RLock
from typing import Any

import msgspec
from msgspec import Struct

from resile.model.limits import MESSAGE_CHARACTERS_MAX, VALUE_BYTES_MAX, VALUE_DEPTH_MAX

MARK = "__pickle__"
MAIN = "__resile_main__"
"""The module that a workflow's own file is loaded as, in every process alike, so that pickles find their classes."""

loading = False
"""Is a workflow's file being loaded right now?"""
_loading = RLock()

_PLAIN = frozenset((type(None), bool, str, float))
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


class Call(Struct, frozen=True, gc=False, array_like=True):
    """One attempt to make: a function by its file or module and its name, and its arguments as JSON values.

    `env` is what its environment has beyond that of its worker, for this call alone.
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


class Current(Struct, frozen=True):
    """What a function is being called for: the run and its epoch, the step, its job and the attempt."""

    run: int
    epoch: int
    step: str
    job: int
    attempt: int


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
encode_call = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(Call).decode


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


def revived(value: Any) -> Any:
    """JSON data with the objects that were pickled into it."""
    if isinstance(value, list):
        return [revived(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {MARK}:
        import base64
        import pickle

        return pickle.loads(base64.b64decode(value[MARK]))
    return {key: revived(item) for key, item in value.items()}


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
    return Current(functions.run, functions.epoch, call.step, call.job, call.attempt)


class Functions:
    """Finds functions by their names, each once, for one epoch of a run."""

    def __init__(self, run: int, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        self._found: dict[tuple[str, str, str], Any] = {}

    def find(self, function: tuple[str, str, str]) -> Any:
        """The function itself, and whether it is a coroutine's."""
        found = self._found.get(function)
        if found is None:
            file, module, name = function
            owner = load_file(file) if file else import_module(module)
            for part in name.split("."):
                owner = getattr(owner, part)
            found = self._found[function] = getattr(owner, "function", owner)
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
    import os

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
    import os

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
    try:
        _calling.set((functions, call))
        function = functions.find(call.function)
        args, kwargs = call.args, call.kwargs
        if call.pickled:
            args, kwargs = revived(args), revived(kwargs)
        value = function(*args, **kwargs)
        if hasattr(value, "__await__"):
            import asyncio

            value = asyncio.run(_awaited(value))
        data = b"" if value is None else msgspec.json.encode(portable(value, "the result"))
    except ValueUnfit as problem:
        return Done(call.job, call.attempt, begun.at, time.time(), kind="contract", message=str(problem))
    except BaseException as error:
        return _raised(call, begun, error)
    return Done(call.job, call.attempt, begun.at, time.time(), data)


async def _awaited(value: Any) -> Any:
    """What an awaitable gives."""
    return await value


def _raised(call: Call, begun: Begun, error: BaseException) -> Done:
    """An exception as data: its types from the most special to the most general, its text, its traceback."""
    import traceback

    # The frames of this module say nothing about the user's code.
    own = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, own or error.__traceback__))
    types = tuple(type_name(kind) for kind in type(error).__mro__ if kind is not object)
    code = error.code if isinstance(error, SystemExit) and type(error.code) is int else 1
    said = f"{types[0]}: {_words(error)}".removesuffix(": ").splitlines()
    return Done(
        call.job,
        call.attempt,
        begun.at,
        time.time(),
        kind="exit",
        message=said[0][:MESSAGE_CHARACTERS_MAX],
        types=types,
        traceback=text,
        exit_code=code & 0xFF or 1,
    )


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
