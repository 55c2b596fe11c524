"""Sends requests to one server over one kept connection, and raises its refusals as errors of commands.

    problem document     ResileError with the same code, in hyphens, the same message and hint
    no answer            ResileError: server-unreachable, server-untrusted, server-timeout, bad-answer

If the server has closed the kept connection, the client sends the request again. That is safe, because each change
carries a key by which the server recognises a repetition.
"""

from __future__ import annotations

import http.client
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from resile.engine.env_files import TOKEN_VARIABLE
from resile.errors import Diagnostic, ResileError, WorkflowError

BASE = "/api/v1"
ANSWER_SECONDS_MAX = 60.0
# How long a follower waits for a server that does not answer, and how often it tries.
RECONNECT_SECONDS_MAX = 120.0
TRY_AGAIN_SECONDS_MIN, TRY_AGAIN_SECONDS_MAX = 0.1, 3.0
PAGE = 1000
ERROR_BYTES_MAX = 1024 * 1024
TOKEN_BYTES_MAX = 4096
T = TypeVar("T")
Query = Mapping[str, object]
_DROPPED = (http.client.BadStatusLine, http.client.CannotSendRequest, ConnectionError)


class Unreachable(ResileError):
    """The server does not answer; it may come back."""


class Finding(msgspec.Struct, frozen=True):
    """A finding in a workflow file, in a problem document."""

    file: str
    line: int
    column: int
    code: str
    message: str
    hint: str


class ProblemDocument(msgspec.Struct, frozen=True):
    """Why the server refused a request."""

    code: str
    detail: str = ""
    hint: str = ""
    errors: list[Finding] = []
    command_code: str = ""


class Items(msgspec.Struct, frozen=True):
    """One page of a list."""

    items: msgspec.Raw
    next_cursor: str | None


def token_in(path: str) -> str:
    """The secret in a file that has nothing else."""
    with open(path, "rb") as file:
        data = file.read(TOKEN_BYTES_MAX + 1)
    return _checked_token(data.decode("utf-8", "replace").strip(), path)


def token_of_environment() -> str:
    """The secret of the caller's environment; empty if there is none."""
    return _checked_token(os.environ.get(TOKEN_VARIABLE, "").strip(), f"${TOKEN_VARIABLE}", is_needed=False)


def _checked_token(text: str, source: str, *, is_needed: bool = True) -> str:
    """Return the secret; refuse one that a header can't carry."""
    is_one = text.isascii() and text.isprintable() and " " not in text and len(text) <= TOKEN_BYTES_MAX
    if not is_one or (is_needed and not text):
        raise ResileError("bad-token", f"{source} has no token: one word is expected", where=source)
    return text


