"""The outcome of an attempt, and the failure that climbs the ladder."""

from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec import Struct

from resile.model.limits import LOST_RETRIES

FailureKind = Literal["exit", "signal", "timeout", "oom", "lost", "spawn", "check", "contract", "canceled"]

# The signature of a step that asks a person and waits for the answer.
QUESTION: Final = "question"


class Kind:
    """The kinds of failure by name: no other module spells them out."""

    EXIT: Final = "exit"
    SIGNAL: Final = "signal"
    TIMEOUT: Final = "timeout"
    OOM: Final = "oom"
    LOST: Final = "lost"
    SPAWN: Final = "spawn"
    CHECK: Final = "check"
    CONTRACT: Final = "contract"
    CANCELED: Final = "canceled"


class KindRow(NamedTuple):
    """The properties of a kind of failure.

    `wording` is the message where there is no other, `retries` the implicit retries of every step, `error_type` the
    name in exported dead letters. Rules can match the kind, and rehearsals simulate it, if `is_matched`; with
    `is_numbered` only together with a number. With `is_logical` the program worked, but its result is refused.
    """

    meaning: str
    wording: str = ""
    retries: int = 0
    error_type: str = ""
    is_matched: bool = True
    is_numbered: bool = False
    is_logical: bool = False


FAILURE_KINDS: dict[str, KindRow] = {
    Kind.EXIT: KindRow("The program ended with an exit code other than 0.", is_numbered=True),
    Kind.SIGNAL: KindRow("A signal ended the program.", is_numbered=True),
    Kind.TIMEOUT: KindRow("It took longer than its time limit.", "timed out", error_type="Timeout"),
    Kind.OOM: KindRow(
        "Memory ran out: the kernel killed it, or it used more than its `resources.memory`.",
        "out of memory (killed by the kernel)",
        error_type="ResourceExhausted",
    ),
    Kind.LOST: KindRow("Its outcome is unknown: its executor or machine stopped.", retries=LOST_RETRIES),
    Kind.SPAWN: KindRow("The program could not be started."),
    Kind.CHECK: KindRow("A check of the step failed.", error_type="ValidationFailed", is_logical=True),
    Kind.CONTRACT: KindRow(
        "A value or an output is not what the step promised.", error_type="ValidationFailed", is_logical=True
    ),
    Kind.CANCELED: KindRow("A cancel ended it.", "ended on request", is_matched=False),
}
MATCHED_KINDS: tuple[FailureKind, ...] = tuple(kind for kind in get_args(FailureKind) if FAILURE_KINDS[kind].is_matched)


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """Resources that one attempt used, as the kernel measured them; `io_bytes` were read from and written to disk."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_bytes_max: int = 0
    io_bytes: int = 0


class LogRange(Struct, frozen=True, array_like=True, gc=False):
    """The position of an attempt's output: a byte range in each of its slot's two segment files.

    `segment` is the path of the segment without its ending (`.o`, `.e`), relative to the run's output folder.
    """

    segment: str
    out_offset: int = 0
    out_length: int = 0
    err_offset: int = 0
    err_length: int = 0


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why an attempt failed, with the evidence that rules match and users read.

    `types` are the class and the bases of an exception that a function raised, most specific first.
    """

    kind: FailureKind
    message: str
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    signature: str = ""
    types: tuple[str, ...] = ()


def output_lost(step: str) -> str:
    """The message about a step whose output is needed and gone."""
    return f"the output of {step!r} is lost"


def contract_failure(message: str, broken: str, exit_code: int | None = None) -> Failure:
    """A `contract` failure; `broken` names the broken promise in its signature."""
    return Failure(Kind.CONTRACT, message, exit_code, signature=f"{Kind.CONTRACT}: {broken}")


class Growth(Struct, frozen=True, array_like=True, gc=False):
    """New entries of the list or mapping under a path; the first `start` entries are as they were before."""

    path: tuple[str, ...]
    start: int
    entries: list[Any] | dict[str, Any]


class Fingerprint(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the results of an attempt depend on beyond its definition, as it was when the attempt ran.

    `reads` has the SHA-256 of each file or folder by its path: empty where it was missing, `CHANGING` where it changed
    while the attempt ran. `outputs` are the paths of its output files, where the definition alone does not tell them.
    `env` is the SHA-256 of the variables that its texts name, without secrets. `helpers` are the steps that ran for it,
    each with its own `env`.
    """

    reads: dict[str, str] = {}
    outputs: tuple[str, ...] = ()
    env: str = ""
    helpers: dict[str, str] = {}


CHANGING: Final = "changing"


class Outcome(Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of one attempt; `failure` is None for a success.

    `memory` holds the namespaces of the run's memory that the attempt wrote, `remarks` are texts for the log.
    `output_lost`: what it printed could not be kept whole, so it has no captured values. `kept` is the stored scope of
    a child workflow that this attempt goes on with. `values_grown` and `memory_grown` are what lists and mappings in
    `values` and `memory` grew by that are left out there.
    """

    exit_code: int | None = None
    failure: Failure | None = None
    usage: Usage = Usage()
    log: LogRange | None = None
    values: dict[str, Any] = {}
    memory: dict[str, dict[str, Any]] = {}
    remarks: tuple[str, ...] = ()
    output_lost: bool = False
    kept: dict[str, Any] | None = None
    values_grown: tuple[Growth, ...] = ()
    memory_grown: tuple[Growth, ...] = ()
