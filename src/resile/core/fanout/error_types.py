"""The type of a failure by its meaning: what a person would look at, whatever words a program has for it.

    error_type(kind, exit_code, message)   `network`, `not_found`, …; where nothing says it: `exit:3`, or the kind

What is certain counts first: the kind, the exit codes of shells, the status of an HTTP response. Then the names of
exceptions and of the system's errors, and last the phrases that programs use.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from resile.model.failure import Kind

if TYPE_CHECKING:
    import re


class ErrorType(NamedTuple):
    """One meaning: its name, the phrases that say it, HTTP statuses, and what to do about it."""

    name: str
    phrases: str
    statuses: tuple[int, ...]
    suggestion: str


# The more certain ones first: `permission denied (publickey)` is about a key, `404 rate limit` about a limit.
ERROR_TYPES = (
    ErrorType(
        "rate_limit",
        r"rate.?limit|too many requests|throttl|quota exceeded|slow down",
        (429,),
        "Run fewer at once, or wait longer between retries.",
    ),
    ErrorType(
        "authentication",
        r"unauthori[sz]ed|authentication|invalid (?:api key|credentials|token|password)|permission denied \(publickey|"
        r"login failed|not logged in|token (?:has )?expired|could not read (?:username|password)",
        (401, 407),
        "Check the credentials: a token may be missing or expired.",
    ),
    ErrorType(
        "out_of_memory",
        r"out of memory|cannot allocate memory|memoryerror|enomem|heap out of|std::bad_alloc|oom.?kill",
        (),
        "Ask for more memory: resources.memory, or escalate.",
    ),
    ErrorType(
        "disk_full",
        r"no space left|disk quota|disk (?:is )?full|enospc|edquot|file too large",
        (507,),
        "Make room on the disk, or name another output folder.",
    ),
    ErrorType(
        "timeout",
        r"timed? ?-?out|deadline exceeded|etimedout|timeouterror|took too long",
        (408, 504),
        "Consider increasing timeout_per_agent",
    ),
    ErrorType(
        "permission",
        r"permission denied|access (?:is )?denied|not permitted|eacces|eperm\b|permissionerror|read-only file system|"
        r"forbidden",
        (403,),
        "Verify file permissions and access rights",
    ),
    ErrorType(
        "network",
        r"network|connection (?:was )?(?:refused|reset|closed|aborted|error)|connectionerror|could not resolve|"
        r"name resolution|unreachable|econn|no route to|broken pipe|failed to connect|\bdns\b|ssl|tls handshake",
        (502, 503),
        "Check network connectivity and retry settings",
    ),
    ErrorType(
        "syntax",
        r"syntax ?error|parse error|unexpected (?:token|end of (?:file|input)|eof)|unterminated|"
        r"invalid (?:json|yaml|xml)|jsondecodeerror|indentationerror",
        (),
        "Look at the place that the message names: the code or the data is malformed.",
    ),
    ErrorType(
        "not_found",
        r"command not found|no such file|not found|does not exist|enoent|filenotfounderror|modulenotfounderror|"
        r"no module named|cannot find",
        (404, 410),
        "Check that the command and its files are there.",
    ),
)
_BY_KIND = {Kind.TIMEOUT: "timeout", Kind.OOM: "out_of_memory"}
_BY_CODE = {126: "permission", 127: "not_found"}


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], tuple[re.Pattern[str], ...]]:
    """The patterns of a status, of an exit code, and of the phrases, compiled with the first failure."""
    import re

    return (
        re.compile(r"\bHTTP(?:/[0-9.]+)?(?: (?:status|error))?:? ([1-5][0-9]{2})\b", re.IGNORECASE),
        re.compile(r"exit code ([0-9]+)"),
        tuple(re.compile(one.phrases, re.IGNORECASE) for one in ERROR_TYPES),
    )


def error_type(kind: str, exit_code: int | None, message: str) -> str:
    """The meaning of a failure; where nothing says it, its kind, with its exit code."""
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    status, code, phrases = _patterns()
    found = status.search(message)
    if found is not None:
        named = next((one.name for one in ERROR_TYPES if int(found[1]) in one.statuses), "")
        if named:
            return named
    for one, phrase in zip(ERROR_TYPES, phrases, strict=True):
        if phrase.search(message):
            return one.name
    if kind != Kind.EXIT:
        return kind
    if exit_code is None and (said := code.match(message)):
        exit_code = int(said[1])
    return _BY_CODE.get(exit_code or 0, kind if exit_code is None else f"{kind}:{exit_code}")


def suggestion_for(name: str) -> str:
    """What to do about failures of a type; empty if nothing is known."""
    return next((one.suggestion for one in ERROR_TYPES if one.name == name), "")
