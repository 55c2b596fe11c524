"""Schemas of a Visor file: named ones, files, and inline JSON schemas.

A JSON schema is checked when the file is loaded: keywords that the runtime does not support are refused.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, plain
from resile.dialects.reading.context import Reading
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import wrong
from resile.dialects.visor.values import path_beside
from resile.errors import shorten
from resile.languages.liquid.templates import is_template
from resile.model.limits import FILE_BYTES_MAX

PLAIN = ("plain", "text", "markdown")
_ISSUES = {
    "type": "object",
    "properties": {
        "issues": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file": {"type": "string"},
                    "line": {"type": "integer"},
                    "ruleId": {"type": "string"},
                    "message": {"type": "string"},
                    "severity": {"type": "string", "enum": ["info", "warning", "error", "critical"]},
                    "category": {"type": "string"},
                },
                "required": ["message", "severity"],
            },
        }
    },
    "required": ["issues"],
}
NAMED: dict[str, Any] = {
    "code-review": _ISSUES,
    "security": _ISSUES,
    "overview": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "issue-assistant": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "intent": {"type": "string"}},
        "required": ["text"],
    },
}
"""Visor's named schemas, as far as code in its files relies on them."""
READ = (
    "type", "properties", "required", "items", "enum", "const", "additionalProperties", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems", "pattern", "anyOf", "oneOf", "allOf", "nullable",
)  # fmt: skip
"""The JSON schema keywords that the runtime checks."""
SAID = ("description", "title", "default", "examples", "example", "$schema", "$id", "format", "$comment", "deprecated")
"""JSON schema keywords that only describe; an agent gets them too."""
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
DEPTH_MAX = 50


class Schema(Struct, frozen=True):
    """The required form of an output: plain text, or a value that meets a JSON schema."""

    is_text: bool = False
    rules: Any = None


def read_schema(reading: Reading, node: Node | None, *, for_agent: bool) -> Schema:
    """Read the schema of a step; without one, any output is valid."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return Schema()
    if isinstance(node, Mapping):
        rules = plain(node)
        return Schema(rules=rules) if is_schema(reading, node, rules) else Schema()
    if not isinstance(node, Scalar):
        wrong(reading, node, "the name of a schema, a path, or a JSON schema")
        return Schema()
    name = node.text.strip()
    if name in PLAIN:
        return Schema(is_text=True)
    if name in NAMED:
        # Only an agent can be asked for it; the output of other steps is taken as it is.
        return Schema(rules=NAMED[name]) if for_agent else Schema()
    if name.startswith("{"):
        return _schema_from_text(reading, node, name)
    if name.endswith(".json"):
        return _schema_from_file(reading, node, name)
    hint = did_you_mean(name, (*PLAIN, *NAMED), "schemas") or "write the JSON schema out"
    reading.report.error("schema", f"there is no schema `{shorten(name)}`", node, hint=hint)
    return Schema()


def _schema_from_text(reading: Reading, node: Scalar, text: str) -> Schema:
    """Read a JSON schema from a text."""
    if is_template(text):
        message = "a schema is known before the run: this one is a template"
        reading.report.error("schema", message, node, hint="write the JSON schema out")
        return Schema()
    try:
        rules = msgspec.json.decode(text)
    except ValueError as error:
        reading.report.error("schema", f"the schema is not JSON ({error})", node)
        return Schema()
    return Schema(rules=rules) if is_schema(reading, node, rules) else Schema()


def _schema_from_file(reading: Reading, node: Scalar, name: str) -> Schema:
    """Read a JSON schema from a file."""
    try:
        with open(path_beside(reading, name), "rb") as file:
            rules = msgspec.json.decode(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not JSON ({error})"
        reading.report.error("file", f"the schema `{shorten(name)}` can't be read: {reason}", node)
        return Schema()
    return Schema(rules=rules) if is_schema(reading, node, rules) else Schema()


def is_schema(reading: Reading, node: Node, rules: Any) -> bool:
    """Is this a JSON schema with supported keywords only? Report it if not."""
    work: list[tuple[Any, int]] = [(rules, 0)]
    while work:
        part, depth = work.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict) or depth > DEPTH_MAX:
            reading.report.error("schema", "a JSON schema is a mapping", node)
            return False
        for word, value in part.items():
            problem = _problem_with(word, value)
            if problem:
                reading.report.error("schema", problem, node)
                return False
        if isinstance(part.get("items"), dict | bool):
            work.append((part["items"], depth + 1))
        work += [(inner, depth + 1) for inner in part.get("properties", {}).values()]
        if isinstance(part.get("additionalProperties"), dict):
            work.append((part["additionalProperties"], depth + 1))
        work += [(inner, depth + 1) for word in ("anyOf", "oneOf", "allOf") for inner in part.get(word, ())]
    return True


def _problem_with(word: str, value: Any) -> str:
    """The problem with one keyword of a JSON schema, or an empty text."""
    if word in SAID or word.startswith("x-"):
        return ""
    if word not in READ:
        return f"the JSON schema has the word `{shorten(word)}`, which is not looked at here"
    expected: dict[str, Any] = {
        "properties": dict, "required": list | bool, "enum": list, "anyOf": list, "oneOf": list, "allOf": list,
        "minimum": int | float, "maximum": int | float, "minLength": int, "maxLength": int, "minItems": int,
        "maxItems": int, "pattern": str, "items": dict | bool, "additionalProperties": dict | bool, "nullable": bool,
    }  # fmt: skip
    if word in expected and not isinstance(value, expected[word]):
        return f"`{word}` of the JSON schema is not what it must be"
    if word == "type":
        kinds = value if isinstance(value, list) else [value]
        if not all(isinstance(kind, str) and kind in TYPES for kind in kinds):
            return f"`type` of the JSON schema is one of {', '.join(TYPES)}"
    if word == "pattern":
        import re

        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError):
            return "`pattern` of the JSON schema is no regular expression"
    return ""


def wording_of(schema: Schema) -> str:
    """The part of a prompt that asks for an answer of this form; raw, because prompts are templates."""
    if schema.rules is None:
        return ""
    rules = msgspec.json.encode(schema.rules).decode()
    return f"{{% raw %}}Answer with JSON only, no other text, that meets this JSON schema:\n{rules}{{% endraw %}}"
