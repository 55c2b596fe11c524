"""Requests of a playbook: an http tool becomes a native `http` step."""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping
from resile.dialects.native.nodes import Part
from resile.dialects.noetl.tools.credentials import headers_of
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.errors import shorten

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
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
