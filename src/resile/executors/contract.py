"""The contract of executors: the engine's calls and the executor's reports.

    engine --start/kill/acknowledge/read_output--> executor --Started/Ended/Returned/Withdrawn/Lost--> engine

Every report names its job and attempt. An executor keeps a report until the engine acknowledges it, so that an engine
that dies between receiving and recording it loses nothing. Local attempts outlive the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from resile.model.failure import LogRange

if TYPE_CHECKING:
    from resile.core.actions import ScheduleNodes
    from resile.core.events import BlockEnded, BlockSubmitted, WorkerStarted
    from resile.executors.functions.calls import Call

Stream = Literal["out", "err"]
STREAMS: tuple[Stream, ...] = ("out", "err")
Records = Literal["here", "former", "none"]


class Share(Struct, frozen=True, gc=False):
    """The resources that an attempt takes in its place, besides a slot; on each of its `nodes`, if it has several."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    nodes: int = 1


# More than any machine has: an attempt with this limit is measured, and never ended for its memory.
MEASURED = 1 << 60


class Launch(Struct, frozen=True, gc=False):
    """One attempt, ready to run: bytes, because text from outside need not be valid UTF-8.

    The executor adds `env` to the environment that it was opened with. It executes `argv` without a shell; if it can't
    execute `argv[0]`, it executes `fallback`, if there is one. If there is a `call`, a thread of the engine's process
    or a worker process calls a Python function instead.

    An attempt with `after` starts when all those attempts have ended by themselves with exit 0. If one of them ends in
    another way, or the executor no longer knows it, the executor withdraws the attempt.

    The executor ends an attempt whose processes together use more than `memory_bytes`; 0 is no limit. MEASURED is none
    either, but then the attempt's usage has the memory of all its processes together, not that of the largest one.

    If many runs share several places, the attempt goes to a place that has all its `labels` and room for its `share`.
    `step` names its step: an executor may expect attempts of one step to take similar times.
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
    memory_bytes: int = 0
    labels: tuple[str, ...] = ()
    share: Share = Share()
    step: str = ""


class Started(Struct, frozen=True, gc=False):
    """An attempt runs; `log` has the offsets at which its output begins, and no lengths yet."""

    job: int
    attempt: int
    at: float
    pid: int
    log: LogRange


class Ended(Struct, frozen=True, gc=False):
    """An attempt is over. `wait_status` comes from wait4; `spawn_error` is an errno if the start failed.

    `reason` says why the executor terminated it: "" (it did not), "timeout", "killed" (by `kill`), "oom" (it used
    more memory than it may). `spawn_stage` says what failed with `spawn_error`: "cwd" (its directory), "exec" (its
    program), "output" (its output could not be written). `oom_kills` counts out-of-memory kills that may explain a
    SIGKILL. `pid` is set if the start was not reported: this report then covers both. `io_bytes` counts the bytes that
    it read from and wrote to disks, if the executor knows that. `evidence` says in words why it ended, if the executor
    knows more than these numbers.
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
    io_bytes: int = 0
    evidence: str = ""


class Returned(Struct, frozen=True, gc=False):
    """A call of a function is over: `value` is JSON (empty: None), or `kind` says how it failed.

    `types` are the names of the exception's type and its base classes. `traceback` is set if the log does not have it.
    `pid` is as in `Ended`.
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
    """An attempt never starts: `kill` or `drain` hit it in the queue, or complete records show `find` no start of it.

    If it had `started`, it ended for a reason outside the step: its worker stopped, its nodes were preempted, or their
    time ended and it saved its work and ended with exit 0. `why` says more.
    """

    job: int
    attempt: int
    at: float
    started: bool = False
    why: str = ""


class Lost(Struct, frozen=True, gc=False):
    """An attempt had started, and how it ended is unknown; `log` is the known range of its output."""

    job: int
    attempt: int
    at: float
    why: str
    log: LogRange | None = None


class Adopted(Struct, frozen=True, gc=False):
    """The answer to `find` for an attempt that still runs; `at` is when it started."""

    job: int
    attempt: int
    at: float
    pid: int
    log: LogRange


Report = Started | Ended | Returned | Withdrawn | Lost | Adopted


def output_size(log: LogRange | None, stream: Stream) -> int:
    """The number of bytes that an ended attempt wrote to a stream."""
    if log is None:
        return 0
    return log.out_length if stream == "out" else log.err_length


class OutputLost(Exception):
    """A recorded range of output can't be read whole; `data` is the readable beginning."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


