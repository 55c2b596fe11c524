"""One HTTP request, as the program of an `http` step.

    RESILE_STEP (JSON): url, shown, method, headers, body, expect_status; envelope, verify, save_to
    stdout: the body of the response; with `envelope`, JSON with the body as `data`, the status and the headers; with
        `save_to` the body is in that file, and stdout has its path
    stderr: the status, or the error, as its last line
    exit: 0 done, 7 no complete response, 22 an unexpected status, 23 the file can't be written

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
    from typing import Any, BinaryIO

SOCKET_SECONDS = 60.0
REDIRECTS_MAX = 10
PIECE_BYTES = 64 * 1024
EXIT_NO_ANSWER = 7
EXIT_STATUS = 22
EXIT_UNSAVED = 23
REDIRECTS = (301, 302, 303, 307, 308)
_OPENS = {"http": ("http", "https"), "https": ("https",)}
_OF_THE_BODY = ("content-type", "content-length", "content-encoding")


class Unsaved(Exception):
    """The file for the body can't be written."""


class Refused(Exception):
    """The server redirects to an address that is not followed."""


def main() -> int:
    """Make the request; return the exit code."""
    step: dict[str, Any] = json.loads(os.environ.pop("RESILE_STEP"))
    shown = step["shown"]
    try:
        answer = _answer(step)
        path = step.get("save_to", "") if _is_expected(answer, step) else ""
        if path:
            missing = _save_body(answer, path)
        else:
            missing = _print_envelope(answer, step) if step.get("envelope") else _copy_body(answer, sys.stdout.buffer)
    except Unsaved as problem:
        return _end(str(problem), EXIT_UNSAVED)
    except (OSError, HTTPException, Refused, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return _end(f"no answer from {shown}: {text}", EXIT_NO_ANSWER)
    if missing:
        return _end(f"the answer of {shown} broke off {missing} bytes before its end", EXIT_NO_ANSWER)
    status = f"HTTP {answer.status} {answer.reason}".rstrip()
    expected: list[int] = step["expect_status"]
    if not _is_expected(answer, step):
        wanted = f", expected {' or '.join(map(str, expected))}" if expected else ""
        return _end(f"{status} from {shown}{wanted}", EXIT_STATUS)
    return _end(status, 0)


def _is_expected(answer: HTTPResponse, step: dict[str, Any]) -> bool:
    """Is the status one that the step expects?"""
    expected: list[int] = step["expect_status"]
    return answer.status in expected if expected else answer.status < 400


def _save_body(answer: HTTPResponse, path: str) -> int:
    """Write the body to the file of the step, which appears whole or not at all; print its path."""
    folder, name = os.path.split(path)
    part = os.path.join(folder, f".{name}.part")
    try:
        os.makedirs(folder, exist_ok=True)
        file = open(part, "wb")  # noqa: SIM115
    except OSError as error:
        raise Unsaved(f"can't write {path}: {error.strerror}") from error
    with file:
        missing = _copy_body(answer, file)
        os.fsync(file.fileno())
    if missing:
        os.unlink(part)
        return missing
    os.replace(part, path)
    print(path)
    return 0


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
    """Write the response as JSON; return the number of announced bytes that are missing."""
    data = answer.read()
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


def _copy_body(answer: HTTPResponse, file: BinaryIO) -> int:
    """Write the body to a file; return the number of announced bytes that are missing."""
    while piece := answer.read(PIECE_BYTES):
        file.write(piece)
    file.flush()
    # read(n) does not notice that the connection ended early, only this count does.
    return answer.length or 0


if __name__ == "__main__":
    sys.exit(main())
