"""`@step` marks a function as a step. Inside a workflow a call of it adds a step; outside it is the function itself.

    @step(retry=Retry(max=2))        with Workflow("t") as flow:
    def one() -> int: ...                x = one()          a step; `x` is its future result
                                         y = two(x)         a step that needs the first

The native front end reads the options of a step, so each means the same as in a file. Type checkers know the parameters
of a marked function, and that `Run.result(x)` has the type that the function of `x` returns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from resile.api.build import (
    FlowBuilder,
    Result,
    StepCall,
    argument_of,
    check_options,
    flow_being_built,
    portable_value,
    step_name,
)
from resile.api.options import Map, OnFailure, Resources, Retry, Seconds, map_keys_of
from resile.errors import ResileError
from resile.executors.functions.calls import Current, current_call
from resile.languages.python.modules import MAIN

P = ParamSpec("P")
T = TypeVar("T")


class StepOptions(TypedDict, total=False):
    """The options of a step; each means what the key of that name means in a file."""

    name: str | None
    needs: Any
    when: str | bool | None
    env: dict[str, str] | None
    resources: Resources | dict[str, Any] | None
    timeout: Seconds | None
    grace: Seconds | None
    retry: Retry | int | dict[str, Any] | None
    rules: list[dict[str, Any]] | None
    on_failure: OnFailure | bool | str | list[Any] | dict[str, Any] | None
    on_success: Any
    park: bool | None
    critical: bool | None
    rerun_on_loss: Literal["retry", "never"] | None


STEP_OPTIONS = tuple(StepOptions.__annotations__)


class StepFunction(Generic[P, T]):
    """A function that can be a step."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.given_options = {key: value for key, value in options.items() if value is not None}
        self.step_name = str(self.given_options.get("name") or function.__name__)
        self._signature: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        flow = flow_being_built.get()
        if flow is None:
            direct: Any = self.function(*args, **kwargs)
            return direct  # type: ignore[no-any-return]
        call = StepCall(self.step_name, sys._getframe(1).f_lineno, self.function, self.given_options)
        self._fill(flow, call, args, kwargs)
        return flow.add(call)

    def options(self, **options: Unpack[StepOptions]) -> StepFunction[P, T]:
        """The same function with other options, for some of its calls."""
        check_options("options", options, STEP_OPTIONS)
        return StepFunction(self.function, {**self.given_options, **options})

    def map(
        self,
        items: Result[Any] | Iterable[Any],
        options: Map | dict[str, Any] | None = None,
        /,
        *,
        max_parallel: int | None = None,
        item_timeout: Seconds | None = None,
        error_policy: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Result[list[T]]:
        """A step that calls the function once for each item, which is its first argument; it returns a list.

        The other arguments are the same for all items. `options` says how many run at once and what failed items mean.
        """
        flow = flow_being_built.get()
        if flow is None:
            message = f"{self.step_name}.map stands outside a workflow"
            raise ResileError("bad-call", message, hint="with Workflow(…) as flow:")
        call = StepCall(self.step_name, sys._getframe(1).f_lineno, self.function, self.given_options)
        self._fill(flow, call, (None,), kwargs)
        call.args = [["item", None]]
        if isinstance(items, Result):
            call.items = items
            if items.kind == "step":
                step_name(flow, items)
        else:
            call.items = [portable_value(value, f"item {number}") for number, value in enumerate(items)]
        more = {"max_parallel": max_parallel, "item_timeout": item_timeout, "error_policy": error_policy}
        call.map_options = map_keys_of(options or {})
        call.map_options |= {key: value for key, value in more.items() if value is not None}
        return flow.add(call)

    def _fill(self, flow: FlowBuilder, call: StepCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Put the arguments into a call; refuse those that the function does not take, as a plain call would."""
        if self._signature is None:
            import inspect

            self._signature = inspect.signature(self.function)
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__qualname__}() {error}") from None
        call.args = [argument_of(flow, call, value, f"argument {place}") for place, value in enumerate(args, 1)]
        call.kwargs = {name: argument_of(flow, call, value, f"argument {name!r}") for name, value in kwargs.items()}


@overload
def step(function: Callable[P, Coroutine[Any, Any, T]], /) -> StepFunction[P, T]:
    """`@step` on a coroutine function."""


@overload
def step(function: Callable[P, T], /) -> StepFunction[P, T]:
    """`@step` without options."""


@overload
def step(**options: Unpack[StepOptions]) -> _Marker:
    """`@step(…)` with options."""


def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function as a step; each option means what the key of that name means in a file.

    A rule may also name `types`: exceptions, or their names; a rule for a type answers its subclasses too. Options that
    name steps (`needs`, `run`, `goto`) take the functions themselves as well.
    """
    check_options("step", options, STEP_OPTIONS)
    if function is not None:
        return StepFunction(_importable(function), options)
    return lambda marked: StepFunction(_importable(marked), options)


if TYPE_CHECKING:
    from typing import Protocol

    class _Marker(Protocol):
        """The return value of `@step(…)`: marks the function that it is called with."""

        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> StepFunction[P, T]: ...

        @overload
        def __call__(self, function: Callable[P, T], /) -> StepFunction[P, T]: ...


def current() -> Current:
    """The run, step and attempt for which the calling function runs; raises ResileError outside a step."""
    found = current_call()
    if found is None:
        raise ResileError("bad-call", "no step is being run here", hint="a function can ask while a run calls it")
    return found


def _importable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function; refuse one that another process can't find by its name, or that yields."""
    import inspect

    name = getattr(function, "__qualname__", "")
    code = getattr(function, "__code__", None)
    if code is None or "<" in name:
        message = f"{name or function!r} can't be a step: a worker must find it by its name"
        hint = "define it with `def` at the top level of a module"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"{name} can't be a step: it yields, and a step gives one value"
        hint = "return a list, and let another function `map` over it"
    else:
        return function
    where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    raise ResileError("bad-step", message, where=where, hint=hint)


def place_of(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Where a worker finds a function: its file or its module, and its name there.

    A function that was typed into a console has the file `<stdin>`. Notebooks give each cell the name of a file that
    does not exist, which is put into such brackets too.
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
        # A decorator of another file comes first.
        file = inspect.unwrap(function).__code__.co_filename
        if os.path.exists(file):
            return os.path.abspath(file), "", function.__qualname__
        return file if file.startswith("<") else f"<{file}>", "", function.__qualname__
    return "", module, function.__qualname__
