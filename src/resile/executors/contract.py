"""What the engine asks of an executor, and what the executor reports.

    engine --start/kill/acknowledge/read_output--> executor --Started/Ended/Returned/Withdrawn/Lost--> engine

Reports are fenced by (job, attempt). An executor keeps a report until it is acknowledged, so that an engine
that dies between receiving and recording it loses nothing. Local attempts outlive the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from resile.model.failure import LogRange

if TYPE_CHECKING:
    from resile.executors.functions.calls import Call

Stream = Literal["out", "err"]


class Launch(Struct, frozen=True, gc=False):
    """One attempt, ready to run: bytes, because text from outside need not be valid UTF-8.

    `env` is added to the environment that the executor was opened with. `argv` is executed as it stands;
    where `argv[0]` can't be executed and `fallback` is given, `fallback` is executed instead. Where there is a `call`,
    a Python function is called instead of any command, by a thread of the engine's process or by a worker process.

    What comes `after` other attempts starts when all of them have ended by themselves with exit 0; when one of them
    ends in another way, or nothing is known of it any more, this one is withdrawn.
    """

    job: int
    attempt: int
    argv: tuple[bytes, ...]
    env: tuple[tuple[bytes, bytes], ...] = ()
    cwd: bytes = b""
    timeout_seconds: float = 0.0
    grace_seconds: float = 10.0
    fallback: tuple[bytes, ...] = ()
    call: Call | None = None
    threads: bool = False
    after: tuple[tuple[int, int], ...] = ()


class Started(Struct, frozen=True, gc=False):
    """An attempt runs; `log` says where its output begins, its lengths are not known yet."""

    job: int
    attempt: int
    at: float
    pid: int
    log: LogRange


class Ended(Struct, frozen=True, gc=False):
    """An attempt is over. `wait_status` is what wait4 gave; `spawn_error` an errno where nothing could be started.

    `reason` says why the executor terminated it: "" (it did not), "timeout", "killed" (by `kill`). `spawn_stage` says
    what went wrong with `spawn_error`: "cwd" (its directory), "exec" (its program), "output" (its output could not be
    written). `oom_kills` counts kills for want of memory that may explain a SIGKILL. `pid` is given where the start
    was not reported: such a report stands for both.
    """

    job: int
    attempt: int
    started_at: float
    at: float
    wait_status: int
    cpu_seconds: float
    rss_bytes_max: int
    log: LogRange
    reason: str = ""
    spawn_error: int = 0
    spawn_stage: str = ""
    oom_kills: int = 0
    pid: int = 0


class Returned(Struct, frozen=True, gc=False):
    """A call of a function is over: `value` is JSON (empty: None), or `kind` says how it failed.

    `types` are the names of the exception's type and of those above it. Its `traceback` is here where it is not in the
    log. `pid` is as in `Ended`.
    """

    job: int
    attempt: int
    started_at: float
    at: float
    value: bytes
    kind: str
    message: str
    types: tuple[str, ...]
    traceback: str
    exit_code: int
    cpu_seconds: float
    rss_bytes_max: int
    log: LogRange
    pid: int = 0


class Withdrawn(Struct, frozen=True, gc=False):
    """An attempt never starts (after `kill` or `drain` of a queued one, or a `find` that knows nothing of it)."""

    job: int
    attempt: int
    at: float


class Lost(Struct, frozen=True, gc=False):
    """An attempt had started, and how it ended is unknown."""

    job: int
    attempt: int
    at: float
    why: str


class Adopted(Struct, frozen=True, gc=False):
    """The answer to `find` for an attempt that still runs; `at` is when it started."""

    job: int
    attempt: int
    at: float
    pid: int
    log: LogRange


Report = Started | Ended | Returned | Withdrawn | Lost | Adopted


def output_size(log: LogRange | None, stream: Stream) -> int:
    """How many bytes an attempt that is over wrote to a stream."""
    if log is None:
        return 0
    return log.out_length if stream == "out" else log.err_length


class OutputReader(Protocol):
    """Reads what the attempts of one epoch of a run wrote, by their log ranges; any thread may call it."""

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        """At most `length` bytes of a stream from `start` on, where a negative `start` counts from the end.

        The attempt is over. Empty where it has no log, and where its output is gone.
        """

    def follow_output(self, log: LogRange, stream: Stream, start: int, length: int, *, job: int, attempt: int) -> bytes:
        """The same of an attempt that may still run, whose log range has no lengths yet: what is there by now."""


class Executor(OutputReader, Protocol):
    """Starts, watches, kills and re-adopts attempts of one run, and keeps what they write."""

    def fileno(self) -> int:
        """Readable when reports wait."""

    def start(self, launches: Sequence[Launch]) -> None:
        """Queue attempts; each starts when one of the executor's slots is free, in order."""

    def kill(self, job: int, attempt: int) -> None:
        """SIGTERM, grace, SIGKILL to everything the attempt started; a queued one is withdrawn."""

    def find(self, attempts: Sequence[tuple[int, int]]) -> None:
        """After a resume: report what became of each of these (Adopted, Ended, Withdrawn or Lost).

        Ask for all attempts in doubt before the first `acknowledge`, which drops everything else.
        """

    def drain(self) -> None:
        """Start nothing more: withdraw everything queued; running attempts go on."""

    def reports(self) -> list[Report]:
        """Everything that happened since the last call; never blocks."""

    def queued_count(self) -> int:
        """How many attempts wait for a slot, as far as the executor knows."""

    def acknowledge(self) -> None:
        """Everything returned by `reports` so far is on disk."""

    def close(self) -> None:
        """Close the connection; attempts still running keep running."""
