"""The settings of the programs that run `http` and `python` steps, with every value in place.

A value is only ever data: percent-encoded in a URL, without line breaks in a header, a JSON value in a body or an
input. A value that is not allowed there raises ValueRefused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from resile.languages.contract import Program, render_data, render_text, render_url
from resile.languages.references import ValueRefused
from resile.model.workflow import Http, Python

if TYPE_CHECKING:
    from resile.languages.contract import Visible
    from resile.model.workflow import Query


def program_of(action: Http | Python | Query, name: str, folder: str, visible: Visible) -> Program:
    """The program of a step; `folder` contains the files of Python code."""
    if isinstance(action, Http):
        return Program("http", http_settings(action, visible))
    assert isinstance(action, Python)
    file = os.path.join(folder, action.file) if action.file else ""
    inputs = render_data(action.inputs, visible)
    return Program("python", {"name": name, "source": action.source, "file": file, "inputs": inputs}, may_use_file=True)


def http_settings(action: Http, visible: Visible, instead: str = "") -> dict[str, Any]:
    """The settings of a request; `instead` replaces the URL of the action."""
    url = render_url(instead or action.url, visible)
    headers = {name: _header(name, value, visible) for name, value in action.headers.items()}
    body, kind = None, ""
    if action.json is not None:
        body, kind = _json_text(render_data(action.json, visible)), "application/json"
    elif action.body is not None:
        body, kind = render_text(action.body, visible), "text/plain; charset=utf-8"
    if kind and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = kind
    return {
        "url": url,
        "shown": _url_in_messages(action.url, url),
        "method": action.method,
        "headers": list(headers.items()),
        "body": body,
        "expect_status": action.expect_status,
    }


def _json_text(data: Any) -> str:
    """Data as JSON text; raises ValueRefused for NaN and infinity."""
    import json

    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ValueRefused("a number in `json` is not finite, which JSON can't say") from error


def _url_in_messages(written: str, url: str) -> str:
    """The URL for messages: as in the file, so that it contains no value, and without its query."""
    from urllib.parse import urlsplit

    if written.startswith("${"):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}"
    return written.partition("?")[0].partition("#")[0]


def _header(name: str, written: str, visible: Visible) -> str:
    """The value of a header, which is one line."""
    value = render_text(written, visible)
    if "\r" in value or "\n" in value:
        raise ValueRefused(f"the header `{name}` would hold a line break, which could begin another header")
    return value
