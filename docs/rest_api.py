"""The sections of api.md: every path with its parameters, body, answers and problems, read off the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from command_line import cell

from resile.server.openapi import document
from resile.server.problems import STATUSES, TITLES
from resile.server.table import ROUTES

INTRODUCTION = [
    "`resile server` offers this below `/api/v1`, as JSON in UTF-8. `/api/v1/openapi.json` has the same as an OpenAPI",
    "3.1 document, made from the declarations that validate requests.",
    "",
    "- A server on loopback without tokens is open to its own user. Once a token exists (`resile token create`), every",
    "  request needs `Authorization: Bearer SECRET`. Roles: viewer reads, operator also acts, worker has the paths of",
    "  workers, admin may do all.",
    "- A refusal is a problem document (RFC 9457, `application/problem+json`) with `code`, `detail` and `hint`; for a",
    "  workflow with errors also `errors`, each with its place.",
    "- A list has `items` and `next_cursor`, which is null at the end; `?limit=` is 1 to 1000, `?cursor=` takes a",
    "  `next_cursor`.",
    "- `Idempotency-Key` on a POST: the same key with the same request gives the first answer again for 24 hours, with",
    "  the header `Idempotent-Replayed: true`.",
    "- Times are RFC 3339 in UTC with milliseconds; durations are seconds.",
    "",
    "```text",
    "curl -s http://127.0.0.1:8700/api/v1/runs?status=failed,parked",
    "```",
]


def route_sections() -> Iterator[str]:
    """The introduction, a section for each path, the objects, and the table of codes."""
    yield from INTRODUCTION
    described = document(ROUTES)
    schemas = described["components"]["schemas"]
    yield from ("", "## Paths", "", "| method and path | role | |", "|---|---|---|")
    for route in ROUTES:
        for number, path in enumerate(route.paths):
            also = " (as Torc has it)" if number else ""
            yield f"| {route.method} `{path}` | {route.role or 'none'} | {cell(route.about)}{also} |"
    for route in ROUTES:
        operation = described["paths"][route.paths[0]][route.method.lower()]
        yield from _section(route.method, route.paths[0], operation, schemas)
    yield from ("", "## Objects", "", "Objects that commands print, too, are in [the JSON of commands](json.md).")
    for name, schema in sorted(schemas.items()):
        yield from _object(name, schema)
    yield from ("", "## Codes of problems", "", "| status | code |", "|---|---|")
    for status in sorted(TITLES):
        codes = ", ".join(f"`{code}`" for code, own in STATUSES.items() if own == status)
        yield f"| {status} {TITLES[status]} | {codes} |"


def _section(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """One route."""
    yield from ("", f"### {method} {path}", "", f"{operation['summary']}. {operation.get('description', '')}".rstrip())
    parameters = [one for one in operation["parameters"] if one["name"] != "Idempotency-Key" and one["in"] == "query"]
    if parameters:
        yield from ("", "| parameter | value |", "|---|---|")
        yield from (f"| `{one['name']}` | {cell(_kind(one['schema']))} |" for one in parameters)
    body = operation.get("requestBody")
    if body:
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        needed = "" if body["required"] else ", which may be left out"
        yield from ("", f"Body: {_link(name)}{needed}. {schemas[name].get('description', '').split(chr(10))[0]}")
    yield from ("", "| status | |", "|---|---|")
    for status, answer in operation["responses"].items():
        content = next(iter(answer.get("content", {}).items()), None)
        kind = ""
        if content is not None and content[0] == "application/json":
            kind = f": {_kind(content[1]['schema'])}"
        elif content is not None and status < "300":
            kind = f" (`{content[0].partition(';')[0]}`)"
        yield f"| {status} | {cell(answer['description'] + kind)} |"


def _object(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """One object with its fields."""
    if "properties" not in schema:
        return
    yield from ("", f"### {name}", "", " ".join(schema.get("description", "").split()), "")
    if not schema["properties"]:
        return
    yield from ("| field | value |", "|---|---|")
    required = schema.get("required", ())
    for field, kind in schema["properties"].items():
        yield f"| `{field}` | {cell(_kind(kind))}{'' if field in required else ', optional'} |"


def _link(name: str) -> str:
    anchor = name.lower().replace("[", "").replace("]", "").replace("_", "_").replace(".", "")
    return f"[{name}](#{anchor})"


def _kind(schema: dict[str, Any]) -> str:
    """A schema in words."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"list of {', then '.join(_kind(one) for one in schema['prefixItems'])}"
        case "array":
            return f"list of {_kind(schema.get('items', {}))}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {_kind(inner)} by name" if isinstance(inner, dict) else "object"
        case "string":
            return "text"
        case None:
            return "any value"
        case other:
            limits = [f"from {schema['minimum']}" if "minimum" in schema else "", ""]
            limits[1] = f"to {schema['maximum']}" if "maximum" in schema else ""
            return " ".join(part for part in (str(other), *limits) if part)
