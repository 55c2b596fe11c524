"""The OpenAPI 3.1 document: made from the declarations that validate requests, with every answer that can happen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from resile.server.declarations import Answer, Route
from resile.server.problems import MEDIA_TYPE, STATUSES, TITLES, ProblemDocument
from resile.version import __version__

_REFERENCE = "#/components/schemas/{name}"
_ANY = ("foreign_host", "foreign_origin", "invalid_field", "malformed_request", "internal_error")
_WITH_TOKEN = ("token_missing", "token_unknown", "role_too_low", "too_many_wrong_tokens", "store_unavailable")
_WITH_BODY = ("malformed_json", "body_too_large", "wrong_content_type", "stopping")
_WITH_KEY = ("idempotency_key_reused", "idempotency_key_in_use")
_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same request gives the first answer again, for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document of these routes."""
    kinds = list(dict.fromkeys([*_types_of(routes), ProblemDocument]))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    known = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        for number, path in enumerate(route.paths):
            paths[path][route.method.lower()] = _operation(route, known, components, number)
    for route in routes:
        if route.query is not None:
            components.pop(known[repr(route.query)]["$ref"].rpartition("/")[2], None)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Resile",
            "version": __version__,
            "description": "Runs of workflows: start, watch, judge and explain them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(paths),
        "components": {"schemas": components, "securitySchemes": {"token": bearer}},
    }


def _types_of(routes: Iterable[Route]) -> Iterable[Any]:
    """Every type that a request or an answer has."""
    for route in routes:
        for kind in (route.query, route.body, *(answer.document for answer in route.answers.values())):
            if kind is not None:
                yield kind


def _operation(
    route: Route, known: dict[str, dict[str, Any]], components: dict[str, Any], number: int
) -> dict[str, Any]:
    """One method of one path; `number` tells the second path of a route from the first."""
    name = f"{route.handler.__module__.rpartition('.')[2]}_{route.handler.__name__}"
    found: dict[str, Any] = {
        "operationId": name + ("_at_root" if number else ""),
        "summary": route.about,
        "tags": [route.handler.__module__.rpartition(".")[2].replace("_", "-")],
        "parameters": _parameters(route, known, components),
        "responses": _responses(route, known),
    }
    if route.role is not None:
        found["security"] = [{}, {"token": []}]
        found["description"] = f"Role: {route.role}."
    if route.body is not None:
        found["requestBody"] = {
            "required": not route.is_body_optional,
            "content": {"application/json": {"schema": known[repr(route.body)]}},
        }
    return found


def _parameters(route: Route, known: dict[str, dict[str, Any]], components: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters: values of the path and the query, and headers."""
    found: list[dict[str, Any]] = []
    for name in route.parameters:
        number = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
        schema = {"type": "string", "minLength": 1} if name in route.texts else number
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    if route.query is not None:
        query = components[known[repr(route.query)]["$ref"].rpartition("/")[2]]
        for name, schema in query["properties"].items():
            required = name in query.get("required", ())
            found.append({"name": name, "in": "query", "required": required, "schema": schema})
    if route.method == "POST":
        found.append(_KEY_PARAMETER)
    return found


def _responses(route: Route, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The answers by status: the successful ones, then the problems with their codes."""
    found = {str(status): _answer(answer, known) for status, answer in route.answers.items()}
    codes: dict[int, list[str]] = defaultdict(list)
    for code in _codes_of(route):
        codes[STATUSES[code]].append(code)
    reference = known[repr(ProblemDocument)]
    for status in sorted(codes):
        listed = sorted(set(codes[status]))
        content: dict[str, Any] = {MEDIA_TYPE: {"schema": reference}}
        entry: dict[str, Any] = {
            "description": f"{TITLES[status]}: " + ", ".join(f"`{code}`" for code in listed),
            "content": content,
        }
        if status == 429:
            entry["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}}
        found[str(status)] = entry
    return found


def _codes_of(route: Route) -> list[str]:
    """The codes of the problems with which a route may answer."""
    codes = [*_ANY, *route.problems]
    if route.role is not None:
        codes += _WITH_TOKEN
    if route.method in ("POST", "PUT", "DELETE"):
        codes += _WITH_BODY
    if route.method == "POST":
        codes += _WITH_KEY
    if any(name not in route.texts for name in route.parameters):
        codes.append("no_such_path")
    return codes


def _answer(answer: Answer, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One successful answer."""
    found: dict[str, Any] = {"description": answer.about}
    if answer.document is not None:
        found["content"] = {answer.media: {"schema": known[repr(answer.document)]}}
    elif answer.media != "application/json":
        found["content"] = {answer.media: {"schema": {"type": "string"}}}
    if answer.headers:
        found["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in answer.headers.items()
        }
    return found
