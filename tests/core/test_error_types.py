"""Types of errors go by what a failure means, whatever words a program has for it."""

from __future__ import annotations

import pytest

from resile.core.fanout.error_types import ERROR_TYPES, error_type, suggestion_for


@pytest.mark.parametrize(
    ("kind", "code", "message", "expected"),
    [
        ("timeout", 143, "timed out after 30s", "timeout"),
        ("exit", 1, "exit code 1: curl: (28) Operation timed out", "timeout"),
        ("exit", 22, "exit code 22: HTTP 504 Gateway Timeout from http://h/", "timeout"),
        ("oom", 137, "out of memory (killed by the kernel)", "out_of_memory"),
        ("exit", 1, "exit code 1: MemoryError", "out_of_memory"),
        ("exit", 134, "exit code 134: FATAL ERROR: JavaScript heap out of memory", "out_of_memory"),
        ("exit", 1, "exit code 1: cat: f: Permission denied", "permission"),
        ("exit", 126, "exit code 126", "permission"),
        ("exit", 22, "exit code 22: HTTP 403 Forbidden from http://h/", "permission"),
        ("exit", 128, "exit code 128: git@host: Permission denied (publickey).", "authentication"),
        ("exit", 22, "exit code 22: HTTP 401 Unauthorized from http://h/", "authentication"),
        ("exit", 22, "exit code 22: HTTP 429 Too Many Requests from http://h/", "rate_limit"),
        ("exit", 1, "exit code 1: ThrottlingException: Rate exceeded", "rate_limit"),
        ("exit", 7, "exit code 7: no answer from http://h/: Connection refused", "network"),
        ("exit", 1, "exit code 1: socket.gaierror: Temporary failure in name resolution", "network"),
        ("exit", 22, "exit code 22: HTTP 503 Service Unavailable from http://h/", "network"),
        ("exit", 127, "exit code 127", "not_found"),
        ("exit", 1, "exit code 1: ModuleNotFoundError: No module named 'x'", "not_found"),
        ("exit", 22, "exit code 22: HTTP 404 Not Found from http://h/", "not_found"),
        ("exit", 1, "exit code 1: dd: error writing 'f': No space left on device", "disk_full"),
        ("exit", 2, "exit code 2: sh: 1: Syntax error: end of file unexpected", "syntax"),
        ("exit", 1, "exit code 1: json.decoder.JSONDecodeError: Expecting value", "syntax"),
        ("exit", 3, "exit code 3: it broke", "exit:3"),
        ("exit", None, "exit code 4", "exit:4"),
        ("signal", 139, "killed by SIGSEGV", "signal"),
        ("contract", None, "the output is no number", "contract"),
    ],
)
def test_meanings(kind: str, code: int | None, message: str, expected: str) -> None:
    """Kinds, exit codes, statuses and phrases come to the same nine types; what none of them says keeps its kind."""
    assert error_type(kind, code, message) == expected


def test_statuses_have_a_meaning_without_words() -> None:
    """These statuses of HTTP say what happened, and no other does."""
    found = {status: error_type("exit", 22, f"HTTP {status}") for status in range(100, 600)}
    assert {status: name for status, name in found.items() if name != "exit:22"} == {
        401: "authentication",
        403: "permission",
        404: "not_found",
        407: "authentication",
        408: "timeout",
        410: "not_found",
        429: "rate_limit",
        502: "network",
        503: "network",
        504: "timeout",
        507: "disk_full",
    }


def test_every_type_has_a_suggestion() -> None:
    """Each says what to do; anything else has none of its own."""
    assert all(suggestion_for(one.name) for one in ERROR_TYPES)
    assert suggestion_for("exit:3") == ""