class Connection:
    """A connection to one server, as one caller; threads take turns."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
            hint = "such as http://127.0.0.1:8700"
            raise ResileError("bad-server", f"{url!r} is not the address of a server", hint=hint)
        try:
            port = parts.port
        except ValueError as error:
            raise ResileError("bad-server", f"{url!r} has a port that is no number up to 65535") from error
        self._is_secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._path = parts.path + BASE
        self._token = token
        self._kept: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def get(self, path: str, kind: type[T], **query: object) -> T:
        """Read a document."""
        return self._decode(self._send("GET", path, query)[1], kind)

    def post(self, path: str, body: object, kind: type[T]) -> T:
        """Change something; the answer is a document."""
        return self._decode(self._send("POST", path, {}, body)[1], kind)

    def put(self, path: str, body: object, kind: type[T]) -> T:
        """Replace something."""
        return self._decode(self._send("PUT", path, {}, body)[1], kind)

    def delete(self, path: str, **query: object) -> None:
        """Delete something."""
        self._send("DELETE", path, query)

    def items(self, path: str, kind: type[T], limit: int | None = None, **query: object) -> Iterator[T]:
        """The items of a list, a page at a time; at most `limit`."""
        cursor: str | None = ""
        left = limit
        while cursor is not None and left != 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self.get(path, Items, **query, limit=size, cursor=cursor)
            found = self._decode(bytes(page.items), list[kind])  # type: ignore[valid-type]
            yield from found
            left = None if left is None else left - len(found)
            cursor = page.next_cursor

    def bytes_after(self, path: str, start: int, length: int, **query: object) -> bytes:
        """The bytes of a text from an offset on; empty if there are no more."""
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        status, data = self._send("GET", path, query, headers=wanted, accepted=(416,))
        return b"" if status == 416 else data[start:] if status == 200 else data

    @contextmanager
    def lines(self, path: str, headers: Mapping[str, str], **query: object) -> Iterator[Iterator[bytes]]:
        """The lines of a stream as they come, on a connection of its own."""
        connection = self._connect()
        try:
            with self._explain_silence():
                connection.request("GET", self._target(path, query), headers={**self._headers(), **headers})
                response = connection.getresponse()
                if response.status != 200:
                    raise self._refusal(response.status, response.read(ERROR_BYTES_MAX))
            yield self._each_line(response)
        finally:
            connection.close()

    def _each_line(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """The lines of a response, until it ends."""
        while True:
            with self._explain_silence():
                line = response.readline()
            if not line:
                return
            yield line

    def patiently(self, request: Callable[[], T]) -> T:
        """The result of a request; while the server does not answer, the request is repeated."""
        pause, deadline = TRY_AGAIN_SECONDS_MIN, time.monotonic() + RECONNECT_SECONDS_MAX
        while True:
            try:
                return request()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, TRY_AGAIN_SECONDS_MAX)

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: object = None,
        headers: Mapping[str, str] = {},
        accepted: Sequence[int] = (),
    ) -> tuple[int, bytes]:
        """Send a request, again if the kept connection was closed; return the status and the body of the answer."""
        given = {**self._headers(), **headers}
        data = None
        if method != "GET":
            given["Idempotency-Key"] = os.urandom(16).hex()
        if body is not None:
            given["Content-Type"] = "application/json"
            data = msgspec.json.encode(body)
        target = self._target(path, query)
        with self._lock, self._explain_silence():
            if self._kept is not None:
                try:
                    status, answer = self._exchange(self._kept, method, target, data, given)
                except _DROPPED:
                    self.close()
            if self._kept is None:
                self._kept = self._connect()
                status, answer = self._exchange(self._kept, method, target, data, given)
        if status >= 300 and status not in accepted:
            raise self._refusal(status, answer)
        return status, answer

    @staticmethod
    def _exchange(
        connection: http.client.HTTPConnection, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=ANSWER_SECONDS_MAX)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _target(self, path: str, query: Query) -> str:
        pairs = [(name, _text(value)) for name, given in query.items() for value in _each(given)]
        return self._path + path + (f"?{urlencode(pairs)}" if pairs else "")

    @contextmanager
    def _explain_silence(self) -> Iterator[None]:
        """Raise an error that says what to do about a server that does not answer."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            message = f"the server at {self.url} has not answered within {ANSWER_SECONDS_MAX:.0f} seconds"
            raise Unreachable("server-timeout", message, hint="its log says what it does") from error
        except ssl.SSLCertVerificationError as error:
            self.close()
            message = f"the certificate of {self.url} is not trusted: {error.verify_message}"
            hint = "SSL_CERT_FILE names a file with a certificate to trust"
            raise ResileError("server-untrusted", message, hint=hint) from error
        except OSError as error:
            self.close()
            why = error.strerror or str(error) or type(error).__name__
            hint = "`resile server` starts one; --server or RESILE_SERVER names its address"
            raise Unreachable("server-unreachable", f"no server answers at {self.url}: {why}", hint=hint) from error
        except http.client.HTTPException as error:
            self.close()
            raise self._bad_answer() from error

    def _decode(self, data: bytes, kind: type[T]) -> T:
        """The document in the body of an answer."""
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise self._bad_answer() from error

    def _bad_answer(self) -> ResileError:
        hint = "is it a server of Resile, and of this version? `resile version` shows yours"
        return ResileError("bad-answer", f"{self.url} answers what this version does not understand", hint=hint)

    def _refusal(self, status: int, data: bytes) -> ResileError:
        """The ResileError for a problem document."""
        try:
            problem = msgspec.json.decode(data, type=ProblemDocument)
        except msgspec.DecodeError:
            return self._bad_answer()
        code, hint = problem.command_code or problem.code.replace("_", "-"), problem.hint
        if status == 503 and code == "stopping":
            return Unreachable(code, problem.detail, hint=hint)
        if status == 401:
            hint = f"{TOKEN_VARIABLE} has your token, or --token-file names a file that has it"
        elif status == 403:
            hint = hint or "`resile token create NAME --role ROLE` on the server's machine makes another token"
        if problem.errors:
            found = [Diagnostic(severity="error", **msgspec.structs.asdict(one)) for one in problem.errors]
            return WorkflowError(found[0].code, problem.detail, where=found[0].where, hint=hint, diagnostics=found)
        return ResileError(code, problem.detail, hint=hint)


def _each(value: object) -> Sequence[object]:
    """The values of a parameter as a list; empty if the parameter is not given."""
    if isinstance(value, list | tuple):
        return value
    return () if value in (None, "", 0, False) else (value,)


def _text(value: object) -> Any:
    return "true" if value is True else value
