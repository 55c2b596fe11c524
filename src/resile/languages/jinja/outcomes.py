"""The failure and the outcome of an attempt, as templates see them: `error`, `outcome.status`, `outcome.error`."""

from __future__ import annotations

import re
from typing import Any

from resile.model.failure import Failure, Kind

_HTTP = re.compile(r"HTTP ([1-5][0-9]{2})\b")
_TIMEOUT = re.compile(r"timed? ?out|deadline exceeded", re.IGNORECASE)
_CONNECTION = re.compile(
    r"connection (?:refused|reset|closed|aborted)|no answer from|unreachable|name resolution|not resolve|connect to",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
_BY_STATUS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}
RETRYABLE = ("connection", "timeout", "rate_limit", "server_error")


class ErrorText(str):
    """A failure as templates see it: a text, its message, with fields."""

    status: int | None
    kind: str
    message: str
    type: str
    exit_code: int | None
    retryable: bool


def error_of(failure: Failure) -> ErrorText:
    """The failure of an attempt, as `error`."""
    error = ErrorText(failure.message)
    found = _HTTP.search(failure.message)
    error.status = int(found[1]) if found is not None else None
    error.kind = kind_of(failure, error.status)
    error.message = failure.message
    named = _EXCEPTION.search(failure.message)
    error.type = named[0] if named is not None else error.kind
    error.exit_code = failure.exit_code
    error.retryable = error.kind in RETRYABLE
    return error


def kind_of(failure: Failure, status: int | None) -> str:
    """The kind of a failure, in the words of `retry_on`."""
    if status is not None:
        return _BY_STATUS.get(status, "server_error" if status >= 500 else "client_error")
    text = f"{failure.message}\n{failure.stderr}"
    if failure.kind == Kind.TIMEOUT or _TIMEOUT.search(text):
        return "timeout"
    return "connection" if _CONNECTION.search(text) else "unknown"


class Success(str):
    """The status of a successful outcome, which playbooks call `success` or `ok`."""

    def __eq__(self, other: object) -> bool:
        """Is the other text one of the two names?"""
        return other in ("success", "ok")

    def __hash__(self) -> int:
        """The hash of the first name."""
        return hash("success")


def outcome_of(status: int | None, result: Any, error: ErrorText | None) -> dict[str, Any]:
    """The fields of `outcome`."""
    known = {"result": result, "http": {"status": status}}
    return {**known, "status": Success("success")} if error is None else {**known, "status": "error", "error": error}
