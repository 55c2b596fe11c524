"""The arguments of the tools; their JSON Schemas come from these declarations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from resile.model.status import RunStatus

Text = Annotated[str, Meta(max_length=10_000)]
Run = Annotated[int, Meta(ge=1, description="the number of the run")]


class _Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments by name; an unknown one is refused."""


class ListRuns(_Arguments, frozen=True, kw_only=True):
    """Which runs to list."""

    status: RunStatus | Literal[""] = ""
    workflow: Annotated[Text, Meta(description="the name of the workflow")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


class GetRun(_Arguments, frozen=True, kw_only=True):
    """One run."""

    run: Run


class ExplainRun(_Arguments, frozen=True, kw_only=True):
    """One run, or one step of it."""

    run: Run
    step: Text = ""


class ReadLogs(_Arguments, frozen=True, kw_only=True):
    """Which output to read: of a step or a job, of one attempt or of all."""

    run: Run
    step: Text = ""
    job: Annotated[int, Meta(ge=1)] | None = None
    attempt: Annotated[int, Meta(ge=1)] | None = None
    stream: Literal["stdout", "stderr", "both"] = "both"
    tail_lines: Annotated[int, Meta(ge=1, le=100_000)] | None = None


class ListPendingFailedJobs(_Arguments, frozen=True, kw_only=True):
    """The run whose parked failures are listed."""

    workflow_id: Run


class Classification(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision about one parked failure."""

    job_id: Annotated[int, Meta(ge=1)]
    action: Literal["retry", "retry_with", "skip", "fail"]
    reason: Annotated[str, Meta(min_length=1, max_length=10_000, description="why, for the log")]
    memory: Annotated[Text, Meta(description="with retry_with: the memory of the next attempt, such as 8g")] = ""
    runtime: Annotated[Text, Meta(description="with retry_with: its time limit, such as 2h")] = ""
    output: Annotated[Any, Meta(description="with skip: the output that the step is taken to have")] = None
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None


class ClassifyAndResolve(_Arguments, frozen=True, kw_only=True):
    """Decisions about parked failures of one run."""

    workflow_id: Run
    classifications: Annotated[list[Classification], Meta(min_length=1, max_length=1000)]
    dry_run: bool = False
    partial: Annotated[bool, Meta(description="carry out those that are possible, even if others are not")] = False


class ListDeadLetters(_Arguments, frozen=True, kw_only=True):
    """The run whose dead letters are listed; `filter` is an expression on the item."""

    run: Run
    filter: Text = ""


class RetryDeadLetters(_Arguments, frozen=True, kw_only=True):
    """The dead letters that run again."""

    run: Run
    filter: Text = ""
    dry_run: bool = False


class CheckWorkflow(_Arguments, frozen=True, kw_only=True):
    """A workflow file, as text."""

    text: Annotated[str, Meta(max_length=4_000_000)]
    dialect: Text = ""


class RunWorkflow(_Arguments, frozen=True, kw_only=True):
    """A workflow file, as text, and its inputs."""

    text: Annotated[str, Meta(max_length=4_000_000)]
    dialect: Text = ""
    inputs: dict[str, Any] = {}


class CancelRun(_Arguments, frozen=True, kw_only=True):
    """The run to cancel."""

    run: Run
    reason: Text = ""
