"""`resile schema`: the JSON Schema of the native file, made from the tables that also read it (native/keys/).

    a row of a table --its kind--> what a value may be: text, duration, mapping …
    _PARTS                         which table a mapping below a key has, and what a list holds

So a key that the reader learns appears in the schema with its documentation. The schema knows only shapes: `resile
check` finds out whether a named step exists.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from resile.dialects.native.keys import failures, fanout, ir, steps
from resile.dialects.native.step_types import builtin, commands, programs
from resile.dialects.reading.key_tables import Key, Table
from resile.dialects.reading.values import CONDITION
from resile.languages.shell.quoting import SHELLS
from resile.model.builtin_actions import Case, Effect
from resile.model.cluster import Cluster
from resile.model.workflow import Function, Query

Schema = dict[str, Any]

_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_QUANTITY: Schema = {"type": ["string", "number"]}
_MAPPING: Schema = {"type": "object"}
_LIST: Schema = {"type": "array"}
_SEPARATOR = re.compile(r",? or |, ")
_CODE_MARK = re.compile(r"`|\[([^\]]*)\]\([^)]*\)")
# Kinds that are texts: the reader of the key checks their content.
_TEXTS = (
    "text", "command", "path", "name", "prompt", "expression", "code", "field", "fields", "url", "template", "type",
    "script", "regular expression", "JSON path", "key", "kind", "word", "step", "permissions", "signal",
)  # fmt: skip
_ATOMS: dict[str, Schema] = {
    **dict.fromkeys(_TEXTS, _TEXT),
    **dict.fromkeys(("duration", "size"), _QUANTITY),
    "value": {},
    "data": {},
    "whole number": {"type": "integer"},
    "number": {"type": "number"},
    "number from 0 to 1": {"type": "number", "minimum": 0, "maximum": 1},
    "true": {"const": True},
    "false": {"const": False},
    "bool": {"type": "boolean"},
    "null": {"type": "null"},
    "1": {"const": 1},
    "JSON schema": {"type": ["object", "boolean"]},
    "list": _LIST,
    "mapping": _MAPPING,
}  # fmt: skip


def _one_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _many(schema: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": schema} | ({"minItems": least} if least else {})


def _text_like(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def _mapping_of(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def _ref(table: Table) -> Schema:
    return {"$ref": f"#/$defs/{_slug(table)}"}


def _slug(table: Table) -> str:
    """The name of a table among the definitions."""
    return re.sub(r"[^a-z_]+", "-", table.name).strip("-")


_STEP = _ref(steps.STEP)
_NULL: Schema = {"type": "null"}
_COMMAND = _one_of(_TEXT, _STEP)
_COMMANDS = _one_of(_TEXT, _STEP, _many(_COMMAND))
_STEPS = _one_of(_many(_STEP), _mapping_of(_STEP))
_PHASE = _one_of(_many(_STEP), _ref(fanout.PHASE))
_NEED = _one_of(_TEXT, _ref(steps.NEED))
_ARC = _one_of(_TEXT, _ref(steps.ARC))
_BACKOFF = _one_of(_QUANTITY, _ref(failures.BACKOFF))
_ANSWER = _one_of({"type": ["boolean", "null"]}, _TEXT, _many(_COMMAND), _ref(failures.ON_FAILURE))
_FOLLOWS: Schema = {"$ref": "#/$defs/follows"}
_CONDITION = _one_of(_TEXT, _ref(CONDITION))
_CAPTURE = _one_of(_TEXT, _mapping_of({"enum": list(steps.CAPTURE_FORMS)}))
_INPUT = _one_of(_TEXT, _LIST, _ref(steps.INPUT))
_AFTER = _one_of(_QUANTITY, _many(_COMMAND, 1), _FOLLOWS)
_PROGRAM = _text_like(f"(^|/)({'|'.join(SHELLS)})$")
_FIELD = r"[^\s,.]+(\.[^\s,.]+)*"
_NULLS = r"[Nn][Uu][Ll][Ll][Ss]\s+([Ff][Ii][Rr][Ss][Tt]|[Ll][Aa][Ss][Tt])"
_ORDER = rf"{_FIELD}(\s+([Aa][Ss][Cc]|[Dd][Ee][Ss][Cc]))?(\s+{_NULLS})?"
_AGENT_COMMAND = _one_of(_text_like(r"^[^|&;<>$`\n]*[^|&;<>$`\s][^|&;<>$`\n]*$"), _many(_TEXT, 1))
_BUILTIN = {table.name: _one_of(_TEXT, _ref(table)) for table in builtin.BUILTIN_TABLES}
_DEFAULTS = [
    {
        "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
        "then": {"properties": {"default": {"type": shape}}},
    }
    for kind, shape in (("number", "number"), ("bool", "boolean"))
]
# Mappings in the fields of the model.
_MODELS, _MODEL_PARTS = msgspec.json.schema_components(
    (Cluster, Function, Query, tuple[Effect, ...]), ref_template="#/$defs/model-{name}"
)

# The schema below a key: by its name, or by its table and name if the name has several meanings.
_PARTS: dict[str, Schema] = {
    "steps": _STEPS,
    "setup": _PHASE,
    "reduce": _PHASE,
    "agent_template": _PHASE,
    "setup, reduce, agent_template.commands": _many(_STEP),
    "commands": _COMMANDS,
    "on_failure": _ANSWER,
    "on_success": _AFTER,
    "on_finish": _AFTER,
    "routing.defaults.on_failure": _one_of(_NULL, _ref(failures.DEFAULT)),
    "retry": _one_of({"type": "integer"}, _ref(failures.RETRY)),
    "backoff": _BACKOFF,
    "retry_config.backoff": _one_of(_NULL, *_BACKOFF["anyOf"]),
    **{f"backoff.{kind}": _BACKOFF for kind in failures.BACKOFF_KINDS},
    "map": _ref(fanout.MAP),
    "input": _one_of(_TEXT, _LIST, _ref(fanout.INPUT_STEP)),
    "error_policy": _ref(fanout.ERROR_POLICY),
    "error_policy.error_collection": _one_of(
        {"enum": ["aggregate", "immediate", "batched"]}, _text_like("^batched:"), _ref(fanout.ERROR_COLLECTION)
    ),
    "error_policy.on_item_failure": _one_of({"enum": list(fanout.ITEM_FAILURES)}, _text_like(f"^{fanout.CUSTOM}")),
    "retry_config": _ref(fanout.RETRY_CONFIG),
    "circuit_breaker": _ref(fanout.CIRCUIT_BREAKER),
    "error_collection.batched": _one_of({"type": "integer"}, _ref(fanout.BATCHED)),
    "needs": _one_of(_NULL, *_NEED["anyOf"], _many(_NEED)),
    "next": _one_of(*_ARC["anyOf"], _ref(steps.ARCS), _many(_ARC)),
    "next.arcs": _one_of(*_ARC["anyOf"], _many(_ARC)),
    "when": _CONDITION,
    "a transition.when": _TEXT,
    "besides": _many(_CONDITION),
    "resources": _ref(steps.RESOURCES),
    "escalate": _ref(failures.ESCALATE),
    "a rule of a step.escalate": _ref(failures.GROWTH),
    "http": _one_of(_TEXT, _ref(programs.HTTP_KEYS)),
    "python": _one_of(_TEXT, _ref(programs.PYTHON_KEYS)),
    "write_file": _ref(commands.FILE),
    "agent": _one_of(_TEXT, _ref(commands.PROMPT)),
    "the workflow.agent": _one_of(_AGENT_COMMAND["anyOf"][0], _ref(commands.AGENT_SETTINGS)),
    "the workflow.inputs": _mapping_of(_INPUT),
    "env": _mapping_of({"type": ["string", "number", "boolean", "null"]}),
    "secrets": _one_of(_many(_TEXT), _mapping_of(_ref(steps.SECRET))),
    "failure_handlers": _mapping_of(_ref(failures.FAILURE_HANDLER)),
    "a failure handler.rules": _many(_one_of(_ref(failures.RULE), _ref(failures.STEP_RULE))),
    "rules": _many(_one_of(_TEXT, _ref(failures.STEP_RULE))),
    "routing": _ref(failures.ROUTING),
    "defaults": _ref(failures.DEFAULTS),
    "transitions": _many(_ref(failures.TRANSITION)),
    "capture": _CAPTURE,
    "on_failure.capture": _one_of(_TEXT, _mapping_of(_TEXT)),
    "handlers": _mapping_of(_many(_COMMAND, 1)),
    "workflow": _one_of(_TEXT, _MAPPING),
    "checks": _many(_ref(ir.CHECK)),
    "transform": _ref(ir.TRANSFORM),
    "the workflow.shell_program": _PROGRAM,
    "a step.shell_program": _PROGRAM,
    "map.distinct": _text_like(f"^{_FIELD}$"),
    "map.branch": _text_like("^[A-Za-z0-9]+(?:[_/-][A-Za-z0-9]+)*$"),
    "map.sort_by": _text_like(rf"^\s*{_ORDER}(\s*,\s*{_ORDER})*\s*$"),
    "agent.command": _AGENT_COMMAND,
    "agent, of a step.command": _AGENT_COMMAND,
    "write_file.mode": _one_of({"type": "integer"}, _text_like("^(0o)?[0-7]{3,4}$")),
    **{f"ir, of a step.{name}": _BUILTIN[name] for name in ("script", "log", "memory")},
    "ask": _one_of(_TEXT, _ref(builtin.ASK_KEYS)),
    "collect": _mapping_of(_one_of(_TEXT, _BUILTIN["a collected value"])),
    "ir, of a step.function": _MODELS[1],
    "ir, of a step.query": _MODELS[2],
    "effects": _MODELS[3],
    "cluster": _MODELS[0],
    "cases": _many(
        {
            "type": "object",
            "properties": {name: {} for name in Case.__struct_fields__},
            "required": ["when"],
            "additionalProperties": False,
        }
    ),
}


def native_schema() -> Schema:
    """The schema of a native file."""
    known = [*steps.TABLES, *ir.IR_TABLES]
    tables = {_slug(table): table for table in known}
    definitions = {name: _object(table) for name, table in tables.items()}
    definitions[_slug(steps.STEP)] = _object(steps.STEP, {"ir": _ref(ir.IR_STEP)})
    definitions[_slug(steps.INPUT)]["allOf"] = _DEFAULTS
    for name, part in _MODEL_PARTS.items():
        definitions[f"model-{name}"] = _close(part)
    own = _object(steps.STEP)["properties"] | _object(failures.ON_SUCCESS)["properties"]
    definitions["follows"] = {"type": "object", "properties": own, "additionalProperties": False}
    root = _object(steps.WORKFLOW, {"ir": _ref(ir.IR_WORKFLOW)})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A workflow of Resile",
        **root,
        "required": ["resile"],
        "anyOf": [{"required": ["steps"]}, {"required": ["mode"]}],
        "$defs": definitions,
    }


def _object(table: Table, more: dict[str, Schema] | None = None) -> Schema:
    """The schema of a mapping with the keys of a table, and no others."""
    rows = {name: {"description": _plain(row.doc), **_schema_of(table, row)} for name, row in table.keys.items()}
    for name, schema in (more or {}).items():
        rows[name] = {**rows[name], **schema}
    return {
        "type": "object",
        "description": _plain(table.doc),
        "properties": rows,
        "additionalProperties": False,
    }


def _close(part: Schema) -> Schema:
    """The schema of a Struct without fields that it does not know; its tag is the key above it."""
    if "properties" not in part:
        return part
    properties = {name: row for name, row in part["properties"].items() if name != "type"}
    required = [name for name in part["required"] if name != "type"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema_of(table: Table, row: Key) -> Schema:
    """What the value of a key may be."""
    if row.kind.startswith("as `"):
        return _schema_of(table, table.keys[row.kind.removeprefix("as `").rstrip("`")])
    if row.words:
        return {"enum": list(row.words)}
    return _PARTS.get(f"{table.name}.{row.name}") or _part_of(row) or _by_kind(row.kind)


def _part_of(row: Key) -> Schema | None:
    """The schema below a key, which may be a mapping or a list."""
    part = _PARTS.get(row.name)
    is_plain = row.kind in _ATOMS and row.kind != "mapping"
    return None if part is None or is_plain else part


def _by_kind(kind: str) -> Schema:
    """What a value of this kind may be: one of the alternatives that its text has."""
    if kind == "condition":
        return _CONDITION
    if kind == "true or false":
        return {"type": "boolean"}
    found: list[Schema] = []
    for atom in _SEPARATOR.split(kind):
        if atom in _ATOMS:
            found.append(_ATOMS[atom])
        elif atom.startswith("list"):
            found.append(_LIST)
        elif atom.startswith(("mapping", "{")):
            found.append(_MAPPING)
        else:
            return {"enum": _SEPARATOR.split(kind)}
    return found[0] if len(found) == 1 else _one_of(*found)


def _plain(text: str) -> str:
    """A text of the reference page without its marks."""
    return _CODE_MARK.sub(lambda found: found[1] or "", text)
