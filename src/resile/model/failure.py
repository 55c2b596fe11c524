"""What an attempt came to: its outcome, and the failure that climbs the ladder when it went wrong."""

from typing import Any, Literal

from msgspec import Struct

FailureKind = Literal["exit", "signal", "timeout", "oom", "lost", "spawn", "check", "contract", "canceled"]


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """What one attempt used, as the kernel counted it."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_bytes_max: int = 0


class LogRange(Struct, frozen=True, array_like=True, gc=False):
    """Where an attempt's output lies: a byte range in each of its slot's two segment files.

    `segment` is the path of the segment without its ending (`.o`, `.e`), relative to the run's output folder.
    """

    segment: str
    out_offset: int = 0
    out_length: int = 0
    err_offset: int = 0
    err_length: int = 0


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why an attempt failed, with the evidence that rules match on and people read.

    `types` are those of an exception that a function raised, the most special first.
    """

    kind: FailureKind
    message: str
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    signature: str = ""
    types: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of one attempt; `failure` is absent when it succeeded.

    `memory` are the namespaces of the run's memory that it wrote, `remarks` what the log is to say of it.
    """

    exit_code: int | None = None
    failure: Failure | None = None
    usage: Usage = Usage()
    log: LogRange | None = None
    values: dict[str, Any] = {}
    memory: dict[str, dict[str, Any]] = {}
    remarks: tuple[str, ...] = ()
