"""Workflows that a step runs: those of `workflows`, of imported files, or of a file that the step names.

A workflow is a file of its own kind: it has inputs and outputs, and its steps see nothing of those around it. What
it gives is the output of the step that runs it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, plain
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import IDENTIFIER, wrong
from resile.dialects.visor.files import Placed, listed, read_other
from resile.dialects.visor.keys import INPUT, OUTPUT
from resile.dialects.visor.schemas import is_schema
from resile.dialects.visor.values import Known, VisorReading, template
from resile.errors import shorten
from resile.model.builtin_actions import Collect, Computed
from resile.model.limits import CHILD_DEPTH_MAX
from resile.model.workflow import Child, Input, Workflow

if TYPE_CHECKING:
    from resile.dialects.reading.context import Source

_KINDS = {"string": "text", "number": "number", "integer": "number", "boolean": "bool"}


def read_workflows(reading: VisorReading, root: Mapping, fields: dict[str, Any]) -> None:
    """Every workflow that steps of the file can name."""
    given: Node | None = fields.get("workflows")
    if isinstance(given, Mapping):
        for name, (_, node) in given.entries.items():
            if isinstance(node, Mapping):
                reading.workflows[name] = Known(reading.source, node)
            else:
                wrong(reading, node, "a workflow: a mapping with `steps`")
    elif given is not None:
        wrong(reading, given, "a mapping of names to workflows")
    own = fields.get("id", "")
    if own and own not in reading.workflows and "steps" in root.entries:
        reading.workflows[own] = Known(reading.source, root)
    for node in listed(reading.report, fields["imports"]) if "imports" in fields else []:
        other = read_other(reading.report, reading.source, node)
        if other is None:
            continue
        _remember(reading, other[1], other[0])
        _import(reading, other[0], other[1])


def _remember(reading: VisorReading, root: Mapping, source: Source) -> None:
    """Findings in the other file name that file."""
    if isinstance(reading.report, Placed):
        reading.report.remember(root, source.file)


def _import(reading: VisorReading, source: Source, root: Mapping) -> None:
    """The workflow of another file, and those that it holds."""
    entry = root.entries.get("id")
    name = entry[1].text if entry is not None and isinstance(entry[1], Scalar) else _stem(source.file)
    reading.workflows.setdefault(name, Known(source, root))
    inner = root.entries.get("workflows")
    if inner is not None and isinstance(inner[1], Mapping):
        for other, (_, node) in inner[1].entries.items():
            if isinstance(node, Mapping):
                reading.workflows.setdefault(other, Known(source, node))


def _stem(file: str) -> str:
    """A file's name without its ending."""
    return os.path.basename(file).rpartition(".")[0] or os.path.basename(file)


def child_of(reading: VisorReading, node: Scalar, args: dict[str, Any]) -> Child | None:
    """The workflow that a step names, with its inputs; None after a report."""
    name = node.text.strip()
    known = reading.workflows.get(name)
    if known is None and name.endswith((".yaml", ".yml")):
        other = read_other(reading.report, reading.source, node)
        if other is None:
            return None
        _remember(reading, other[1], other[0])
        known = Known(other[0], other[1])
    if known is None:
        hint = did_you_mean(name, reading.workflows, "workflows") or "name it under `imports` or `workflows`"
        reading.report.error("unknown-workflow", f"there is no workflow `{shorten(name)}`", node, hint=hint)
        return None
    mark = f"{known.source.file}:{known.root.line}:{known.root.column}"
    if mark in reading.loading or len(reading.loading) >= CHILD_DEPTH_MAX:
        message = f"`{shorten(name)}` runs itself" if mark in reading.loading else "workflows are nested too deeply"
        reading.report.error("workflow", message, node)
        return None
    from resile.dialects.visor.compile import compile_part

    workflow = compile_part(reading, known, name, (*reading.loading, mark))
    if workflow is None:
        return None
    _check_inputs(reading, node, workflow, args)
    if workflow.max_parallel is not None:
        message = f"`{shorten(name)}` has a `max_parallelism`: the caller's counts"
        reading.report.warning("parallel", message, node)
        workflow = replace(workflow, max_parallel=None)
    return Child(path=known.source.file, workflow=workflow, inputs=args)


