"""JSON schemas: does a value meet one? It knows the keywords that the front ends accept.

unmet({"type": "object", "required": ["ok"]}, {"ok": 1})  ->  ""
"""

from __future__ import annotations

from typing import Any

SHOWN_CHARACTERS_MAX = 60
# The other JSON types are `number` and `integer`.
_TYPES: dict[str, type] = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}


def unmet(schema: Any, value: Any, where: str = "the value") -> str:
    """Why a value does not meet a schema, or an empty text."""
    if isinstance(schema, bool):
        return "" if schema else f"{where} is not allowed"
    if value is None and schema.get("nullable"):
        return ""
    problem = _kind(schema, value, where) or _limits(schema, value, where)
    if problem:
        return problem
    if isinstance(value, dict):
        problem = _members(schema, value, where)
    elif isinstance(value, list) and "items" in schema:
        found = (unmet(schema["items"], item, f"{where}[{number}]") for number, item in enumerate(value))
        problem = next((text for text in found if text), "")
    return problem or _check_combination(schema, value, where)


def is_of(kind: str, value: Any) -> bool:
    """Is a value of a JSON type?"""
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (kind != "integer" or isinstance(value, int) or value.is_integer())


def _kind(schema: dict[str, Any], value: Any, where: str) -> str:
    """Type, enum and const."""
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds and not any(is_of(kind, value) for kind in kinds):
        return f"{where} is {_shorten_value(value)}, not {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is {_shorten_value(value)}, not one of {', '.join(map(_shorten_value, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        return f"{where} is {_shorten_value(value)}, not {_shorten_value(schema['const'])}"
    return ""


def _limits(schema: dict[str, Any], value: Any, where: str) -> str:
    """Bounds of numbers, texts and lists."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{where} is less than {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            return f"{where} is more than {schema['maximum']}"
    for kind, low, high in ((str, "minLength", "maxLength"), (list, "minItems", "maxItems")):
        if isinstance(value, kind):
            if len(value) < schema.get(low, 0):
                return f"{where} is shorter than {schema[low]}"
            if len(value) > schema.get(high, len(value)):
                return f"{where} is longer than {schema[high]}"
    if isinstance(value, str) and "pattern" in schema:
        return _mismatch(schema["pattern"], value, where)
    return ""


def _mismatch(pattern: str, value: str, where: str) -> str:
    """Why a text does not match a pattern; a pattern that may backtrack runs in a process with limits."""
    import re

    from resile.languages.bounded import TooMuch, call_bounded
    from resile.model.patterns import PatternRefused, compile_pattern

    try:
        is_met = compile_pattern(pattern, by_line=False).search(value)
    except PatternRefused:
        try:
            is_met = call_bounded(lambda: re.search(pattern, value) is not None)
        except TooMuch as limit:
            return f"{where} can't be compared with {pattern}: {limit}"
    return "" if is_met else f"{where} does not match {pattern}"


def _members(schema: dict[str, Any], value: dict[str, Any], where: str) -> str:
    """The fields of an object."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    for name in required if isinstance(required, list) else []:
        if name not in value:
            return f"{where} has no `{name}`"
    others = schema.get("additionalProperties", True)
    for name, inner in value.items():
        rule = properties.get(name, others)
        if rule is False:
            return f"{where} has a field `{name}` that is not allowed"
        if problem := unmet(rule, inner, f"{where}.{name}"):
            return problem
    return ""


def _check_combination(schema: dict[str, Any], value: Any, where: str) -> str:
    """allOf, anyOf, oneOf."""
    for inner in schema.get("allOf", ()):
        if problem := unmet(inner, value, where):
            return problem
    for word in ("anyOf", "oneOf"):
        if word in schema:
            met = sum(not unmet(inner, value, where) for inner in schema[word])
            if not met or (word == "oneOf" and met > 1):
                return f"{where} meets {met} of the schemas in {word}"
    return ""


def _shorten_value(value: Any) -> str:
    return repr(value)[:SHOWN_CHARACTERS_MAX]
