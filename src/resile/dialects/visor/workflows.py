"""Workflows that a step calls: those of `workflows`, of imported files, or of a file that the step names.

A called workflow has inputs and outputs of its own; its steps do not see those of the caller. Its outputs are the
output of the calling step.
"""

from __future__ import annotations

import os
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, plain
from resile.dialects.native.nodes import Part, is_null, text_in, value_of
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import IDENTIFIER, wrong
from resile.dialects.visor.files import paths_of, read_other
from resile.dialects.visor.keys import INPUT, OUTPUT
from resile.dialects.visor.schemas import is_schema
from resile.dialects.visor.values import Known, Lowered, VisorReading, template
from resile.errors import shorten
from resile.model.limits import CHILD_DEPTH_MAX

_KINDS = {"string": "text", "number": "number", "integer": "number", "boolean": "bool"}


def read_workflows(reading: VisorReading, root: Mapping, fields: dict[str, Any]) -> None:
    """Collect all workflows that steps of the file can name."""
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
    for node in paths_of(reading.report, fields["imports"]) if "imports" in fields else []:
        other = read_other(reading.report, reading.source, node)
        if other is not None:
            _import(reading, *other)


def _import(reading: VisorReading, source: Source, root: Mapping) -> None:
    """Add the workflow of another file, and those inside it."""
    reading.workflows.setdefault(text_in(value_of(root, "id")) or stem_of(source.file), Known(source, root))
    inner = value_of(root, "workflows")
    for name, (_, node) in inner.entries.items() if isinstance(inner, Mapping) else ():
        if isinstance(node, Mapping):
            reading.workflows.setdefault(name, Known(source, node))


def stem_of(file: str) -> str:
    """A file's name without its ending."""
    return os.path.basename(file).rpartition(".")[0] or os.path.basename(file)


def child_of(reading: VisorReading, node: Scalar, args: dict[str, Any]) -> dict[str, Any] | None:
    """The native keys of a step that calls the workflow of this name; None after a report."""
    name = node.text.strip()
    known = reading.workflows.get(name)
    if known is None and name.endswith((".yaml", ".yml")):
        other = read_other(reading.report, reading.source, node)
        if other is None:
            return None
        known = Known(*other)
    if known is None:
        hint = did_you_mean(name, reading.workflows, "workflows") or "name it under `imports` or `workflows`"
        reading.report.error("unknown-workflow", f"there is no workflow `{shorten(name)}`", node, hint=hint)
        return None
    mark = f"{known.source.file}:{known.root.line}:{known.root.column}"
    if mark in reading.loading or len(reading.loading) >= CHILD_DEPTH_MAX:
        message = f"`{shorten(name)}` runs itself" if mark in reading.loading else "workflows are nested too deeply"
        reading.report.error("workflow", message, node)
        return None
    errors = len(reading.report.errors)
    lowered = reading.lower(reading, known, name, (*reading.loading, mark))
    if lowered is None:
        return None
    if len(reading.report.errors) == errors:
        _check_inputs(reading, node, lowered, args)
        if "max_parallel" in lowered.root:
            message = f"`{shorten(name)}` has a `max_parallelism`: the caller's counts"
            reading.report.warning("parallel", message, node)
    # A node, so that copies of the step share it and its errors are reported once.
    return {"workflow": lowered.root.replace(max_parallel=None).to_node(), "given": args}


def _check_inputs(reading: VisorReading, node: Scalar, workflow: Lowered, args: dict[str, Any]) -> None:
    """Check that the given inputs are declared, and the required ones given."""
    for name in args:
        if name not in workflow.inputs:
            hint = did_you_mean(name, workflow.inputs, "its inputs")
            reading.report.error("input", f"`{shorten(workflow.name)}` has no input `{shorten(name)}`", node, hint=hint)
    for name, declared in workflow.inputs.items():
        if "required" in declared and name not in args:
            reading.report.error("input", f"`{shorten(workflow.name)}` needs the input `{shorten(name)}`", node)


def read_inputs(reading: VisorReading, node: Node | None) -> dict[str, Part]:
    """Read the inputs of a workflow: a list of mappings with names, or a mapping of names."""
    if node is None or is_null(node):
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
    found: dict[str, Part] = {}
    for name, key, value in pairs:
        declared = _input(reading, value)
        if not IDENTIFIER.fullmatch(name.replace("-", "_")):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of an input", key)
        elif name in found:
            reading.report.error("duplicate", f"the input `{shorten(name)}` is here twice", key)
        elif declared is not None:
            found[name] = declared
    return found


def _input(reading: VisorReading, node: Node) -> Part | None:
    """Read one input; a value that is no mapping is its default."""
    if not isinstance(node, Mapping):
        return Part(node, type="json", default=plain(node))
    fields = read_keys(reading, node, INPUT)
    about: Node | None = fields.get("schema", fields.get("type"))
    schema = plain(about) if about is not None else None
    if about is not None and "schema" not in fields:
        schema = {"type": schema}
    if about is not None and not is_schema(reading, about, schema):
        return None
    given = schema.get("type") if isinstance(schema, dict) else "string"
    kind = _KINDS.get(given, "json") if isinstance(given, str) else "json"
    if "default" in fields:
        return Part(node, type=kind, default=plain(fields["default"]), schema=schema)
    return Part(node, type=kind, required=fields.get("required", True) or None, schema=schema)


def read_outputs(reading: VisorReading, fields: dict[str, Any]) -> dict[str, Any]:
    """Read the outputs of the workflow: a list, or a mapping of names to templates."""
    found: dict[str, Any] = {}
    node: Node | None = fields.get("outputs")
    for item in node.items if isinstance(node, Sequence) else []:
        given = read_keys(reading, item, OUTPUT)
        if isinstance(item, Mapping) and (
            "name" not in item.entries or not {"value", "value_js"} & item.entries.keys()
        ):
            reading.report.error("value", "an output needs `name`, and `value` or `value_js`", item)
        elif "name" in given:
            if "value" in given and "value_js" in given:
                reading.report.warning("not-used", "`value` is not used, because `value_js` gives the value", item)
            found[given["name"]] = {"code": given["value_js"]} if "value_js" in given else given.get("value", "")
    if node is not None and not isinstance(node, Sequence) and not is_null(node):
        wrong(reading, node, "a list of outputs")
    mapping: Node | None = fields.get("output_mapping")
    if isinstance(mapping, Mapping):
        texts = {name: template(reading, value) for name, (_, value) in mapping.entries.items()}
        found |= {name: text for name, text in texts.items() if text is not INVALID}
    elif mapping is not None:
        wrong(reading, mapping, "a mapping of names to templates")
    return found
