"""HTTP calls from a worker to its server, over one connection that stays open; one thread uses it."""

from __future__ import annotations

import http.client
import ssl
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from resile.errors import ResileError

BASE = "/api/v1"
ANSWER_BYTES_MAX = 256 * 2**20
T = TypeVar("T")


class Away(Exception):
    """The server does not answer, or answers 429 or 5xx; the worker may repeat the call."""


class Unknown(Exception):
    """The server does not know this worker, because the server has restarted or dropped a worker that was silent."""


class Refused(ResileError):
    """The server refuses the worker, and would refuse the next call too."""


class Problem(msgspec.Struct):
    """The body of an error response, as far as a worker reads it."""

    detail: str = ""
    code: str = ""
    hint: str = ""


class Connection:
    """One connection to a server; the first call opens it."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ResileError("bad-call", f"--server {url!r} is no address", hint="such as http://127.0.0.1:8700")
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + BASE
        self._is_encrypted = parts.scheme == "https"
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: Any, kind: type[T], timeout_seconds: float) -> T:
        """Send a message; return the server's answer. Raises Away, Unknown or Refused."""
        data = msgspec.json.encode(body)
        try:
            connection = self._open(timeout_seconds)
            connection.request("POST", self._path + path, data, self._headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Away(str(error) or type(error).__name__) from error
        if response.status < 300:
            return msgspec.json.decode(content, type=kind)
        raise self._problem(response.status, content)

    def _problem(self, status: int, content: bytes) -> Exception:
        """The exception for an error response."""
        try:
            problem = msgspec.json.decode(content, type=Problem)
        except msgspec.MsgspecError:
            problem = Problem()
        if status >= 500 or status == 429:
            return Away(problem.detail or f"status {status}")
        if problem.code == "no_such_worker":
            return Unknown()
        hint = (
            "a token with the role worker, from --token-file or RESILE_TOKEN" if status in (401, 403) else problem.hint
        )
        return Refused("refused", f"the server refuses: {problem.detail or status}", hint=hint)

    def _open(self, timeout_seconds: float) -> http.client.HTTPConnection:
        """The connection, with this timeout for the answer."""
        if self._connection is None:
            if self._is_encrypted:
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(self._host, self._port, context=context)
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port)
        self._connection.timeout = timeout_seconds
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_seconds)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
