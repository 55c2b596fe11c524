"""Dead letters as the commands of `dlq` print them; the fields of a letter have Prodigy's names."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.commands.documents.base import Document


class LetterFailure(Struct, frozen=True):
    """One failed execution of an item; `json_log_location` is the file with its output."""

    attempt_number: int
    timestamp: str
    error_type: str | dict[str, Any]
    error_message: str
    error_context: list[str]
    stack_trace: str
    agent_id: str
    step_failed: str
    duration_ms: int
    json_log_location: str | None


class WorktreeArtifacts(Struct, frozen=True):
    """The git worktree that a failed item left behind."""

    worktree_path: str
    branch_name: str
    uncommitted_changes: list[str]
    error_logs: str | None


class DeadLetter(Struct, frozen=True):
    """An item that failed for good, with every failure; `dlq export` writes one on each line."""

    item_id: str
    step: str
    map: str
    index: int
    correlation_id: str
    reason: str
    item_data: Any
    first_attempt: str
    last_attempt: str
    failure_count: int
    error_signature: str
    reprocess_eligible: bool
    manual_review_required: bool
    worktree_artifacts: WorktreeArtifacts | None
    failure_history: list[LetterFailure]


class DeadLetterDocument(DeadLetter, frozen=True):
    """One dead letter as a document."""

    version: int = 1


class DeadLetterList(Document, frozen=True, kw_only=True):
    """The dead letters of a run, by map and index."""

    dead_letters: list[DeadLetter]


class PatternGroup(Struct, frozen=True):
    """Dead letters whose last failures have one signature."""

    signature: str
    count: int
    message: str
    first_occurrence: str
    last_occurrence: str
    sample_items: list[str]


class ErrorCount(Struct, frozen=True):
    """How many letters have one type of error as their last failure."""

    error_type: str | dict[str, Any]
    count: int


class HourCount(Struct, frozen=True):
    """How many letters failed last within one hour."""

    hour: str
    count: int


class LetterStatistics(Document, frozen=True, kw_only=True):
    """Counts of a run's dead letters by failure; `other_patterns` counts letters beyond the listed signatures."""

    run: int
    workflow: str
    total: int
    reprocess_eligible: int
    manual_review_required: int
    maps: dict[str, int]
    reasons: dict[str, int]
    pattern_groups: list[PatternGroup]
    other_patterns: int
    error_distribution: list[ErrorCount]
    temporal_distribution: list[HourCount]


class PurgeResult(Document, frozen=True, kw_only=True):
    """How many dead letters were removed, and how many are left."""

    run: int
    purged: int
    dead_letters: int


class LetterExport(Document, frozen=True, kw_only=True):
    """How many dead letters were written to a file."""

    run: int
    file: str
    dead_letters: int


class RedrivePreview(Document, frozen=True, kw_only=True):
    """The items that a redrive would run; `items` has the first ones."""

    run: int
    map: str | None
    dry_run: bool = True
    selected: int
    items: list[str]


class RedriveResult(Document, frozen=True, kw_only=True):
    """The result of a redrive: of `selected` items `succeeded` left the dead letters, `left` did not."""

    run: int
    map: str | None
    status: str
    selected: int
    succeeded: int
    failed: int
    left: int
    dead_letters: int
    exit_code: int
