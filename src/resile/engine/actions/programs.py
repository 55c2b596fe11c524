"""What an `http` or `python` step hands to its program: its settings with every value in place, as JSON.

    Http, Python --render--> RESILE_STEP in the environment of  python -I executors/programs/X_step.py

A value is put where it stands as data only: percent-encoded in a url, without line breaks in a header, as a JSON
value in a body or an input. What can't be put there fails the attempt before anything runs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from resile.engine.evaluation.templates import Templated, render_text
from resile.languages.references import MISSING, ValueRefused, is_one_reference, text_of
from resile.model.limits import PROGRAM_BYTES_MAX

if TYPE_CHECKING:
    from resile.languages.references import Lookup
    from resile.model.workflow import Http, Python

VARIABLE = b"RESILE_STEP"
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "executors", "programs")
_LEFT_IN_URLS = "%/:?#[]@!$&'()*+,;=~"


def http_program(action: Http, lookup: Lookup) -> tuple[tuple[bytes, ...], bytes]:
    """The command of a request, and what it is told."""
    return step_command("http_step.py"), packed(http_settings(action, lookup))


def http_settings(action: Http, lookup: Lookup, instead: str = "") -> dict[str, Any]:
    """What a request is told, with every value in place; `instead` is another url than the one it names."""
    url = render_url(instead or action.url, lookup)
    headers = {name: _header(name, value, lookup) for name, value in action.headers.items()}
    body, kind = None, ""
    if action.json is not None:
        body, kind = _json_text(render_data(action.json, lookup)), "application/json"
    elif action.body is not None:
        body, kind = render_text(action.body, lookup), "text/plain; charset=utf-8"
    if kind and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = kind
    return {
        "url": url,
        "shown": _shown(action.url, url),
        "method": action.method,
        "headers": list(headers.items()),
        "body": body,
        "expect_status": action.expect_status,
    }


def python_program(action: Python, name: str, folder: str, lookup: Lookup) -> tuple[tuple[bytes, ...], bytes]:
    """The command of a piece of code, and what it is told; `folder` is where its file is looked for."""
    told = {
        "name": name,
        "source": action.source,
        "file": os.path.join(folder, action.file) if action.file else "",
        "inputs": render_data(action.inputs, lookup),
    }
    return step_command("python_step.py"), packed(told)


def render_data(data: Any, lookup: Lookup) -> Any:
    """Data with values in its texts; a text that is one reference becomes the value itself."""
    if isinstance(lookup, Templated):
        return lookup.data(data)
    if isinstance(data, dict):
        return {key: render_data(value, lookup) for key, value in data.items()}
    if isinstance(data, list):
        return [render_data(value, lookup) for value in data]
    if not isinstance(data, str) or not is_one_reference(data):
        return render_text(data, lookup) if isinstance(data, str) else data
    return _known(data, lookup)


def render_url(url: str, lookup: Lookup) -> str:
    """The url with values in it, none of which can change its server, leave its folder or add to its query."""
    import re
    from urllib.parse import quote

    from resile.languages.liquid.templates import is_one_output
    from resile.languages.references import WHOLE_URL

    if isinstance(lookup, Templated):
        text = lookup.url(url)
        if not re.fullmatch(WHOLE_URL, text) or (not is_one_output(url) and _dots(text) > _dots(url)):
            raise ValueRefused(f"`{url}` does not come to an http url in the folder that it names")
    elif is_one_reference(url):
        text = text_of(_known(url, lookup))
        if not re.fullmatch(WHOLE_URL, text):
            raise ValueRefused(f"the value of `{url}` is no http url without a password")
    else:
        text = render_text(
            url, lambda name: quote(text_of(_known(f"${{{name}}}", lookup)), "", "utf-8", "surrogateescape")
        )
        if _dots(text) > _dots(url):
            raise ValueRefused(f"a value in `{url}` is `.` or `..`, which would lead out of its folder")
    return quote(text, _LEFT_IN_URLS, "utf-8", "surrogateescape")


def _json_text(data: Any) -> str:
    """Data as JSON text, which has no word for what is not a number."""
    import json

    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ValueRefused("a number in `json` is not finite, which JSON can't say") from error


def _known(reference: str, lookup: Lookup) -> Any:
    """The value of a reference; here no shell can know it instead."""
    value = lookup(reference[2:-1])
    if value is MISSING:
        raise ValueRefused(f"nothing is known under `{reference}`")
    return value


def _dots(url: str) -> int:
    """How many parts of a path stand for a folder above or for itself."""
    parts = url.partition("?")[0].partition("#")[0].split("/")
    return sum(part in (".", "..") for part in parts)


def _shown(written: str, url: str) -> str:
    """How messages call a url: as written, so that they hold no value, and without its query."""
    from urllib.parse import urlsplit

    if is_one_reference(written):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}"
    return written.partition("?")[0].partition("#")[0]


def _header(name: str, written: str, lookup: Lookup) -> str:
    """The value of a header, which is one line."""
    value = render_text(written, lookup)
    if "\r" in value or "\n" in value:
        raise ValueRefused(f"the header `{name}` would hold a line break, which could begin another header")
    return value


def step_command(program: str) -> tuple[bytes, ...]:
    """The interpreter with one of the step programs; isolated, so that nothing around it is imported by accident."""
    return os.fsencode(sys.executable), b"-I", os.fsencode(os.path.join(_FOLDER, program))


def packed(told: dict[str, Any]) -> bytes:
    """The settings as one environment variable takes them: ASCII, bounded."""
    import json

    data = json.dumps(told).encode()
    if len(data) > PROGRAM_BYTES_MAX:
        hint = "hand large values over in a file"
        raise ValueRefused(f"the step with its values has {len(data)} bytes, at most {PROGRAM_BYTES_MAX}: {hint}")
    return data
