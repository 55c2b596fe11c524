"""The parts of a workflow that is being built in Python: step calls, and results, which represent their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from resile.errors import ResileError
from resile.languages.python.values import ValueUnfit, portable

if TYPE_CHECKING:
    # A type checker accepts a result for a parameter of any type: steps take results as arguments.
    _FitsAnywhere = Any
else:

    class _FitsAnywhere:
        """Nothing at run time."""


T_co = TypeVar("T_co", covariant=True)

flow_being_built: ContextVar[FlowBuilder | None] = ContextVar("flow_being_built", default=None)


class Result(_FitsAnywhere, Generic[T_co]):  # type: ignore[misc]
    """The future return value of a step: an argument for other steps, and a key for `Run.result`.

    Inputs of the run are results too, and so is `Workflow.execution`, the outcome of the run.
    """

    def __init__(self, flow: FlowBuilder, name: str, kind: Literal["step", "input", "execution"] = "step") -> None:
        self.flow = flow
        self.name = name
        self.kind = kind

    def __repr__(self) -> str:
        return f"<the result of step {self.name!r}>" if self.kind == "step" else f"<the {self.kind} {self.name!r}>"

    @property
    def output(self) -> str:
        """A reference to this value, for the text of a shell step: `${steps.NAME.output}` or `${inputs.NAME}`."""
        if self.kind == "execution":
            raise ResileError("bad-call", f"{self!r} can't stand in a text", hint="hand it to a function of `end`")
        name = f".{self.name}" if self.name.replace("-", "_").isidentifier() else f"['{self.name}']"
        return f"${{steps{name}.output}}" if self.kind == "step" else f"${{inputs{name}}}"

    def after(self, *others: Result[Any]) -> Result[T_co]:
        """Run this step only after those, whose results it does not take."""
        call = self.flow.calls.get(self.name) if self.kind == "step" else None
        if call is None:
            raise ResileError("bad-call", f"{self!r} is no step that could wait")
        call.needs.update(dict.fromkeys(step_name(self.flow, other) for other in others))
        return self

    def __bool__(self) -> bool:
        raise self._unknown("decide on anything")

    def __iter__(self) -> Any:
        raise self._unknown("be gone through")

    def __format__(self, spec: str) -> str:
        raise self._unknown("become text")

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} stands where it can't be found: lists, tuples and dicts with text keys may hold it")

    def _unknown(self, what: str) -> TypeError:
        """The error for a use of the value before the run, while the workflow is being built."""
        return TypeError(f"{self!r} is not known before the run, so it can't {what} here: hand it to a step that does")


class StepCall:
    """One step of a workflow: a function with its arguments as `kind, value` pairs, or (`keys`) an action of a file.

    `options` are those of the marked function; all its calls share them.
    """

    def __init__(self, title: str, line: int, function: Callable[..., Any] | None, options: Mapping[str, Any]) -> None:
        self.title = title
        self.line = line
        self.function = function
        self.options = options
        self.args: list[list[Any]] = []
        self.kwargs: dict[str, list[Any]] = {}
        self.needs: dict[str, None] = {}
        self.items: list[Any] | Result[Any] | None = None
        self.map_options: dict[str, Any] = {}
        self.keys: dict[str, Any] = {}


class FlowBuilder:
    """The steps of a workflow so far, by name; `file` and `line` are where it is built."""

    def __init__(self, name: str, workers: str, file: str, line: int) -> None:
        self.name = name
        self.workers = workers
        self.file = file
        self.line = line
        self.options: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.calls: dict[str, StepCall] = {}
        self._counts: dict[str, int] = {}

    def input(self, name: str) -> Result[Any]:
        """An input of the run, as an argument for steps."""
        if name not in self.inputs:
            known = ", ".join(self.inputs) or "none"
            raise ResileError("bad-call", f"{self.name} has no input {name!r}", hint=f"its inputs: {known}")
        return Result(self, name, "input")

    def add(self, call: StepCall) -> Result[Any]:
        """Add a call as a step; the second of one name is called NAME-2."""
        title = call.title
        count = self._counts[title] = self._counts.get(title, 0) + 1
        name = title if count == 1 else f"{title}-{count}"
        while name in self.calls:
            count = self._counts[title] = count + 1
            name = f"{title}-{count}"
        self.calls[name] = call
        return Result(self, name)


def step_name(flow: FlowBuilder, other: Any) -> str:
    """The name of the step that a result belongs to."""
    if not isinstance(other, Result) or other.kind != "step":
        raise ResileError("bad-call", f"{other!r} is not the result of a step")
    if other.flow is not flow:
        raise ResileError("bad-call", f"step {other.name!r} belongs to the workflow {other.flow.name!r}")
    return other.name


def argument_of(flow: FlowBuilder, call: StepCall, value: Any, what: str) -> list[Any]:
    """An argument as a pair of kind and value; the step needs the results in it, also those in lists and dicts."""
    if isinstance(value, Result):
        if value.kind == "input":
            return ["input", flow.input(value.name).name]
        if value.kind == "execution":
            if call.title != "end":
                raise ResileError("bad-call", f"{call.title} runs before the run has ended", hint="name='end'")
            return ["execution", None]
        call.needs[step_name(flow, value)] = None
        return ["step", value.name]
    if _holds_result(value):
        if isinstance(value, dict):
            return ["mapping", {key: argument_of(flow, call, inner, what) for key, inner in value.items()}]
        return ["list", [argument_of(flow, call, inner, what) for inner in value]]
    return ["value", portable_value(value, f"{what} of {call.title}")]


def _holds_result(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str for key in value) and any(map(_is_or_holds_result, value.values()))
    return type(value) in (list, tuple) and any(map(_is_or_holds_result, value))


def _is_or_holds_result(value: Any) -> bool:
    return isinstance(value, Result) or _holds_result(value)


def portable_value(value: Any, what: str) -> Any:
    """A value as it travels to a worker."""
    try:
        return portable(value, what)
    except ValueUnfit as problem:
        raise ResileError("bad-call", str(problem)) from problem


def check_options(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse an unknown option, as Python refuses an unknown argument."""
    for name in given:
        if name not in known:
            from resile.dialects.reading.diagnostics import did_you_mean

            raise TypeError(f"{what}() has no option {name!r}: {did_you_mean(name, known, 'options')}")
