"""From a workflow built in Python to the model: its steps become the tree of a native file, which is compiled.

    FlowBuilder --nodes--> compile_native --> steps that call functions --> the same with their arguments

Each node has the line of the call, or of the function's definition if it comes from the function's options, so that a
finding points to a line of Python.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.api.build import FlowBuilder, Result, StepCall
from resile.api.options import Retry, keys_of
from resile.api.step import StepFunction, place_of
from resile.dialects.compile import Compiled
from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.native.nodes import step_node
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.languages.python.modules import object_named, type_name
from resile.model.workflow import FanOut, Function, Given, Step, Workflow

# Options that a step of a file has in another form.
_READ_ELSEWHERE = ("name", "needs", "rules")


def compile_flow(flow: FlowBuilder, file: str = "") -> Compiled:
    """The model of a workflow, with every finding; findings name the path `file`, or the workflow's own file."""
    report = Diagnostics(file or flow.file)
    workflow = _compile(flow, report)
    return Compiled(workflow, report.findings(), "python", "it was built in Python")


def _compile(flow: FlowBuilder, report: Diagnostics) -> Workflow | None:
    """The model of a workflow; None after a report of errors."""
    from resile.dialects.native.compile import compile_native

    if not flow.calls:
        hint = "call functions marked with @step inside `with Workflow(…)`"
        report.error("value", f"the workflow {flow.name!r} has no steps", Mark(flow.line, 1), hint=hint)
        return None
    folder = os.path.dirname(os.path.abspath(report.file))
    _check_functions(flow, report)
    workflow = compile_native(Source(report.file, b"", folder), _Tree(flow, folder, report).root(), report)
    if workflow is None or report.errors:
        return None
    calls = flow.calls
    steps = tuple(_with_arguments(calls[found.name], found) for found in workflow.steps)
    end = _with_arguments(calls["end"], workflow.end) if "end" in calls else workflow.end
    return replace(workflow, steps=steps, end=end, dialect="python")


def _check_functions(flow: FlowBuilder, report: Diagnostics) -> None:
    """Workers find functions by name: each must exist in a file, and its name must still mean the same function."""
    for call in {id(call.options): call for call in flow.calls.values()}.values():
        function = call.function
        if function is None:
            continue
        file, module, name = place_of(function)
        where = Mark(_line_of(flow, call), 1)
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
    """Builds the tree of a native file from a workflow; all steps of a function share the nodes of its options."""

    def __init__(self, flow: FlowBuilder, folder: str, report: Diagnostics) -> None:
        self.flow = flow
        self.folder = folder
        self.report = report
        self.handlers: dict[int, tuple[str, Node]] = {}
        self.function_keys: dict[int, dict[str, Node]] = {}

    def root(self) -> Mapping:
        """The whole file."""
        flow, line, options = self.flow, self.flow.line, self.flow.options
        entries: dict[str, Node] = {"resile": _scalar(1, line), "name": _scalar(flow.name, line)}
        for key in ("max_parallel", "grace", "env"):
            if options[key] is not None:
                entries[key] = _node(options[key], line, self.report)
        if flow.inputs:
            declared = {name: _declaration_of(value) for name, value in flow.inputs.items()}
            entries["inputs"] = _node(declared, line, self.report)
        if options["max_loops"] is not None:
            entries["routing"] = _mapping({"max_loops": _node(options["max_loops"], line, self.report)}, line)
        steps: dict[str, tuple[Scalar, Node]] = {
            name: (_scalar(name, call.line), self.step(call)) for name, call in flow.calls.items()
        }
        if self.handlers:
            entries["failure_handlers"] = _mapping(dict(self.handlers.values()), line)
        entries["steps"] = Mapping(steps, line, 1)
        return _mapping(entries, line)

    def step(self, call: StepCall) -> Mapping:
        """One step; in a map, the function's options belong to the step inside, except those that all items share."""
        line = call.line
        inside = self._keys_of(call)
        outside = inside
        if call.items is not None:
            settings = {key: _node(value, line, self.report) for key, value in call.map_options.items()}
            each = {key: value for key, value in inside.items() if key != "critical"}
            steps = _mapping({call.title: step_node(Mark(line, 1), each)}, line)
            whole = _mapping({"input": _input(call.items, line), "steps": steps, **settings}, line)
            outside = {"map": whole, **{key: inside[key] for key in ("critical",) if key in inside}}
        # `end` runs after everything else by itself.
        needs = [*(call.needs if call is not self.flow.calls.get("end") else ()), *_needs(self.flow, call, self.report)]
        if needs:
            outside = {**outside, "needs": Sequence([_scalar(need, line) for need in dict.fromkeys(needs)], line, 1)}
        return step_node(Mark(line, 1), outside)

    def _keys_of(self, call: StepCall) -> dict[str, Node]:
        """The keys of a step: those that were written out, or a function's, which all its steps share."""
        if call.function is None:
            given = {key: value for key, value in call.keys.items() if key != "needs"}
            return {key: _node(value, call.line, self.report) for key, value in given.items()}
        keys = self.function_keys.get(id(call.options))
        if keys is None:
            keys = self.function_keys[id(call.options)] = self._function_keys(call, _line_of(self.flow, call))
        return keys

    def _function_keys(self, call: StepCall, line: int) -> dict[str, Node]:
        """The keys that a function's options become; its rules are a failure handler of its name."""
        options = dict(call.options)
        rules = list(options.get("rules", ()))
        retry = options.get("retry")
        if isinstance(retry, Retry) and retry.on is not None:
            del options["retry"]
            rules.append(_retry_rule(retry))
        keys: dict[str, Node] = {"function": self._call(call, line)}
        keys |= {key: _node(value, line, self.report) for key, value in options.items() if key not in _READ_ELSEWHERE}
        if rules or "rules" in options:
            # Functions of one name, from different modules or with different options, have rules of their own.
            taken = {name for name, _ in self.handlers.values()}
            name = call.title if call.title not in taken else f"{call.title}-{len(taken) + 1}"
            self.handlers[id(call.options)] = (name, _mapping({"rules": _node(rules, line, self.report)}, line))
            keys["failure_handler"] = _scalar(name, line)
        return keys

    def _call(self, call: StepCall, line: int) -> Mapping:
        """The function to call; its arguments are put in afterwards, because they are values and no text of a file."""
        assert call.function is not None
        file, module, name = place_of(call.function)
        if os.path.isabs(file):
            file = os.path.relpath(file, self.folder)
        keys = {"name": name, "module": module, "file": file, "workers": self.flow.workers}
        return _mapping({key: _scalar(value, line) for key, value in keys.items() if value}, line)


