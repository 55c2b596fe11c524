"""Every document with the commands that print it, for docs/json.md and for the tests."""

from __future__ import annotations

from msgspec import Struct

from resile.commands.documents.answers import (
    CancelResult,
    CheckReport,
    ErrorDocument,
    LogExport,
    LogList,
    Migration,
    Rehearsal,
    ResetResult,
    RunMetrics,
    Versions,
)
from resile.commands.documents.dead_letters import (
    DeadLetter,
    DeadLetterDocument,
    DeadLetterList,
    LetterExport,
    LetterStatistics,
    PurgeResult,
    RedrivePreview,
    RedriveResult,
)
from resile.commands.documents.failures import JudgementResult, ParkedFailures
from resile.commands.documents.runs import Event, RunDocument, RunList
from resile.explain.report import Explanation

DOCUMENTS: dict[str, type[Struct]] = {
    "run, resume, rerun, status RUN, judge --resume": RunDocument,
    "status": RunList,
    "explain": Explanation,
    "parked": ParkedFailures,
    "judge": JudgementResult,
    "cancel": CancelResult,
    "reset": ResetResult,
    "logs": LogList,
    "logs --export": LogExport,
    "metrics": RunMetrics,
    "dlq list": DeadLetterList,
    "dlq show": DeadLetterDocument,
    "dlq stats": LetterStatistics,
    "dlq retry": RedriveResult,
    "dlq retry --dry-run": RedrivePreview,
    "dlq export FILE": LetterExport,
    "dlq purge": PurgeResult,
    "rehearse": Rehearsal,
    "check": CheckReport,
    "migrate": Migration,
    "version": Versions,
    "any command that ends with an error": ErrorDocument,
}
# JSON Lines: an object of this kind on each line.
LINES: dict[str, type[Struct]] = {"events list, events follow": Event, "dlq export": DeadLetter}
