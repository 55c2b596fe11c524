"""The documents that only clients of a server need, to print what a command on the database prints."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.model.failure import Failure


class JobFailure(Struct, frozen=True):
    """The last failure of a job, with the end of what it printed."""

    job: int
    failure: Failure


class JobFailures(Struct, frozen=True):
    """The last failures of some jobs."""

    failures: list[JobFailure]


class LetterCounts(Struct, frozen=True):
    """How many dead letters a selection has, and how many the run has; `maps` are those of the selection."""

    count: int
    total: int
    maps: list[str]


class LogAttempt(Struct, frozen=True):
    """An attempt that has output; the sizes of its streams are known once it is over."""

    job: int
    name: str
    attempt: int
    is_over: bool
    out_bytes: int
    err_bytes: int


class LogIndex(Struct, frozen=True):
    """The attempts whose output is wanted, in the order of the jobs; is the run still being driven?"""

    is_driven: bool
    attempts: list[LogAttempt]


class LogFileAttempt(Struct, frozen=True):
    """An attempt that has ended; `begin` is how the names of its log files begin that are named by the step."""

    job: int
    epoch: int
    attempt: int
    step: str
    begin: str
    out_bytes: int
    err_bytes: int


class RunLog(Struct, frozen=True):
    """A part of a run's log, for a program of the same version that folds it.

    `definition` is there where the part begins with the first entry. `left` is the status in which the engine left the
    run; null while it goes on, or while more entries are there. An input whose name looks like that of a secret is
    `***`.
    """

    definition: str
    entries: list[dict[str, Any]]
    left: str | None
