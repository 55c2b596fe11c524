"""From a workflow written in Python to the model: the tree of a native file is made of it and read as one.

    Workflow (build.py) --nodes--> compile_native --> steps that call functions --> the same with their arguments

Each node has the line of the call, or of the function's definition for what the function says of failures, so a
finding leads to the Python line that it is about.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec.structs import replace

from resile.api.workflow import Made, Result, StepFunction, Workflow, place_of
from resile.dialects.compile import Compiled
from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.native.nodes import step_node
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.languages.python.modules import object_named, type_name
from resile.model.fanout import FanOut
from resile.model.workflow import Function, Given, Step

# Options that no step of a file has in this form.
_READ_APART = ("name", "needs", "rules")


def compile_flow(flow: Workflow, file: str = "") -> Compiled:
    """The model of a workflow, with every finding; `file` is how the caller calls the file that it stands in."""
    from resile.dialects.native.compile import compile_native

    file = file or flow.file
    report = Diagnostics(file)
    if not flow.calls:
        hint = "call functions marked with @step inside `with Workflow(…)`"
        report.error("value", f"the workflow {flow.name!r} has no steps", Mark(flow.line, 1), hint=hint)
        return Compiled(None, report.findings(), "python", "it was built in Python")
    folder = os.path.dirname(os.path.abspath(file))
    _check_functions(flow, report)
    workflow = compile_native(Source(file, b"", folder), _Tree(flow, folder, report).root(), report)
    if workflow is None or report.errors:
        return Compiled(None, report.findings(), "python", "it was built in Python")
    made = flow.calls
    steps = tuple(_with_arguments(made[found.name], found) for found in workflow.steps)
    end = _with_arguments(made["end"], workflow.end) if "end" in made else workflow.end
    workflow = replace(workflow, steps=steps, end=end, dialect="python")
    return Compiled(workflow, report.findings(), "python", "it was built in Python")


def _check_functions(flow: Workflow, report: Diagnostics) -> None:
    """Workers find functions by their names: each must be there, in a file, and be the one that was called here."""
    for made in {id(made.step): made for made in flow.calls.values()}.values():
        function = made.step.function
        file, module, name = place_of(function)
        where = Mark(_place(flow, made), 1)
        if file.startswith("<") and flow.workers == "processes":
            message = f"the function `{function.__name__}` is in no file, so no worker process can load it"
            report.error("python", message, where, hint="put it into a module, or use workers='threads'")
            continue
        try:
            found = object_named((file, module), name)
        except AttributeError:
            message = f"the name `{name}` is gone, and a worker would look for the function by it"
            report.error("python", message, where, hint="keep functions that are steps under their own names")
            continue
        if getattr(found, "function", found) is not function:
            message = f"the name `{name}` means another function by now, which a worker would call instead of this one"
            hint = "give the two functions different names; where a cell was run again, build the workflow again"
            report.error("python", message, where, hint=hint)


class _Tree:
    """The workflow as the tree of a native file; what a function says is the same nodes in all its steps."""

    def __init__(self, flow: Workflow, folder: str, report: Diagnostics) -> None:
        self.flow = flow
        self.folder = folder
        self.report = report
        self.handlers: dict[int, tuple[str, Node]] = {}
        self.told: dict[int, dict[str, Node]] = {}

    def root(self) -> Mapping:
        """All of it."""
        flow, line, options = self.flow, self.flow.line, self.flow.options
        entries: dict[str, Node] = {"resile": _scalar(1, line), "name": _scalar(flow.name, line)}
        for key in ("max_parallel", "grace", "env"):
            if options[key] is not None:
                entries[key] = _node(options[key], line, self.report)
        if flow.inputs:
            declared = {name: _declared(value) for name, value in flow.inputs.items()}
            entries["inputs"] = _node(declared, line, self.report)
        if options["max_loops"] is not None:
            entries["routing"] = _mapping({"max_loops": _node(options["max_loops"], line, self.report)}, line)
        steps: dict[str, tuple[Scalar, Node]] = {
            name: (_scalar(name, made.line), self.step(made)) for name, made in flow.calls.items()
        }
        if self.handlers:
            entries["failure_handlers"] = _mapping(dict(self.handlers.values()), line)
        entries["steps"] = Mapping(steps, line, 1)
        return _mapping(entries, line)

    def step(self, made: Made) -> Mapping:
        """One step; of a map the options of its function are those of the step inside, but for what all items share."""
        line = made.line
        inside = self.told.get(id(made.step))
        if inside is None:
            inside = self.told[id(made.step)] = self._said(made.step, _place(self.flow, made))
        outside = inside
        if made.items is not None:
            settings = {key: _node(value, line, self.report) for key, value in made.map_options.items()}
            each = {key: value for key, value in inside.items() if key != "critical"}
            steps = _mapping({made.step.title: step_node(Mark(line, 1), each)}, line)
            whole = _mapping({"input": _input(made.items, line), "steps": steps, **settings}, line)
            outside = {"map": whole, **{key: inside[key] for key in ("critical",) if key in inside}}
        # `end` runs after everything else by itself.
        needs = [*(made.needs if made is not self.flow.calls.get("end") else ()), *_needs(self.flow, made, self.report)]
        if needs:
            outside = {**outside, "needs": Sequence([_scalar(need, line) for need in dict.fromkeys(needs)], line, 1)}
        return step_node(Mark(line, 1), outside)

    def _said(self, step: StepFunction[Any], line: int) -> dict[str, Node]:
        """What a function says about its steps; its rules are a failure handler of its name."""
        said: dict[str, Node] = {"function": self._call(step, line)}
        said |= {key: _node(value, line, self.report) for key, value in step.said.items() if key not in _READ_APART}
        if "rules" in step.said:
            # Functions of one name, from different modules or with different options, have rules of their own.
            taken = {name for name, _ in self.handlers.values()}
            name = step.title if step.title not in taken else f"{step.title}-{len(taken) + 1}"
            rules = _node(step.said["rules"], line, self.report)
            self.handlers[id(step)] = (name, _mapping({"rules": rules}, line))
            said["failure_handler"] = _scalar(name, line)
        return said

    def _call(self, step: StepFunction[Any], line: int) -> Mapping:
        """What a step calls; the arguments are put in afterwards, because they are values and no text of a file."""
        file, module, name = place_of(step.function)
        if os.path.isabs(file):
            file = os.path.relpath(file, self.folder)
        said = {"name": name, "module": module, "file": file, "workers": self.flow.workers}
        return _mapping({key: _scalar(value, line) for key, value in said.items() if value}, line)


def _input(items: list[Any] | Result[Any], line: int) -> Node:
    """Where the items of a map come from; values are put in afterwards too."""
    if not isinstance(items, Result):
        return Sequence([], line, 1)
    if items.kind == "step":
        return _mapping({"step": _scalar(items.name, line)}, line)
    return _mapping({"template": _scalar(f"${{inputs.{items.name}}}", line)}, line)


def _place(flow: Workflow, made: Made) -> int:
    """The line to blame for what a function says: where it is defined, or where it is called if that is elsewhere."""
    code = made.step.function.__code__
    return code.co_firstlineno if code.co_filename == flow.file else made.line


def _needs(flow: Workflow, made: Made, report: Diagnostics) -> list[str]:
    """What a function says that its steps need; a function stands for all its calls in the workflow."""
    needs = made.step.said.get("needs", ())
    found: list[str] = []
    for need in needs if isinstance(needs, list | tuple) else [needs]:
        if isinstance(need, StepFunction):
            calls = [name for name, other in flow.calls.items() if other.step.function is need.function]
            if not calls:
                message = f"`needs` names `{need.title}`, which the workflow does not call"
                report.error("unknown-step", message, Mark(_place(flow, made), 1))
            found += calls
        else:
            found.append(need.name if isinstance(need, Result) else str(need))
    return found


def _declared(value: Any) -> Any:
    """An input: a mapping says what it is, any other value is its default and decides on its type."""
    if isinstance(value, dict):
        return value
    kind = "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "text"
    return {"default": value, "type": kind if isinstance(value, str | int | float) else "json"}


def _with_arguments(made: Made, step: Step) -> Step:
    """The step with the values that it is given."""
    action = step.action
    if isinstance(action, FanOut):
        source, inner = action.source, action.steps[0]
        if isinstance(made.items, list):
            source = replace(source, values=tuple(made.items))
        return replace(step, action=replace(action, source=source, steps=(_with_arguments(made, inner),)))
    assert isinstance(action, Function)
    args = tuple(Given(*pair) for pair in made.args)
    kwargs = {key: Given(*pair) for key, pair in made.kwargs.items()}
    return replace(step, action=replace(action, args=args, kwargs=kwargs))


def _mapping(entries: dict[str, Node], line: int) -> Mapping:
    """A mapping of nodes, each with its key in its line."""
    return Mapping({key: (_scalar(key, value.line), value) for key, value in entries.items()}, line, 1)


def _scalar(value: Any, line: int) -> Scalar:
    """One value, and the text that a file would have for it."""
    text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return Scalar(value, text, line, 1)


def _node(value: Any, line: int, report: Diagnostics) -> Node:
    """Python values as the nodes that a file of them would give; steps and exceptions are told by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return _scalar(value, line)
    if isinstance(value, list | tuple):
        return Sequence([_node(item, line, report) for item in value], line, 1)
    if isinstance(value, dict):
        return _mapping({str(key): _node(item, line, report) for key, item in value.items()}, line)
    if isinstance(value, Result):
        return _scalar(value.name, line)
    if isinstance(value, StepFunction):
        return _scalar(value.title, line)
    if isinstance(value, type) and issubclass(value, BaseException):
        return _scalar(type_name(value), line)
    report.error(
        "type",
        f"{value!r} has no meaning here",
        Mark(line, 1),
        hint="texts, numbers, lists, dicts, steps and exceptions have",
    )
    return _scalar(None, line)
