"""Workflows written in Python: `@step` marks functions, and calls of them inside a `with Workflow(...)` are its steps.

    @step(retry={"max": 2})          with Workflow("t") as flow:
    def one(): ...                       x = one()          a step, and a name for what it will give
                                         y = two(x)         a step that needs it

Outside a workflow a marked function is the function itself. What a step says about failures is read by the native
front end (compile.py), so every form means here what it means in a file.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, overload

from resile.errors import ResileError
from resile.executors.function_calls import MAIN, ValueUnfit, portable

if TYPE_CHECKING:
    from resile.model import workflow as model

_current: ContextVar[Workflow | None] = ContextVar("workflow", default=None)


class Result:
    """What a step will give: an argument for other steps, and a key for `Run.result`."""

    def __init__(self, flow: Workflow, name: str) -> None:
        self.flow = flow
        self.name = name

    def __repr__(self) -> str:
        return f"<the result of step {self.name!r}>"

    def after(self, *others: Result) -> Result:
        """Run this step only after those, whose results it does not take."""
        self.flow.calls[self.name].needs.update(dict.fromkeys(_name(self.flow, other) for other in others))
        return self


class Made:
    """One step of a workflow: the function, its arguments as `kind, value` pairs, and where it was called."""

    def __init__(self, step: StepFunction, line: int) -> None:
        self.step = step
        self.line = line
        self.args: list[list[Any]] = []
        self.kwargs: dict[str, list[Any]] = {}
        self.needs: dict[str, None] = {}
        self.items: list[Any] | str | None = None
        self.map_options: dict[str, Any] = {}


class StepFunction:
    """A function that can be a step."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = {key: value for key, value in options.items() if value is not None}
        self.title = str(self.options.pop("name", "") or function.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flow = _current.get()
        if flow is None:
            return self.function(*args, **kwargs)
        made = Made(self, sys._getframe(1).f_lineno)
        made.args = [_argument(flow, made, value) for value in args]
        made.kwargs = {name: _argument(flow, made, value) for name, value in kwargs.items()}
        return flow.add(made)

    def map(
        self,
        items: Result | Iterable[Any],
        *,
        max_parallel: int | None = None,
        item_timeout: float | str | None = None,
        error_policy: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Result:
        """A step that calls the function once for each item, which is its first argument; it gives a list.

        The other arguments are the same for all. What an error policy says is in docs/native-file.md.
        """
        flow = _current.get()
        if flow is None:
            raise ResileError(
                "bad-call", f"{self.title}.map stands outside a workflow", hint="with Workflow(…) as flow:"
            )
        made = Made(self, sys._getframe(1).f_lineno)
        made.args = [["item", None]]
        made.kwargs = {name: _argument(flow, made, value) for name, value in kwargs.items()}
        if isinstance(items, Result):
            made.items = _name(flow, items)
        else:
            made.items = [_carried(value, f"item {number}") for number, value in enumerate(items)]
        options = {"max_parallel": max_parallel, "item_timeout": item_timeout, "error_policy": error_policy}
        made.map_options = {key: value for key, value in options.items() if value is not None}
        return flow.add(made)


class Workflow:
    """Steps and how they follow each other; `workers` says who calls the functions.

    In worker `processes` nothing that a function does can harm the engine. `threads` of the engine's process are
    cheaper, and what a function prints is then printed by the program.
    """

    def __init__(
        self,
        name: str,
        *,
        workers: Literal["processes", "threads"] = "processes",
        max_parallel: int | None = None,
        max_loops: int | None = None,
        grace: float | str | None = None,
    ) -> None:
        if workers not in ("processes", "threads"):
            raise ResileError("bad-call", f"workers is 'processes' or 'threads', not {workers!r}")
        frame = sys._getframe(1)
        self.name = name
        self.workers = workers
        self.options = {"max_parallel": max_parallel, "max_loops": max_loops, "grace": grace}
        self.file = frame.f_code.co_filename
        self.line = frame.f_lineno
        self.calls: dict[str, Made] = {}
        self._counts: dict[str, int] = {}
        self._token: Any = None

    def __enter__(self) -> Workflow:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def compiled(self) -> model.Workflow:
        """The definition that a run of this follows; raises ResileError with every finding where it is wrong."""
        from resile.surfaces.python.compile import compile_flow
        from resile.surfaces.verbs.load import accepted

        return accepted(compile_flow(self))

    def add(self, made: Made) -> Result:
        """Take a call as a step; the second of one name is called NAME-2."""
        title = made.step.title
        count = self._counts[title] = self._counts.get(title, 0) + 1
        name = title if count == 1 else f"{title}-{count}"
        while name in self.calls:
            count = self._counts[title] = count + 1
            name = f"{title}-{count}"
        self.calls[name] = made
        return Result(self, name)


@overload
def step(function: Callable[..., Any], /) -> StepFunction:
    """`@step` as it is."""


@overload
def step(
    *,
    name: str | None = None,
    retry: int | dict[str, Any] | None = None,
    on_failure: Any = None,
    rules: list[dict[str, Any]] | None = None,
    timeout: float | str | None = None,
    grace: float | str | None = None,
    park: bool | None = None,
    critical: bool | None = None,
    rerun_on_loss: Literal["retry", "never"] | None = None,
) -> Callable[[Callable[..., Any]], StepFunction]:
    """`@step(…)` with something to say."""


def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: int | dict[str, Any] | None = None,
    on_failure: Any = None,
    rules: list[dict[str, Any]] | None = None,
    timeout: float | str | None = None,
    grace: float | str | None = None,
    park: bool | None = None,
    critical: bool | None = None,
    rerun_on_loss: Literal["retry", "never"] | None = None,
) -> StepFunction | Callable[[Callable[..., Any]], StepFunction]:
    """Mark a function as a step; what is said here means what the keys of that name mean in a file.

    A rule may also name `types`: exceptions, or their names, those below them included.
    """
    options = {
        "name": name,
        "retry": retry,
        "on_failure": on_failure,
        "rules": rules,
        "timeout": timeout,
        "grace": grace,
        "park": park,
        "critical": critical,
        "rerun_on_loss": rerun_on_loss,
    }
    if function is not None:
        return StepFunction(_movable(function), options)
    return lambda marked: StepFunction(_movable(marked), options)


def _movable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that another process can find by its name."""
    name = getattr(function, "__qualname__", "")
    code = getattr(function, "__code__", None)
    if code is None or "<" in name:
        raise ResileError(
            "bad-step",
            f"{name or function!r} can't be a step: a worker must find it by its name",
            where=f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "",
            hint="define it with `def` at the top level of a module",
        )
    return function


def place_of(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Where a worker finds a function: its file or its module, and its name there."""
    import os

    module: str = function.__module__
    if module in ("__main__", MAIN):
        return os.path.abspath(function.__code__.co_filename), "", function.__qualname__
    return "", module, function.__qualname__


def _name(flow: Workflow, other: Any) -> str:
    """The step that a result is of."""
    if not isinstance(other, Result):
        raise ResileError("bad-call", f"{other!r} is not the result of a step")
    if other.flow is not flow:
        raise ResileError("bad-call", f"step {other.name!r} belongs to the workflow {other.flow.name!r}")
    return other.name


def _argument(flow: Workflow, made: Made, value: Any) -> list[Any]:
    """An argument as a pair of kind and value; results in it, also inside lists and dicts, are what the step needs."""
    if isinstance(value, Result):
        made.needs[_name(flow, value)] = None
        return ["step", value.name]
    if _holds_result(value):
        if isinstance(value, dict):
            return ["mapping", {key: _argument(flow, made, inner) for key, inner in value.items()}]
        return ["list", [_argument(flow, made, inner) for inner in value]]
    return ["value", _carried(value, "an argument")]


def _holds_result(value: Any) -> bool:
    """Is there the result of a step in this list, tuple or dict?"""
    if type(value) is dict:
        return all(type(key) is str for key in value) and any(map(_holds_any, value.values()))
    return type(value) in (list, tuple) and any(map(_holds_any, value))


def _holds_any(value: Any) -> bool:
    """Is this the result of a step, or something with one in it?"""
    return isinstance(value, Result) or _holds_result(value)


def _carried(value: Any, what: str) -> Any:
    """A value as it travels to a worker."""
    try:
        return portable(value, what)
    except ValueUnfit as problem:
        raise ResileError("bad-call", str(problem)) from problem