def _check_inputs(reading: VisorReading, node: Scalar, workflow: Workflow, args: dict[str, Any]) -> None:
    """Inputs that are given must be known, and those that are required given."""
    for name in args:
        if name not in workflow.inputs:
            hint = did_you_mean(name, workflow.inputs, "its inputs")
            reading.report.error("input", f"`{shorten(workflow.name)}` has no input `{shorten(name)}`", node, hint=hint)
    for name, declared in workflow.inputs.items():
        if declared.required and name not in args:
            reading.report.error("input", f"`{shorten(workflow.name)}` needs the input `{shorten(name)}`", node)


def read_inputs(reading: VisorReading, node: Node | None) -> dict[str, Input]:
    """The inputs of a workflow: a list of mappings with a name, or a mapping of names."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return {}
    pairs: list[tuple[str, Node, Node]] = []
    if isinstance(node, Mapping):
        pairs = [(name, key, value) for name, (key, value) in node.entries.items()]
    elif isinstance(node, Sequence):
        for item in node.items:
            entry = item.entries.get("name") if isinstance(item, Mapping) else None
            if entry is None or not isinstance(entry[1], Scalar):
                wrong(reading, item, "an input with a `name`")
            else:
                pairs.append((entry[1].text, entry[1], item))
    else:
        wrong(reading, node, "a list of inputs")
    found: dict[str, Input] = {}
    for name, key, value in pairs:
        declared = _input(reading, value)
        if not IDENTIFIER.fullmatch(name.replace("-", "_")):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of an input", key)
        elif name in found:
            reading.report.error("duplicate", f"the input `{shorten(name)}` is here twice", key)
        elif declared is not None:
            found[name] = declared
    return found


def _input(reading: VisorReading, node: Node) -> Input | None:
    """One input; a value without a mapping is its default."""
    if not isinstance(node, Mapping):
        return Input(kind="json", default=plain(node))
    fields = read_keys(reading, node, INPUT)
    about: Node | None = fields.get("schema")
    schema = plain(about) if about is not None else None
    if about is not None and not is_schema(reading, about, schema):
        return None
    given = schema.get("type") if isinstance(schema, dict) else "string"
    kind: Any = _KINDS.get(given, "json") if isinstance(given, str) else "json"
    default = plain(fields["default"]) if "default" in fields else None
    required = fields.get("required", "default" not in fields)
    if required and "default" in fields:
        required = False
    return Input(kind=kind, default=default, required=required, schema=schema)


def read_outputs(reading: VisorReading, fields: dict[str, Any]) -> Collect | None:
    """What the workflow gives: a list of outputs, or a mapping of names to templates."""
    found: list[Computed] = []
    node: Node | None = fields.get("outputs")
    for item in node.items if isinstance(node, Sequence) else []:
        given = read_keys(reading, item, OUTPUT)
        if isinstance(item, Mapping) and (
            "name" not in item.entries or not {"value", "value_js"} & item.entries.keys()
        ):
            reading.report.error("value", "an output needs `name`, and `value` or `value_js`", item)
        elif "name" in given:
            found.append(Computed(given["name"], given.get("value", ""), given.get("value_js", "")))
    if node is not None and not isinstance(node, Sequence) and not (isinstance(node, Scalar) and node.value is None):
        wrong(reading, node, "a list of outputs")
    mapping: Node | None = fields.get("output_mapping")
    if isinstance(mapping, Mapping):
        for name, (_, value) in mapping.entries.items():
            text = template(reading, value)
            if text is not INVALID:
                found.append(Computed(name, text))
    elif mapping is not None:
        wrong(reading, mapping, "a mapping of names to templates")
    return Collect(tuple(found)) if found else None
