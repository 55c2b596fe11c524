"""The documents of all commands but those that print runs, events or dead letters."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from resile.commands.documents.base import Document
from resile.commands.documents.runs import Event, MapMetrics, Route
from resile.errors import Diagnostic
from resile.explain.rule_reference import RuleReference
from resile.model.failure import Failure


class SubmittedRun(Document, frozen=True, kw_only=True):
    """The run that `submit` handed to the servers of the database."""

    run: int
    status: str


class CancelResult(Document, frozen=True, kw_only=True):
    """The status after `cancel`; `requested` says that the run's engine was asked to cancel it."""

    run: int
    status: str
    requested: bool


class AllocationEntry(Struct, frozen=True):
    """One allocation of Slurm: how many attempts have ended in it, and how long it may last yet."""

    id: str
    name: str
    run: int
    state: str
    node: str
    jobs_done: int
    seconds_left: float | None
    reason: str


class AllocationList(Document, frozen=True, kw_only=True):
    """The allocations of runs that have not ended."""

    allocations: list[AllocationEntry]


class ResetResult(Document, frozen=True, kw_only=True):
    """How many steps were reset, and how many are kept."""

    run: int
    epoch: int
    reset: int
    kept: int


class RunCheck(Struct, frozen=True):
    """What `db check` found about one run; nothing if its log agrees with its tables and its output is there."""

    run: int
    workflow: str
    status: str
    problems: list[str]


class DatabaseCheck(Document, frozen=True, kw_only=True):
    """What `db check` found: about the database itself, and about each run; `identity` is the database's name."""

    identity: str
    is_whole: bool
    problems: list[str]
    runs: list[RunCheck]


class DatabaseCopy(Document, frozen=True, kw_only=True):
    """The runs that `db copy` copied."""

    runs: list[int]


class Pruned(Document, frozen=True, kw_only=True):
    """The runs that `prune` deleted, or would delete, and the bytes that this gives back.

    `note` says what kept the space of the database from being given back.
    """

    runs: list[int]
    bytes: int
    note: str


class PastAttempt(Struct, frozen=True):
    """One attempt of a job; `kind` is null where it did not fail."""

    attempt: int
    started_at: str | None
    ended_at: str | None
    kind: str | None
    exit_code: int | None
    message: str
    wall_seconds: float
    rss_bytes_max: int


class ParkedFailure(Struct, frozen=True):
    """A failure that waits for judgement; `stdout` and `stderr` are the tails of the attempt's output."""

    job: int
    step: str
    scope: str
    attempts: int
    failed_at: str
    kind: str
    exit_code: int | None
    signal: int | None
    message: str
    signature: str
    rule: RuleReference
    stdout: str
    stderr: str
    history: list[PastAttempt]


class ParkedFailures(Document, frozen=True, kw_only=True):
    """The parked failures of a run."""

    run: int
    workflow: str
    status: str
    failures: list[ParkedFailure]


class JudgementResult(Document, frozen=True, kw_only=True):
    """A judgement in the log; `driven` says whether an engine continues the run at once."""

    run: int
    job: int
    step: str
    driven: bool
    verdict: str
    by: str
    reason: str
    output: Any
    memory_bytes: int
    runtime_seconds: float
    confidence: float | None


class LogText(Struct, frozen=True):
    """The output of one attempt on one stream."""

    job: int
    step: str
    attempt: int
    stream: str
    text: str


class LogList(Document, frozen=True, kw_only=True):
    """The output of the attempts of a run."""

    run: int
    logs: list[LogText]


class LogExport(Document, frozen=True, kw_only=True):
    """How many files `logs --export` wrote."""

    run: int
    folder: str
    files: int


class AttemptCounts(Struct, frozen=True):
    """The attempts of a run, counted by outcome."""

    started: int
    succeeded: int
    failed: int
    lost: int


class RuleMetrics(Struct, frozen=True):
    """How often a rule was applied to a step, how long its repairs took, and how often the step recovered after it."""

    step: str
    scope: str
    rule: RuleReference
    then: str
    fired: int
    repairs: int
    repairs_failed: int
    repair_seconds: float
    recovered: int


class RunMetrics(Document, frozen=True, kw_only=True):
    """Statistics of the rules and maps of a run; `failures` counts failed attempts by kind."""

    run: int
    workflow: str
    attempts: AttemptCounts
    failures: dict[str, int]
    rules: list[RuleMetrics]
    maps: dict[str, MapMetrics]


class RepairAttempt(Struct, frozen=True):
    """An attempt of a repair that a rehearsal ran, with the tail of its output."""

    step: str
    scope: str
    attempt: int
    exit_code: int | None
    message: str
    seconds: float
    stdout: str
    stderr: str


class Rehearsal(Document, frozen=True, kw_only=True):
    """The answer of a step's rules to a simulated failure; a retry would wait `delay_seconds`."""

    step: str
    failure: Failure
    verdict: str
    delay_seconds: float
    exit_code: int
    routes: list[Route]
    repairs: list[RepairAttempt]
    events: list[Event]


class CheckedFile(Struct, frozen=True):
    """One file: its dialect and how it was recognised, its size, and every diagnostic."""

    file: str
    dialect: str
    why: str
    ok: bool
    steps: int
    jobs: int
    diagnostics: list[Diagnostic]


class CheckReport(Document, frozen=True, kw_only=True):
    """The files that `check` compiled."""

    files: list[CheckedFile]


class Migration(Document, frozen=True, kw_only=True):
    """A translation: the file that it was written to, or its `text`; and each difference in meaning."""

    out: str | None
    differences: list[Diagnostic]
    text: str | UnsetType = UNSET


class WrittenFile(Document, frozen=True, kw_only=True):
    """The file that a command wrote."""

    file: str


class GraphStep(Struct, frozen=True):
    """A step of a graph; `inside` is the step whose items, workflow or handler it belongs to.

    `status` and, for several items, `counts` by status are those of a run.
    """

    id: int
    step: str
    action: str
    inside: int | None
    status: str
    counts: dict[str, int]


class GraphEdge(Struct, frozen=True):
    """An edge: `needs`, `any` (one of several needs), `next`, `success` or `failure`; `label` says when.

    `answer` says how a success or a failure is followed: by `steps` of its own, by `run` of another step, by `goto` to
    one, or by `retry`.
    """

    source: int
    target: int
    kind: str
    label: str
    answer: str = ""


class Graph(Document, frozen=True, kw_only=True):
    """The steps of a workflow, or of a run, and the edges between them."""

    workflow: str
    run: int | None
    status: str
    steps: list[GraphStep]
    edges: list[GraphEdge]


class ConfigValue(Struct, frozen=True):
    """A value of the configuration; `from` is the path of a file, `$NAME`, `flag` or `default`."""

    key: str
    value: str | int
    source: str = field(name="from")


class Configuration(Document, frozen=True, kw_only=True):
    """The configuration of this call, by key."""

    values: list[ConfigValue]


class Versions(Document, frozen=True, kw_only=True):
    """The versions of the program and of its platform."""

    resile: str
    python: str
    sqlite: str


class ErrorText(Struct, frozen=True):
    """Why a command was refused: a code that never changes, a message, the place and a hint."""

    code: str
    message: str
    where: str
    hint: str


class ErrorDocument(Document, frozen=True, kw_only=True):
    """The document on stdout when a command ends with an error; `diagnostics` are the findings in a file."""

    error: ErrorText
    diagnostics: list[Diagnostic]
