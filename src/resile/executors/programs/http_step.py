"""One HTTP request, as the program of an `http` step.

    RESILE_STEP (JSON): url, shown, method, headers, body, expect_status; envelope, verify
    stdout: the body of the response; with `envelope`, JSON with the body as `data`, the status and the headers
    stderr: the status, or the error, as its last line
    exit: 0 done, 7 no complete response, 22 an unexpected status

All settings come in one environment variable because other users can see arguments and files, and headers contain
secrets. For the same reason messages show the URL as in the workflow file (`shown`), without values and query.
"""

from __future__ import annotations

import json
import os
import sys
from http.client import HTTPException, HTTPResponse
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOCKET_SECONDS = 60.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
REDIRECTS_MAX = 10
PIECE_BYTES = 64 * 1024
EXIT_NO_ANSWER = 7
EXIT_STATUS = 22
REDIRECTS = (301, 302, 303, 307, 308)
_OPENS = {"http": ("http", "https"), "https": ("https",)}
_OF_THE_BODY = ("content-type", "content-length", "content-encoding")


class Refused(Exception):
    """The server redirects to an address that is not followed."""


def main() -> int:
    """Make the request; return the exit code."""
    step: dict[str, Any] = json.loads(os.environ.pop("RESILE_STEP"))
    shown = step["shown"]
    try:
        answer = _answer(step)
        missing = _print_envelope(answer, step) if step.get("envelope") else _print_body(answer)
    except (OSError, HTTPException, Refused, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return _end(f"no answer from {shown}: {text}", EXIT_NO_ANSWER)
    if missing:
        return _end(f"the answer of {shown} broke off {missing} bytes before its end", EXIT_NO_ANSWER)
    status = f"HTTP {answer.status} {answer.reason}".rstrip()
    expected: list[int] = step["expect_status"]
    if expected and answer.status not in expected:
        return _end(f"{status} from {shown}, expected {' or '.join(map(str, expected))}", EXIT_STATUS)
    if not expected and answer.status >= 400:
        return _end(f"{status} from {shown}", EXIT_STATUS)
    return _end(status, 0)


def _end(message: str, code: int) -> int:
    line = "".join(character if character.isprintable() else " " for character in message)
    sys.stderr.buffer.write(line.encode("utf-8", "replace") + b"\n")
    return code


def _answer(step: dict[str, Any]) -> HTTPResponse:
    """The response at the end of the redirects; an expected redirect is not followed."""
    # Only these handlers: the usual opener would also read files and talk FTP.
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler(context=_tls_context(step.get("verify", True)))):
        opener.add_handler(handler)
    url, method, body = step["url"], step["method"], step["body"]
    headers = {name: value.encode("utf-8", "surrogateescape").decode("latin-1") for name, value in step["headers"]}
    for _ in range(REDIRECTS_MAX + 1):
        data = None if body is None else body.encode("utf-8", "surrogateescape")
        answer: HTTPResponse = opener.open(Request(url, data, headers, method=method), timeout=SOCKET_SECONDS)
        place = answer.headers.get("Location")
        if answer.status not in REDIRECTS or answer.status in step["expect_status"] or not place:
            return answer
        answer.close()
        before, url = url, urljoin(url, place)
        headers = _headers_for(before, url, headers)
        if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
            method, body = "HEAD" if method == "HEAD" else "GET", None
            headers = {name: value for name, value in headers.items() if name.lower() not in _OF_THE_BODY}
    raise Refused(f"more than {REDIRECTS_MAX} redirects")


def _tls_context(verify: bool) -> Any:
    """The TLS context: it verifies certificates, unless the step turns that off."""
    if verify:
        return None
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _headers_for(before: str, after: str, headers: dict[str, str]) -> dict[str, str]:
    """The headers of a redirected request: none for another server, because they may contain credentials."""
    old, new = urlsplit(before), urlsplit(after)
    if new.scheme not in _OPENS[old.scheme]:
        raise Refused(f"a redirect from {old.scheme} to {new.scheme or 'nothing'} is not followed")
    if (old.scheme, old.netloc) == (new.scheme, new.netloc):
        return headers
    return {name: value for name, value in headers.items() if name.lower() == "content-type"}


def _print_envelope(answer: HTTPResponse, step: dict[str, Any]) -> int:
    """Write the response as JSON, up to its limit; return the number of announced bytes that are missing."""
    data = answer.read(ANSWER_BYTES_MAX + 1)
    if len(data) > ANSWER_BYTES_MAX:
        raise Refused(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    text = data.decode("utf-8", "surrogateescape")
    try:
        body = json.loads(text) if text.strip() else None
    except ValueError:
        body = text
    envelope = {
        "status": answer.status,
        "status_code": answer.status,
        "url": step["url"].partition("?")[0],
        "headers": {name.lower(): value for name, value in answer.headers.items()},
        "data": body,
    }
    sys.stdout.buffer.write(json.dumps(envelope).encode() + b"\n")
    sys.stdout.buffer.flush()
    return answer.length or 0


def _print_body(answer: HTTPResponse) -> int:
    """Write the body to stdout, up to its limit; return the number of announced bytes that are missing."""
    left = ANSWER_BYTES_MAX
    while piece := answer.read(min(PIECE_BYTES, left + 1)):
        sys.stdout.buffer.write(piece[:left])
        left -= len(piece)
        if left < 0:
            _end(f"the answer is longer than {ANSWER_BYTES_MAX} bytes: the rest is left out", 0)
            return 0
    sys.stdout.buffer.flush()
    # read(n) does not notice that the connection ended early, only this count does.
    return answer.length or 0


if __name__ == "__main__":
    sys.exit(main())
