"""Child workflows: `workflow: path` compiles another file, of any dialect, into the step that calls it.

A mapping instead of a path is an inline workflow.

Paths are relative to the calling file. Each file is compiled once, however many steps call it. The compiler refuses a
file that calls itself, directly or not, and calls that nest too deeply or have too many steps in all. Findings in a
child name the child's file. The calling step's inputs are checked here against those that the child declares. Only the
outermost file can set `max_parallel`: it is an error in a native child and ignored with a warning in a child of another
dialect.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from resile.dialects.compile import compile_file
from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.context import CallStack, NativeReading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID
from resile.dialects.reading.values import non_empty, read_data, text, wrong
from resile.errors import shorten
from resile.languages.references import names
from resile.model.builtin_actions import Collect
from resile.model.limits import CHILD_DEPTH_MAX, DIAGNOSTICS_MAX, STEPS_MAX
from resile.model.nested import handler_steps
from resile.model.workflow import Child, FanOut, Input, Step, Workflow

_read_path = non_empty(text, "`workflow`")


_compiling: ContextVar[CallStack | None] = ContextVar("compiling", default=None)
"""The call stack of the child that is being compiled; None outside of children."""
# The keys that only the outermost file may have.
_OF_RUN = {
    "max_parallel": "leave it out here; `max_parallel` in a map bounds its items",
    "resource_monitor": "leave it out here",
    "executor": "leave it out here",
}


def read_child(reading: NativeReading, key: Scalar, fields: dict[str, Any]) -> Child | None:
    """Build the child workflow from the fields of its step; `key` is the node of the `workflow` key."""
    node: Node = fields["workflow"]
    result, shares = fields.get("result", ""), fields.get("shares", False)
    path, inner = "", None
    if isinstance(node, Mapping):
        inner, path = _inline(reading, node)
    elif (path := _read_path(reading, node)) is not INVALID:
        if "called" in fields:
            return _child_with_arguments(reading, path, node, fields["called"], result)
        inner = _from_file(reading, path, node)
    if inner is None or not _has_result(reading, inner, result, key):
        return None
    inputs = fields["given"] if "given" in fields else _inputs(reading, inner, fields.get("inputs"), key)
    return Child(path, inner, inputs, result, shares)


def _child_with_arguments(
    reading: NativeReading, path: str, node: Node, called: dict[str, Any], result: str
) -> Child | None:
    """Compile a child that receives the arguments of the calling step, also those that it does not declare."""
    workflow = compile_child(reading, path, node)
    if workflow is None or not _has_result(reading, workflow, result, node):
        return None
    more = {name: Input(kind="json") for name in called.get("takes", ()) if name not in workflow.inputs}
    return Child(called.get("path", path), replace(workflow, inputs={**workflow.inputs, **more}), result=result)


def _has_result(reading: NativeReading, workflow: Workflow, name: str, where: Node) -> bool:
    """Can the step that `result` names give the value of the calling step? None named is fine."""
    found = next((step for step in (*workflow.steps, workflow.end) if step.name == name), None)
    if not name or (found is not None and not _gives_many(found)):
        return True
    if found is None:
        hint = did_you_mean(name, [step.name for step in workflow.steps], "steps")
        message = f"`{shorten(workflow.name)}` has no step `{shorten(name)}`, which `result` names"
    else:
        hint = "name a step that prints the value, or captures it"
        message = f"`{shorten(name)}` has one value for each item or step inside, so it can't be the `result`"
    reading.report.error("unknown-step" if found is None else "value", message, where, hint=hint)
    return False


def _gives_many(step: Step) -> bool:
    """Has a step no output of its own, because others run in its place?"""
    return len(step.capture) != 1 and (
        isinstance(step.action, FanOut) or (isinstance(step.action, Child) and not step.action.result)
    )


def _from_file(reading: NativeReading, path: str, node: Node) -> Workflow | None:
    """Compile the file that a step names, and drop its `max_parallel`: the caller's counts."""
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


def refuse_settings_of_run(reading: NativeReading, root: Mapping) -> None:
    """Refuse settings of a whole run in a called native workflow: all steps of a run share the caller's."""
    if reading.dialect != "native" or not (reading.level or _compiling.get() is not None):
        return
    for key, hint in _OF_RUN.items():
        if key in root.entries:
            message = f"`{key}` has no meaning in a workflow that another one calls: the caller's counts"
            reading.report.error("conflict", message, root.entries[key][0], hint=hint)


def _inline(reading: NativeReading, node: Mapping) -> tuple[Workflow | None, str]:
    """Compile an inline workflow; return it with its own source file, if it names one.

    Paths in it are relative to the calling file unless it names another.
    """
    known = reading.parts.get(id(node)) if reading.is_checked else None
    if known is not None:
        return known
    part = NativeReading(reading.source, reading.report, reading.dialect, reading.is_checked)
    part.errexit = reading.errexit
    part.call_stack, part.level = reading.call_stack, reading.level + 1
    part.onward, part.needing = reading.onward, reading.needing
    if part.level > CHILD_DEPTH_MAX:
        reading.report.error("limit", f"workflows in workflows go no deeper than {CHILD_DEPTH_MAX} levels", node)
        return None, ""
    workflow = reading.readers.workflow(part, node)
    reading.parts[id(node)] = workflow, "" if part.source is reading.source else part.source.file
    return reading.parts[id(node)]


def compile_child(reading: NativeReading, path: str, node: Node, is_counted: bool = True) -> Workflow | None:
    """Compile the file at a path relative to this one; return None after reporting an error.

    Front ends that look at a child before the native tree is read do not count its steps (`is_counted`).
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
    """Compile a child, or reuse its earlier compilation; report its findings once."""
    import os

    report = reading.report
    if os.path.exists(file) and not os.path.isfile(file):
        kind = "a folder" if os.path.isdir(file) else "no regular file"
        report.error("file", f"`{shorten(file, 200)}` is {kind}", node, hint="name a workflow file")
        return None
    if file.endswith(".py"):
        hint = "run it with `shell: resile run FILE.py`, or write the outer workflow in Python"
        message = f"`{shorten(file, 200)}` is a workflow in Python, which can't be a step of a file"
        report.error("workflow", message, node, hint=hint)
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
    if real not in stack.reported:
        stack.reported.add(real)
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
    """Read the inputs that a step passes: the child must declare each, and each required one must be given."""
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
    """Convert a literal to the type of the child's input; for a text input it is taken as written."""
    if kind == "text" and isinstance(node, Scalar) and data is not None:
        return node.text
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    if kind == "json" or (kind == "bool" and isinstance(data, bool)) or (kind == "number" and is_number):
        return data
    return wrong(reading, node, f"a value of the type {kind}")


def captured_names(workflow: Workflow) -> set[str]:
    """Names that the steps of a workflow and their handlers capture."""
    found: set[str] = set()
    work: list[Step] = [*workflow.steps, workflow.end]
    while work:
        step = work.pop()
        found.update(capture.name for capture in step.capture)
        if isinstance(step.action, Collect):
            found.update(one.name for one in step.action.values)
        work += handler_steps(step)
    return found