def readable_output(output: OutputReader, log: LogRange | None, stream: Stream, start: int) -> bytes:
    """Like `read_output`, for evidence: if output is lost, return the part that can be read."""
    try:
        return output.read_output(log, stream, start)
    except OutputLost as lost:
        return lost.data


class EndedOutputReader(Protocol):
    """Reads the output of attempts that have ended."""

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        """At most `length` bytes of an ended attempt's stream from `start` on; a negative `start` counts from the end.

        Empty if the attempt has no log. Raises OutputLost if these bytes are not all there.
        """


class OutputReader(EndedOutputReader, Protocol):
    """Reads the output of the attempts of one epoch, by their log ranges; any thread may call it."""

    def sync_output(self, logs: Iterable[LogRange]) -> None:
        """Flush the output of these attempts to the disk, each file once; raises OSError."""

    def follow_output(self, log: LogRange, stream: Stream, start: int, length: int, *, job: int, attempt: int) -> bytes:
        """Like `read_output` for an attempt that may still run, without lengths in its log range: the output so far."""


class Executor(OutputReader, Protocol):
    """Starts, watches, kills and re-adopts attempts of one run, and stores their output.

    `records` says which records of attempts the executor found when it was opened: some that were written in this boot
    of the machine (`here`), only those of another boot (`former`), or none (`none`). The executor keeps records until
    the engine calls `close` with `finished`.
    """

    records: Records

    def fileno(self) -> int:
        """The descriptor that becomes readable when reports wait."""

    def start(self, launches: Sequence[Launch]) -> None:
        """Queue attempts; each starts when one of the executor's slots is free, in order."""

    def kill(self, job: int, attempt: int) -> None:
        """Send SIGTERM, after the grace SIGKILL, to all processes of the attempt; withdraw it if it is queued."""

    def find(self, attempts: Mapping[tuple[int, int], bool]) -> None:
        """After a resume: report the state of each of these attempts (Adopted, Ended, Withdrawn or Lost).

        The value says whether the attempt is in doubt: it may have started without a record, so the executor never
        withdraws it. The engine must ask for all attempts in doubt before the first `acknowledge`, which drops the
        records of all others.
        """

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:
        """After a resume: does the executor lack the record of an end that an engine has recorded?

        Then the records were cut off, and prove nothing about attempts that they do not mention.
        """

    def drain(self) -> None:
        """Start nothing more: withdraw everything queued; running attempts go on."""

    def reports(self) -> list[Report]:
        """Everything that happened since the last call; never blocks."""

    def queued_count(self) -> int:
        """The number of attempts that wait for a slot, as far as the engine has read; 0: it has read all starts."""

    def acknowledge(self) -> None:
        """Note that the engine has recorded all reports returned so far; the executor may drop them."""

    def close(self, *, finished: bool = False) -> None:
        """Close the connection; running attempts go on. `finished` says that no attempt is open in the log."""


class Scheduling(Protocol):
    """Submits the blocks of nodes that the core orders; the executor's descriptor is readable when there is news."""

    def schedule(self, order: ScheduleNodes) -> None:
        """Submit this block to the batch system, unless the batch system has it already."""

    def take_news(self) -> list[BlockSubmitted | WorkerStarted | BlockEnded]:
        """The events of blocks since the last call."""
