"""Child workflows: `workflow: path` compiles that file, of whichever kind, into the step that calls it.

A mapping instead of a path is a workflow that stands there itself.

A path is relative to the file in which it stands. Each file is compiled once for all who call it, and a file that
calls itself, at whatever remove, is refused by name, as are too many levels and too many steps in all. What is wrong
in a child is reported under the child's own name; which inputs it takes is known here, and checked here. How many
steps run at once is for the outermost file to say: a native child that says it too is refused, one of another kind is
told so.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from resile.dialects.compile import compile_file
from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.context import CallStack, NativeReading
from resile.dialects.native.keys.programs import read_data
from resile.dialects.reading.key_tables import INVALID
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import non_empty, text, wrong
from resile.errors import shorten
from resile.languages.references import names
from resile.model.builtin_actions import Collect
from resile.model.limits import CHILD_DEPTH_MAX, DIAGNOSTICS_MAX, STEPS_MAX
from resile.model.workflow import Child, Input, Step, Workflow

_read_path = non_empty(text, "`workflow`")


_compiling: ContextVar[CallStack | None] = ContextVar("compiling", default=None)
"""Tells a child that is being compiled whose child it is."""


def read_child(reading: NativeReading, key: Scalar, fields: dict[str, Any]) -> Child | None:
    """The child workflow of a step, from the fields of the step; `key` is that of `workflow`."""
    node: Node = fields["workflow"]
    result, shares = fields.get("result", ""), fields.get("shares", False)
    path, inner = "", None
    if isinstance(node, Mapping):
        inner, path = _inline(reading, node)
    elif (path := _read_path(reading, node)) is not INVALID:
        if "called" in fields:
            return _child_with_arguments(reading, path, node, fields["called"], result)
        inner = _from_file(reading, path, node)
    if inner is None:
        return None
    inputs = fields["given"] if "given" in fields else _inputs(reading, inner, fields.get("inputs"), key)
    return Child(path, inner, inputs, result, shares)


def _child_with_arguments(
    reading: NativeReading, path: str, node: Node, called: dict[str, Any], result: str
) -> Child | None:
    """A child as another system calls it: it is given the arguments of the step, whatever it declares."""
    workflow = compile_child(reading, path, node)
    if workflow is None:
        return None
    more = {name: Input(kind="json") for name in called.get("takes", ()) if name not in workflow.inputs}
    return Child(called.get("path", path), replace(workflow, inputs={**workflow.inputs, **more}), result=result)


def _from_file(reading: NativeReading, path: str, node: Node) -> Workflow | None:
    """The workflow in a file that a step names; how many of its steps run at once is for the caller to say."""
    if names(path):
        message = f"`{shorten(path)}`: a value never decides on what runs"
        reading.report.error("value", message, node, hint="write the name of the file out")
        return None
    workflow = compile_child(reading, path, node)
    if workflow is None:
        return None
    if workflow.max_parallel is not None:
        message = f"`{shorten(path)}` bounds how many of its steps run at once: the caller's `max_parallel` counts"
        reading.report.warning("parallel", message, node)
        workflow = replace(workflow, max_parallel=None)
    return workflow


def refuse_parallel(reading: NativeReading, root: Mapping) -> None:
    """A workflow that another one calls has no `max_parallel`: all steps of a run share the places of the caller."""
    if reading.level or _compiling.get() is not None:
        message = "`max_parallel` has no meaning in a workflow that another one calls: the caller's counts"
        hint = "leave it out here; `max_parallel` in a map bounds its items"
        reading.report.error("conflict", message, root.entries["max_parallel"][0], hint=hint)


def _inline(reading: NativeReading, node: Mapping) -> tuple[Workflow | None, str]:
    """A workflow that stands in the step that calls it, and its file where it says one.

    Files in it are relative to this file where it says none.
    """
    known = reading.parts.get(id(node)) if reading.is_checked else None
    if known is not None:
        return known
    part = NativeReading(reading.source, reading.report, reading.dialect, reading.is_checked)
    part.call_stack, part.level = reading.call_stack, reading.level + 1
    part.onward, part.needing = reading.onward, reading.needing
    if part.level > CHILD_DEPTH_MAX:
        reading.report.error("limit", f"workflows in workflows go no deeper than {CHILD_DEPTH_MAX} levels", node)
        return None, ""
    workflow = reading.readers.workflow(part, node)
    reading.parts[id(node)] = workflow, "" if part.source is reading.source else part.source.file
    return reading.parts[id(node)]


def compile_child(reading: NativeReading, path: str, node: Node, is_counted: bool = True) -> Workflow | None:
    """The workflow in a file beside this one, or None after a report.

    Where a front end only looks at it, before the native tree is read, its steps are not counted.
    """
    import os

    source, report = reading.source, reading.report
    folder = os.path.dirname(source.file)
    if os.path.abspath(folder) != os.path.abspath(source.folder):
        folder = source.folder
    file = os.path.join(folder, path)
    real = os.path.realpath(file)
    if reading.call_stack is None:
        here = os.path.realpath(os.path.join(source.folder, os.path.basename(source.file)))
        reading.call_stack = _compiling.get() or CallStack([here], [0])
    stack = reading.call_stack
    if real in stack.open:
        chain = [os.path.basename(name) for name in [*stack.open[stack.open.index(real) :], real]]
        message = f"this workflow calls itself: {' calls '.join(f'`{shorten(name)}`' for name in chain)}"
        report.error("cycle", message, node, hint="a loop inside a workflow is `next` or `goto`")
        return None
    if len(stack.open) > CHILD_DEPTH_MAX:
        report.error("limit", f"workflows in workflows go no deeper than {CHILD_DEPTH_MAX} levels", node)
        return None
    return _take_in(reading, stack, file, real, node, is_counted)


def _take_in(
    reading: NativeReading, stack: CallStack, file: str, real: str, node: Node, is_counted: bool
) -> Workflow | None:
    """Compile a child, or take it as it was compiled before; its findings are told once."""
    import os

    report = reading.report
    if os.path.exists(file) and not os.path.isfile(file):
        kind = "a folder" if os.path.isdir(file) else "no regular file"
        report.error("file", f"`{shorten(file, 200)}` is {kind}", node, hint="name a workflow file")
        return None
    if real not in stack.known:
        stack.open.append(real)
        stack.counts.append(0)
        token = _compiling.set(stack)
        compiled = compile_file(file)
        _compiling.reset(token)
        stack.open.pop()
        below = stack.counts.pop()
        own = len(compiled.workflow.steps) + 1 if compiled.workflow is not None else 0
        stack.known[real] = compiled, own + below
    compiled, count = stack.known[real]
    stack.counts[-1] += count if is_counted else 0
    if stack.counts[-1] > STEPS_MAX:
        report.error("limit", f"workflows in workflows have more than {STEPS_MAX} steps in all", node)
        return None
    missing = [finding for finding in compiled.diagnostics if finding.code == "file" and not finding.line]
    if missing:
        report.error("file", missing[0].message, node, hint=missing[0].hint)
        return None
    if real not in stack.told:
        stack.told.add(real)
        for finding in compiled.diagnostics:
            into = report.errors if finding.severity == "error" else report.warnings
            if len(into) < DIAGNOSTICS_MAX:
                into.append(finding)
            else:
                report.left_out += 1
    if compiled.workflow is None:
        report.error("workflow", f"`{shorten(file, 200)}` has errors and can't be run", node)
    return compiled.workflow


def _inputs(reading: NativeReading, workflow: Workflow, node: Node | None, key: Scalar) -> dict[str, Any]:
    """The inputs that the step gives: only those that the child knows, and all that it requires."""
    given: dict[str, Any] = {}
    entries = node.entries if isinstance(node, Mapping) else {}
    if node is not None and not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to values")
    for name, (where, value) in entries.items():
        declared = workflow.inputs.get(name)
        if declared is None:
            hint = did_you_mean(name, workflow.inputs, "inputs") or "it takes no inputs"
            message = f"`{shorten(workflow.name)}` has no input `{shorten(name)}`"
            reading.report.error("unknown-input", message, where, hint=hint)
            continue
        data = read_data(reading, value)
        if data is not INVALID and not (isinstance(data, str) and reading.language.mark in data):
            data = _literal(reading, value, data, declared.kind)
        if data is not INVALID:
            given[name] = data
    for name, declared in workflow.inputs.items():
        if declared.required and name not in entries:
            hint = f"inputs: {{{name}: …}}"
            message = f"`{shorten(workflow.name)}` needs the input `{shorten(name)}`"
            reading.report.error("input-missing", message, key, hint=hint)
    return given


def _literal(reading: NativeReading, node: Node, data: Any, kind: str) -> Any:
    """A value that refers to no other, as the child's input wants it: a text is taken as it is written."""
    if kind == "text" and isinstance(node, Scalar) and data is not None:
        return node.text
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    if kind == "json" or (kind == "bool" and isinstance(data, bool)) or (kind == "number" and is_number):
        return data
    return wrong(reading, node, f"a value of the type {kind}")


def captured_names(workflow: Workflow) -> set[str]:
    """The names under which a workflow keeps values: what its steps and their handlers capture."""
    found: set[str] = set()
    work: list[Step] = [*workflow.steps, workflow.end]
    while work:
        step = work.pop()
        found.update(capture.name for capture in step.capture)
        if isinstance(step.action, Collect):
            found.update(one.name for one in step.action.values)
        work += _handlers(step)
    return found


def _handlers(step: Step) -> Iterable[Step]:
    """The commands that answer a step's failures or follow its success."""
    for rule in step.rules:
        yield from rule.repair.steps if rule.repair is not None else ()
    yield from step.on_success.steps if step.on_success is not None else ()