def _retry_rule(retry: Retry) -> dict[str, Any]:
    types = list(retry.on) if isinstance(retry.on, tuple) else [retry.on]
    rule: dict[str, Any] = {"types": types, "max_retries": retry.max}
    return rule if retry.backoff is None else {**rule, "backoff": retry.backoff}


def _input(items: list[Any] | Result[Any], line: int) -> Node:
    """Where the items of a map come from; values are put in afterwards too."""
    if not isinstance(items, Result):
        return Sequence([], line, 1)
    if items.kind == "step":
        return _mapping({"step": _scalar(items.name, line)}, line)
    return _mapping({"template": _scalar(f"${{inputs.{items.name}}}", line)}, line)


def _line_of(flow: FlowBuilder, call: StepCall) -> int:
    """The line to blame for a function's options: where it is defined, or where it is called if that is elsewhere."""
    code = getattr(call.function, "__code__", None)
    return code.co_firstlineno if code is not None and code.co_filename == flow.file else call.line


def _needs(flow: FlowBuilder, call: StepCall, report: Diagnostics) -> list[str]:
    """The steps that a function's `needs` names; a function means all its calls in the workflow."""
    needs = call.options.get("needs", call.keys.get("needs", ()))
    found: list[str] = []
    for need in needs if isinstance(needs, list | tuple) else [needs]:
        if isinstance(need, StepFunction):
            calls = [name for name, other in flow.calls.items() if other.function is need.function]
            if not calls:
                message = f"`needs` names `{need.step_name}`, which the workflow does not call"
                report.error("unknown-step", message, Mark(_line_of(flow, call), 1))
            found += calls
        else:
            found.append(need.name if isinstance(need, Result) else str(need))
    return found


def _declaration_of(value: Any) -> Any:
    """How a file declares an input: a mapping is taken as it is, any other value is a default and decides the type."""
    if isinstance(value, dict):
        return value
    kind = "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "text"
    return {"default": value, "type": kind if isinstance(value, str | int | float) else "json"}


def _with_arguments(call: StepCall, step: Step) -> Step:
    """Put the arguments of a call into its step."""
    if call.function is None:
        return step
    action = step.action
    if isinstance(action, FanOut):
        source, inner = action.source, action.steps[0]
        if isinstance(call.items, list):
            source = replace(source, values=tuple(call.items))
        return replace(step, action=replace(action, source=source, steps=(_with_arguments(call, inner),)))
    assert isinstance(action, Function)
    args = tuple(Given(*pair) for pair in call.args)
    kwargs = {key: Given(*pair) for key, pair in call.kwargs.items()}
    return replace(step, action=replace(action, args=args, kwargs=kwargs))


def _mapping(entries: dict[str, Node], line: int) -> Mapping:
    return Mapping({key: (_scalar(key, value.line), value) for key, value in entries.items()}, line, 1)


def _scalar(value: Any, line: int) -> Scalar:
    text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return Scalar(value, text, line, 1)


def _node(value: Any, line: int, report: Diagnostics) -> Node:
    """Python values as the nodes that a file with them would have; steps and exceptions become their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return _scalar(value, line)
    if isinstance(value, list | tuple):
        return Sequence([_node(item, line, report) for item in value], line, 1)
    if isinstance(value, dict):
        return _mapping({str(key): _node(item, line, report) for key, item in value.items()}, line)
    if isinstance(value, Struct):
        return _node(keys_of(value), line, report)
    if isinstance(value, Result):
        return _scalar(value.name, line)
    if isinstance(value, StepFunction):
        return _scalar(value.step_name, line)
    if isinstance(value, type) and issubclass(value, BaseException):
        return _scalar(type_name(value), line)
    report.error(
        "type",
        f"{value!r} has no meaning here",
        Mark(line, 1),
        hint="texts, numbers, lists, dicts, steps and exceptions have",
    )
    return _scalar(None, line)
