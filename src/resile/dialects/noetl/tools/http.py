"""Requests of a playbook: an http tool and its `auth`.

    auth: NAME      auth: {type: bearer | basic | api_key, name: NAME}      auth: {type: bearer, token: "{{ ... }}"}

A credential is read from the environment like an entry of the keychain: `$NAME_TOKEN` for a bearer, `$NAME_USERNAME`
and `$NAME_PASSWORD`, `$NAME_KEY`. It is a secret, and becomes a header.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import Part, is_null
from resile.dialects.noetl.tools.keys import AUTH
from resile.dialects.noetl.values import NoetlReading, filled_template, read_known_text, refuse_keys
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.templates import names_in, text_expression

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
PARTS = {"bearer": ("token",), "basic": ("username", "password"), "api_key": ("key",)}
"""The parts of a credential, by the type of authentication."""
_FORM = "application/x-www-form-urlencoded"


def read_http(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Read an http tool, as keys of a native step; None after a report."""
    if "url" not in fields:
        if not {"url", "endpoint"} & node.entries.keys():
            reading.report.error("value", "an http tool needs `url`", node)
        return None
    method = str(fields.get("method", "GET")).upper()
    if method not in METHODS:
        hint = did_you_mean(method, METHODS, "methods")
        reading.report.error("value", f"`{shorten(method)}` is no method of HTTP", node.entries["method"][1], hint=hint)
        return None
    headers = headers_of(reading, fields)
    payload = fields.get("payload")
    is_form = any(name.lower() == "content-type" and _FORM in value for name, value in headers.items())
    as_text = isinstance(payload, str) and "{{" not in payload
    body = {"body" if as_text else "form" if is_form else "json": payload}
    own = {"url": fields["url"], "method": method, "headers": headers, "params": fields.get("params")}
    return {"http": Part(node, **own, **body, envelope=True, verify=fields.get("verify_ssl"))}


def headers_of(reading: NoetlReading, fields: dict[str, Any]) -> dict[str, str]:
    """Read the headers of a request, with the one of `auth`."""
    headers = {name: "" if value is None else str(value) for name, value in fields.get("headers", {}).items()}
    node: Node | None = fields.get("auth")
    if node is None or is_null(node):
        return headers
    name, value = _header_of_text(reading, node) if isinstance(node, Scalar) else _header_of_mapping(reading, node)
    if not name:
        return headers
    if any(other.lower() == name.lower() for other in headers):
        message = f"`auth` and `headers` both say `{shorten(name)}`"
        reading.report.error("conflict", message, node, hint="keep one of them")
    return {**headers, name: value}


def _header_of_text(reading: NoetlReading, node: Scalar) -> tuple[str, str]:
    """Build the header of a named credential, or of a token from the keychain."""
    value = filled_template(reading, node)
    if value is INVALID:
        return "", ""
    if "keychain" in names_in(value):
        return "Authorization", f"Bearer {value}"
    credential = read_known_text(reading, value, node)
    if not credential:
        return "", ""
    return "Authorization", f"Bearer {_template_of_secret(reading, credential, 'token', node)}"


def _header_of_mapping(reading: NoetlReading, node: Node) -> tuple[str, str]:
    """Build the header that a mapping describes; empty texts after a report."""
    fields = read_keys(reading, node, AUTH)
    if not isinstance(node, Mapping) or ("type" in node.entries and "type" not in fields):
        return "", ""
    kind = fields.get("type", "bearer")
    wanted = PARTS[kind]
    known = {*wanted, "type", "name", *(["header"] if kind == "api_key" else [])}
    refuse_keys(reading, node, fields.keys() - known, f"means nothing for `type: {kind}`")
    credential = ""
    if "name" in fields:
        place: Node = fields["name"]
        if not isinstance(place, Scalar):
            wrong(reading, place, "the name of a credential")
            return "", ""
        credential = read_known_text(reading, place.text, place)
    missing = [part for part in wanted if part not in fields]
    if "name" in fields and not missing:
        message = f"a credential gives nothing beside {' and '.join(f'`{part}`' for part in wanted)}"
        reading.report.error("conflict", message, fields["name"], hint="keep one of them")
    if missing and not credential:
        if "name" not in fields:
            message = f"`auth` of type `{kind}` needs {' and '.join(f'`{part}`' for part in missing)}, or `name`"
            reading.report.error("value", message, node)
        return "", ""
    parts = [fields.get(part) or _template_of_secret(reading, credential, part, node) for part in wanted]
    if kind == "api_key":
        return fields.get("header", "X-API-Key"), parts[0]
    if kind == "bearer":
        return "Authorization", f"Bearer {parts[0]}"
    username, password = (text_expression(part) for part in parts)
    if not username or not password:
        reading.report.error("template", "`username` and `password` are texts with `{{ … }}` and nothing else", node)
    return "Authorization", f"Basic {{{{ ({username} ~ ':' ~ {password}) | b64encode }}}}"


def _template_of_secret(reading: NoetlReading, credential: str, part: str, node: Node) -> str:
    """Build the template of one part of a credential, and add that part as a secret of the environment."""
    known = reading.keychain.get(credential, {})
    field = part if part in known or len(known) != 1 else next(iter(known))
    reading.add_secret(credential, field, node)
    return f"{{{{ keychain[{credential!r}][{field!r}] }}}}"
