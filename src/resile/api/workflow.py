"""A workflow: built in Python by calling marked functions inside `with Workflow(...)`, or loaded from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from resile.api.build import FlowBuilder, Result, StepCall, check_options, flow_being_built
from resile.api.compile import compile_flow
from resile.api.options import Seconds
from resile.errors import ResileError
from resile.languages.references import names, path_of

if TYPE_CHECKING:
    from resile.dialects.compile import Compiled
    from resile.model import workflow as model

WORKERS = ("processes", "threads")
WORKFLOW_OPTIONS = ("workers", "max_parallel", "max_loops", "grace", "inputs", "env")
# The keys of a step whose texts may contain references, and so results.
_DATA_KEYS = ("shell", "inputs", "env", "stdin", "when", "working_dir")


class Workflow(FlowBuilder):
    """Steps and how they follow each other; `workers` says where the functions are called.

    In worker `processes` no function can harm the engine. `threads` of the engine's process are cheaper, and the output
    of a function is then output of the program. The other options are those of a file.
    """

    def __init__(
        self,
        name: str,
        *,
        workers: Literal["processes", "threads"] = "processes",
        max_parallel: int | None = None,
        max_loops: int | None = None,
        grace: Seconds | None = None,
        inputs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **unknown: Any,
    ) -> None:
        check_options("Workflow", unknown, WORKFLOW_OPTIONS)
        if workers not in WORKERS:
            raise ResileError("bad-call", f"workers is 'processes' or 'threads', not {workers!r}")
        frame = sys._getframe(1)
        super().__init__(name, workers, frame.f_code.co_filename, frame.f_lineno)
        self.options = {"max_parallel": max_parallel, "max_loops": max_loops, "grace": grace, "env": env}
        self.inputs = inputs or {}
        self._definition: model.Workflow | None = None
        self._token: Any = None

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Workflow:
        """The workflow in a file of any kind, compiled; raises WorkflowError with every finding where it is wrong."""
        from resile.commands.load import compile_workflow

        definition = compile_workflow(fspath(path))
        flow = cls(definition.name)
        flow.file, flow.line, flow._definition = definition.file, 0, definition
        return flow

    def __enter__(self) -> Workflow:
        if self._definition is not None:
            raise ResileError("bad-call", f"{self.name} was loaded from {self.file}: no steps can be added to it")
        self._token = flow_being_built.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        flow_being_built.reset(self._token)

    @property
    def execution(self) -> Result[Any]:
        """The outcome of the run, an argument for the function of the step `end`: its status and its steps."""
        return Result(self, self.name, "execution")

    def shell(self, command: str, *, name: str = "shell", **keys: Any) -> Result[str]:
        """A step that runs a shell command; it returns the command's output.

        `keys` are those of a step in a file. The step needs the steps whose results the command contains
        (`f"wc -l {result.output}"`); values are quoted for their place in it.
        """
        return self._add_action(sys._getframe(1).f_lineno, name, {"shell": command, **keys})

    def child(
        self, file: str | PathLike[str], *, name: str = "", inputs: dict[str, Any] | None = None, **keys: Any
    ) -> Result[Any]:
        """A step that runs the workflow in a file as its child; `inputs` may hold results of other steps."""
        path = fspath(file)
        title = name or path.rpartition("/")[2].partition(".")[0]
        given = {"workflow": path, **({"inputs": inputs} if inputs else {}), **keys}
        return self._add_action(sys._getframe(1).f_lineno, title, given)

    def _add_action(self, line: int, title: str, keys: dict[str, Any]) -> Result[Any]:
        """Add a step that is written as the keys of a file, and needs the steps that its texts name."""
        call = StepCall(title, line, None, {})
        call.keys = {key: _reference_results(value) if key in _DATA_KEYS else value for key, value in keys.items()}
        for text in _texts_in({key: call.keys[key] for key in _DATA_KEYS if key in keys}):
            paths = [path_of(name.removeprefix("raw:")) for name, _ in names(text)]
            call.needs.update((str(path[1]), None) for path in paths if path[0] == "steps" and path[1] in self.calls)
        return self.add(call)

    def compile(self) -> model.Workflow:
        """The definition that a run of this follows; raises WorkflowError with every finding where it is wrong."""
        from resile.commands.load import require_workflow

        return self._definition or require_workflow(self.compile_with_findings())[0]

    def compile_with_findings(self, file: str = "") -> Compiled:
        """The definition and every finding; `file` is the path that findings name, the workflow's own where empty."""
        return compile_flow(self, file)


def _reference_results(value: Any) -> Any:
    """Data in which each result is replaced by its reference."""
    if isinstance(value, Result):
        return value.output
    if isinstance(value, dict):
        return {key: _reference_results(inner) for key, inner in value.items()}
    return [_reference_results(inner) for inner in value] if isinstance(value, list | tuple) else value


def _texts_in(value: Any) -> Iterator[str]:
    """Every text in data, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)
