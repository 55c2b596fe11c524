"""Workflows written in Python: `@step` marks functions, and calls of them inside a `with Workflow(...)` are its steps.

    @step(retry={"max": 2})          with Workflow("t") as flow:
    def one(): ...                       x = one()          a step, and a name for what it will give
                                         y = two(x)         a step that needs it

Outside a workflow a marked function is the function itself. What a step says about failures is read by the native
front end (compile.py), so every form means here what it means in a file. Types: `Run.result(x)` has the type that the
function of `x` returns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from resile.errors import ResileError
from resile.executors.functions.calls import Current, current_call
from resile.languages.python.modules import MAIN
from resile.languages.python.values import ValueUnfit, portable

if TYPE_CHECKING:
    from resile.dialects.compile import Compiled
    from resile.model import workflow as model

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_current: ContextVar[Workflow | None] = ContextVar("workflow", default=None)
WORKERS = ("processes", "threads")


class Result(Generic[T_co]):
    """What a step will give: an argument for steps, and a key for `Run.result`.

    So are an input of the run, and how the run went, for a step called `end`.
    """

    def __init__(self, flow: Workflow, name: str, kind: Literal["step", "input", "execution"] = "step") -> None:
        self.flow = flow
        self.name = name
        self.kind = kind

    def __repr__(self) -> str:
        return f"<the result of step {self.name!r}>" if self.kind == "step" else f"<the {self.kind} {self.name!r}>"

    def after(self, *others: Result[Any]) -> Result[T_co]:
        """Run this step only after those, whose results it does not take."""
        made = self.flow.calls.get(self.name) if self.kind == "step" else None
        if made is None:
            raise ResileError("bad-call", f"{self!r} is no step that could wait")
        made.needs.update(dict.fromkeys(_name(self.flow, other) for other in others))
        return self

    def __bool__(self) -> bool:
        raise self._unknown("decide on anything")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise self._unknown("be compared")

    def __lt__(self, other: object) -> bool:
        raise self._unknown("be compared")

    __le__ = __gt__ = __ge__ = __lt__

    def __str__(self) -> str:
        raise self._unknown("become text")

    def __format__(self, spec: str) -> str:
        raise self._unknown("become text")

    def __len__(self) -> int:
        raise self._unknown("be counted")

    def __contains__(self, value: object) -> bool:
        raise self._unknown("be looked into")

    def __iter__(self) -> Any:
        raise self._unknown("be gone through")

    def __getitem__(self, key: Any) -> Any:
        raise self._unknown(f"be asked for {key!r}")

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} stands where it can't be found: lists, tuples and dicts with text keys may hold it")

    def _unknown(self, what: str) -> TypeError:
        """Nothing has run yet while a workflow is built."""
        return TypeError(f"{self!r} is not known before the run, so it can't {what} here: hand it to a step that does")


class Made:
    """One step of a workflow: the function, its arguments as `kind, value` pairs, and where it was called."""

    def __init__(self, step: StepFunction[Any], line: int) -> None:
        self.step = step
        self.line = line
        self.args: list[list[Any]] = []
        self.kwargs: dict[str, list[Any]] = {}
        self.needs: dict[str, None] = {}
        self.items: list[Any] | Result[Any] | None = None
        self.map_options: dict[str, Any] = {}


class StepFunction(Generic[T]):
    """A function that can be a step."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.said = {key: value for key, value in options.items() if value is not None}
        self.title = str(self.said.get("name") or function.__name__)
        self._signature: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Result[T]:
        flow = _current.get()
        if flow is None:
            direct: Any = self.function(*args, **kwargs)
            return direct  # type: ignore[no-any-return]
        made = Made(self, sys._getframe(1).f_lineno)
        self._fill(flow, made, args, kwargs)
        return flow.add(made)

    def options(self, **options: Any) -> StepFunction[T]:
        """The same function with other options, for some of its calls."""
        _check_options("options", options, STEP_OPTIONS)
        return StepFunction(self.function, {**self.said, **options})

    def map(
        self,
        items: Result[Any] | Iterable[Any],
        *,
        max_parallel: int | None = None,
        item_timeout: float | str | None = None,
        error_policy: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Result[list[T]]:
        """A step that calls the function once for each item, which is its first argument; it gives a list.

        The other arguments are the same for all. What an error policy says is in docs/native-file.md.
        """
        flow = _current.get()
        if flow is None:
            raise ResileError(
                "bad-call", f"{self.title}.map stands outside a workflow", hint="with Workflow(…) as flow:"
            )
        made = Made(self, sys._getframe(1).f_lineno)
        self._fill(flow, made, (None,), kwargs)
        made.args = [["item", None]]
        if isinstance(items, Result):
            made.items = items
            if items.kind == "step":
                _name(flow, items)
        else:
            made.items = [_carried(value, f"item {number}") for number, value in enumerate(items)]
        options = {"max_parallel": max_parallel, "item_timeout": item_timeout, "error_policy": error_policy}
        made.map_options = {key: value for key, value in options.items() if value is not None}
        return flow.add(made)

    def _fill(self, flow: Workflow, made: Made, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The arguments of a call; those that the function does not take are refused as a plain call would."""
        if self._signature is None:
            import inspect

            self._signature = inspect.signature(self.function)
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__qualname__}() {error}") from None
        made.args = [_argument(flow, made, value, f"argument {place}") for place, value in enumerate(args, 1)]
        made.kwargs = {name: _argument(flow, made, value, f"argument {name!r}") for name, value in kwargs.items()}


class Workflow:
    """Steps and how they follow each other; `workers` says who calls the functions.

    In worker `processes` nothing that a function does can harm the engine. `threads` of the engine's process are
    cheaper, and what a function prints is then printed by the program. The other options are those of a file.
    """

    def __init__(
        self,
        name: str,
        *,
        workers: Literal["processes", "threads"] = "processes",
        max_parallel: int | None = None,
        max_loops: int | None = None,
        grace: float | str | None = None,
        inputs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **unknown: Any,
    ) -> None:
        _check_options("Workflow", unknown, WORKFLOW_OPTIONS)
        if workers not in WORKERS:
            raise ResileError("bad-call", f"workers is 'processes' or 'threads', not {workers!r}")
        frame = sys._getframe(1)
        self.name = name
        self.workers = workers
        self.options = {"max_parallel": max_parallel, "max_loops": max_loops, "grace": grace, "env": env}
        self.inputs = inputs or {}
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

    def input(self, name: str) -> Result[Any]:
        """An input of the run, as an argument for steps."""
        if name not in self.inputs:
            known = ", ".join(self.inputs) or "none"
            raise ResileError("bad-call", f"{self.name} has no input {name!r}", hint=f"its inputs: {known}")
        return Result(self, name, "input")

    @property
    def execution(self) -> Result[Any]:
        """How the run went, as an argument for the function of a step called `end`: its status and its steps."""
        return Result(self, self.name, "execution")

    def compiled(self) -> model.Workflow:
        """The definition that a run of this follows; raises ResileError with every finding where it is wrong."""
        from resile.commands.load import accepted

        return accepted(self.compile_with_findings())

    def compile_with_findings(self, file: str = "") -> Compiled:
        """The definition and every finding; `file` is the path that findings name, the workflow's own where empty."""
        from resile.api.compile import compile_flow

        return compile_flow(self, file)

    def add(self, made: Made) -> Result[Any]:
        """Take a call as a step; the second of one name is called NAME-2."""
        title = made.step.title
        count = self._counts[title] = self._counts.get(title, 0) + 1
        name = title if count == 1 else f"{title}-{count}"
        while name in self.calls:
            count = self._counts[title] = count + 1
            name = f"{title}-{count}"
        self.calls[name] = made
        return Result(self, name)


STEP_OPTIONS = (
    "name",
    "needs",
    "when",
    "env",
    "resources",
    "timeout",
    "grace",
    "retry",
    "rules",
    "on_failure",
    "on_success",
    "park",
    "critical",
    "rerun_on_loss",
)
WORKFLOW_OPTIONS = ("workers", "max_parallel", "max_loops", "grace", "inputs", "env")


@overload
def step(function: Callable[..., Coroutine[Any, Any, T]], /) -> StepFunction[T]:
    """`@step` on a coroutine function."""


@overload
def step(function: Callable[..., T], /) -> StepFunction[T]:
    """`@step` as it is."""


@overload
def step(
    *,
    name: str | None = None,
    needs: Any = None,
    when: str | bool | None = None,
    env: dict[str, str] | None = None,
    resources: dict[str, Any] | None = None,
    timeout: float | str | None = None,
    grace: float | str | None = None,
    retry: int | dict[str, Any] | None = None,
    rules: list[dict[str, Any]] | None = None,
    on_failure: Any = None,
    on_success: Any = None,
    park: bool | None = None,
    critical: bool | None = None,
    rerun_on_loss: Literal["retry", "never"] | None = None,
) -> _Marker:
    """`@step(…)` with something to say."""


def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function as a step; what is said here means what the keys of that name mean in a file.

    A rule may also name `types`: exceptions, or their names, those below them included. Where steps are named, in
    `needs`, `run` or `goto`, the functions themselves may stand.
    """
    _check_options("step", options, STEP_OPTIONS)
    if function is not None:
        return StepFunction(_movable(function), options)
    return lambda marked: StepFunction(_movable(marked), options)


if TYPE_CHECKING:
    from typing import Protocol

    class _Marker(Protocol):
        """What `@step(…)` is: it takes the function."""

        @overload
        def __call__(self, function: Callable[..., Coroutine[Any, Any, T]], /) -> StepFunction[T]: ...

        @overload
        def __call__(self, function: Callable[..., T], /) -> StepFunction[T]: ...


def current() -> Current:
    """Which run, step and attempt the function that asks is being called for; raises ResileError outside a step."""
    found = current_call()
    if found is None:
        raise ResileError("bad-call", "no step is being run here", hint="a function can ask while a run calls it")
    return found


def _check_options(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse an option that nobody knows, as Python refuses such an argument."""
    for name in given:
        if name not in known:
            from resile.dialects.reading.suggestions import did_you_mean

            raise TypeError(f"{what}() has no option {name!r}: {did_you_mean(name, known, 'options')}")


def _movable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that another process can find by its name, and that gives one value."""
    import inspect

    name = getattr(function, "__qualname__", "")
    code = getattr(function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    if code is None or "<" in name:
        raise ResileError(
            "bad-step",
            f"{name or function!r} can't be a step: a worker must find it by its name",
            where=where,
            hint="define it with `def` at the top level of a module",
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ResileError(
            "bad-step",
            f"{name} can't be a step: it yields, and a step gives one value",
            where=where,
            hint="return a list, and let another function `map` over it",
        )
    return function


def place_of(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Where a worker finds a function: its file or its module, and its name there.

    What was typed in has no file: consoles call it `<stdin>`, notebooks give each cell the name of a file that is not
    there, which is put between such brackets too.
    """
    import inspect
    import os

    module: str = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name != "__main__":
            # Started by `python -m`: its imports may be relative to its package.
            sys.modules.setdefault(spec.name, main)
            return "", spec.name, function.__qualname__
    if module in ("__main__", MAIN):
        # A decorator of another file stands before it.
        file = inspect.unwrap(function).__code__.co_filename
        if os.path.exists(file):
            return os.path.abspath(file), "", function.__qualname__
        return file if file.startswith("<") else f"<{file}>", "", function.__qualname__
    return "", module, function.__qualname__


def _name(flow: Workflow, other: Any) -> str:
    """The step that a result is of."""
    if not isinstance(other, Result) or other.kind != "step":
        raise ResileError("bad-call", f"{other!r} is not the result of a step")
    if other.flow is not flow:
        raise ResileError("bad-call", f"step {other.name!r} belongs to the workflow {other.flow.name!r}")
    return other.name


def _argument(flow: Workflow, made: Made, value: Any, what: str) -> list[Any]:
    """An argument as a pair of kind and value; results in it, also inside lists and dicts, are what the step needs."""
    if isinstance(value, Result):
        if value.kind == "input":
            return ["input", flow.input(value.name).name]
        if value.kind == "execution":
            if made.step.title != "end":
                raise ResileError("bad-call", f"{made.step.title} runs before the run has ended", hint="name='end'")
            return ["execution", None]
        made.needs[_name(flow, value)] = None
        return ["step", value.name]
    if _holds_result(value):
        if isinstance(value, dict):
            return ["mapping", {key: _argument(flow, made, inner, what) for key, inner in value.items()}]
        return ["list", [_argument(flow, made, inner, what) for inner in value]]
    return ["value", _carried(value, f"{what} of {made.step.title}")]


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
