"""From a workflow written in Python to the model: the tree of a native file is made of it and read as one.

    Workflow (build.py) --nodes--> compile_native --> steps that do nothing --> Function, FanOut of Function

Each node has the line of the call, or of the function's definition for what the function says of failures, so a
finding leads to the Python line that it is about.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec.structs import replace

from resile.dialects.base import Compiled, Diagnostics, Source
from resile.dialects.tree import Mapping, Mark, Node, Scalar, Sequence
from resile.executors.function_calls import load_file, type_name
from resile.model.fanout import FanOut
from resile.model.workflow import Capture, Function, Given, Step
from resile.surfaces.python.build import Made, Result, StepFunction, Workflow, place_of


def compile_flow(flow: Workflow, file: str = "") -> Compiled:
    """The model of a workflow, with every finding; `file` is how the caller calls the file that it stands in."""
    from resile.dialects.native import compile_native

    file = file or flow.file
    report = Diagnostics(file)
    if not flow.calls:
        hint = "call functions marked with @step inside `with Workflow(…)`"
        report.error("value", f"the workflow {flow.name!r} has no steps", Mark(flow.line, 1), hint=hint)
        return Compiled(None, report.findings(), "python", "it was built in Python")
    folder = os.path.dirname(os.path.abspath(file))
    workflow = compile_native(Source(file, b"", folder), _root(flow, report), report)
    if workflow is None or report.errors:
        return Compiled(None, report.findings(), "python", "it was built in Python")
    made = flow.calls
    steps = tuple(_with_call(flow, made[found.name], found) for found in workflow.steps)
    end = _with_call(flow, made["end"], workflow.end) if "end" in made else workflow.end
    workflow = replace(workflow, steps=steps, end=end, dialect="python")
    return Compiled(workflow, report.findings(), "python", "it was built in Python")


def compile_module(path: str) -> Compiled:
    """The model of the one workflow that a Python file builds; loading it runs it, as importing it would."""
    report = Diagnostics(path)
    why = "its name ends in .py"
    flow = _loaded(path, report)
    if flow is None:
        return Compiled(None, report.findings(), "python", why)
    result = compile_flow(flow, path if os.path.abspath(flow.file) == os.path.abspath(path) else "")
    return replace(result, why=why)


def _loaded(path: str, report: Diagnostics) -> Workflow | None:
    """The one workflow of a file, or None after a report."""
    if not os.path.isfile(path):
        report.error("file", f"there is no file `{path}`")
        return None
    file = os.path.abspath(path)
    try:
        module = load_file(file)
    except SyntaxError as error:
        report.error("python", f"{type(error).__name__}: {error.msg}", Mark(error.lineno or 1, error.offset or 1))
        return None
    except (Exception, SystemExit) as error:
        report.error("python", f"{type(error).__name__}: {error}", Mark(_line_of(error, file), 1))
        return None
    flows = {id(value): (name, value) for name, value in vars(module).items() if isinstance(value, Workflow)}
    if len(flows) == 1:
        return next(iter(flows.values()))[1]
    named = ", ".join(name for name, _ in flows.values()) or "none"
    hint = "a file that is run has one; others can be run by `resile.run` in a program"
    report.error("python", f"the file must build one Workflow, and keeps {len(flows)}: {named}", Mark(1, 1), hint=hint)
    return None


def _line_of(error: BaseException, file: str) -> int:
    """The last line of a file on the way to an exception."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if os.path.abspath(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _root(flow: Workflow, report: Diagnostics) -> Mapping:
    """The workflow as the tree of a native file."""
    line, options = flow.line, flow.options
    entries: dict[str, Node] = {"resile": _scalar(1, line), "name": _scalar(flow.name, line)}
    for key in ("max_parallel", "grace"):
        if options[key] is not None:
            entries[key] = _node(options[key], line, report)
    if options["max_loops"] is not None:
        entries["routing"] = _mapping({"max_loops": _node(options["max_loops"], line, report)}, line)
    handlers: dict[str, Node] = {}
    steps: dict[str, tuple[Scalar, Node]] = {}
    for name, made in flow.calls.items():
        steps[name] = (_scalar(name, made.line), _step(made, handlers, report))
    if handlers:
        entries["failure_handlers"] = _mapping(handlers, line)
    entries["steps"] = Mapping(steps, line, 1)
    return _mapping(entries, line)


def _step(made: Made, handlers: dict[str, Node], report: Diagnostics) -> Mapping:
    """One step; of a map the options of its function are those of the step inside."""
    line = made.line
    inside = _said(made.step, handlers, report)
    outside: dict[str, Node] = {}
    if made.items is not None:
        # What the items are is put in afterwards: they are values, and no text of a file.
        given = _mapping({"step": _scalar(made.items, line)}, line) if isinstance(made.items, str) else None
        settings = {key: _node(value, line, report) for key, value in made.map_options.items()}
        steps = _mapping({made.step.title: _mapping({"noop": _scalar(True, line), **inside}, line)}, line)
        outside["map"] = _mapping({"input": given or Sequence([], line, 1), "steps": steps, **settings}, line)
    else:
        outside = {"noop": _scalar(True, line), **inside}
    if made.needs:
        outside["needs"] = Sequence([_scalar(need, line) for need in made.needs], line, 1)
    return _mapping(outside, line)


def _said(step: StepFunction, handlers: dict[str, Node], report: Diagnostics) -> dict[str, Node]:
    """What a function says about failures and time; its rules are a failure handler of its name."""
    if not step.options:
        return {}
    line = step.function.__code__.co_firstlineno
    said = {key: _node(value, line, report) for key, value in step.options.items() if key != "rules"}
    if "rules" in step.options:
        handlers.setdefault(step.title, _mapping({"rules": _node(step.options["rules"], line, report)}, line))
        said["failure_handler"] = _scalar(step.title, line)
    return said


def _with_call(flow: Workflow, made: Made, step: Step) -> Step:
    """The step with what it really does."""
    file, module, name = place_of(made.step.function)
    function = Function(
        name,
        module,
        file,
        tuple(Given(*pair) for pair in made.args),
        {key: Given(*pair) for key, pair in made.kwargs.items()},
        flow.workers,
    )
    if isinstance(step.action, FanOut):
        source = step.action.source
        if not isinstance(made.items, str):
            source = replace(source, values=tuple(made.items or ()))
        inner = step.action.steps[0]
        inner = replace(inner, action=function, capture=(Capture(inner.name, "value"),))
        return replace(step, action=replace(step.action, source=source, steps=(inner,)))
    return replace(step, action=function, capture=(Capture(step.name, "value"),))


def _mapping(entries: dict[str, Node], line: int) -> Mapping:
    """A mapping of nodes."""
    return Mapping({key: (_scalar(key, line), value) for key, value in entries.items()}, line, 1)


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
    if isinstance(value, type):
        return _scalar(type_name(value), line)
    report.error("type", f"{value!r} has no meaning here", Mark(line, 1), hint="texts, numbers, lists and dicts have")
    return _scalar(None, line)
