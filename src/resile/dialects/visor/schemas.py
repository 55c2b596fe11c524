"""Schemas of a Visor file: named ones, files, and inline JSON schemas.

A JSON schema is checked when the file is loaded: keywords that the runtime does not support are refused.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, plain
from resile.dialects.native.nodes import is_null
from resile.dialects.reading.beside import open_beside
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID
from resile.dialects.reading.values import wrong
from resile.dialects.visor.values import path_beside, template
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
OF_ISSUES = tuple(name for name, rules in NAMED.items() if rules is _ISSUES)
"""The schemas of reviews, which find issues."""
READ: dict[str, Any] = {
    "type": object, "properties": dict, "required": list | bool, "items": dict | bool, "enum": list, "const": object,
    "additionalProperties": dict | bool, "minimum": int | float, "maximum": int | float, "minLength": int,
    "maxLength": int, "minItems": int, "maxItems": int, "pattern": str, "anyOf": list, "oneOf": list, "allOf": list,
    "nullable": bool,
}  # fmt: skip
"""The JSON schema keywords that the runtime checks, with the types of their values."""
SAID = ("description", "title", "default", "examples", "example", "$schema", "$id", "format", "$comment", "deprecated")
"""JSON schema keywords that only describe; an agent gets them too."""
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
DEPTH_MAX = 50


class Schema(Struct, frozen=True):
    """The required form of an output: plain text, or a value that meets a JSON schema.

    A `template` gives the schema in the prompt of an agent; nothing checks the output against it.
    """

    is_text: bool = False
    rules: Any = None
    name: str = ""
    template: str = ""


def read_schema(reading: Reading, node: Node | None, *, for_agent: bool) -> Schema:
    """Read the schema of a step; without one, any output is valid."""
    if node is None or is_null(node):
        return Schema()
    if isinstance(node, Mapping):
        rules = plain(node)
    elif not isinstance(node, Scalar):
        rules = wrong(reading, node, "the name of a schema, a path, or a JSON schema")
    else:
        name = node.text.strip()
        if name in PLAIN:
            return Schema(is_text=True, name=name)
        if name in NAMED:
            # Only an agent can be asked for it; the output of other steps is taken as it is.
            return Schema(rules=NAMED[name] if for_agent else None, name=name)
        if for_agent and name.startswith("{") and is_template(name):
            return _schema_of_template(reading, node, name)
        rules = _rules_of(reading, node, name)
    return Schema(rules=rules) if rules is not INVALID and is_schema(reading, node, rules) else Schema()


def _schema_of_template(reading: Reading, node: Scalar, text: str) -> Schema:
    """The schema that a template gives, for the prompt alone."""
    if template(reading, node) is INVALID:
        return Schema()
    message = "this schema is a template: the agent is asked for it, and its answer is not checked against it"
    reading.report.warning("schema", message, node, hint="write the JSON schema out")
    return Schema(template=text)


def _rules_of(reading: Reading, node: Scalar, text: str) -> Any:
    """The JSON schema in a text, or in the file that it names; INVALID after a report."""
    if text.startswith("{") and is_template(text):
        message = "a schema is known before the run: this one is a template"
        reading.report.error("schema", message, node, hint="write the JSON schema out")
        return INVALID
    if not text.startswith("{") and not text.endswith(".json"):
        hint = did_you_mean(text, (*PLAIN, *NAMED), "schemas") or "write the JSON schema out"
        reading.report.error("schema", f"there is no schema `{shorten(text)}`", node, hint=hint)
        return INVALID
    try:
        if text.startswith("{"):
            return msgspec.json.decode(text)
        with open_beside(path_beside(reading, text)) as file:
            return msgspec.json.decode(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError) as error:
        if text.startswith("{"):
            reading.report.error("schema", f"the schema is not JSON ({error})", node)
        else:
            reason = error.strerror if isinstance(error, OSError) else f"it is not JSON ({error})"
            reading.report.error("file", f"the schema `{shorten(text)}` can't be read: {reason}", node)
        return INVALID


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
        problem = next((found for word, value in part.items() if (found := _problem_with(word, value))), "")
        if problem:
            reading.report.error("schema", problem, node)
            return False
        inner = [part[word] for word in ("items", "additionalProperties") if word in part]
        inner += part.get("properties", {}).values()
        inner += [each for word in ("anyOf", "oneOf", "allOf") for each in part.get(word, ())]
        work += [(each, depth + 1) for each in inner]
    return True


def _problem_with(word: str, value: Any) -> str:
    """The problem with one keyword of a JSON schema, or an empty text."""
    if word in SAID or word.startswith("x-"):
        return ""
    if word not in READ:
        return f"the JSON schema has the word `{shorten(word)}`, which is not looked at here"
    if not isinstance(value, READ[word]):
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
    if schema.template:
        return f"Answer with JSON only, no other text, that meets this JSON schema:\n{schema.template}"
    if schema.rules is None:
        return ""
    rules = msgspec.json.encode(schema.rules).decode()
    return f"{{% raw %}}Answer with JSON only, no other text, that meets this JSON schema:\n{rules}{{% endraw %}}"
