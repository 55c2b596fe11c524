"""Dead letters: the items of a run that failed for good, one by one, counted, and removed.

    letters, letter    the record of each: what it is, every failure, where its logs are
    stats              by signature, by type of error, by hour
    purge              removes them, under the run's lease

The record has the fields that users of Prodigy know, filled from what the engine recorded. Letters are read as a
stream: a million of them take no memory. Running them again is in redrive.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from resile.errors import ResileError
from resile.model import codec
from resile.model.fanout import FanOut
from resile.model.letters import ItemFailure
from resile.model.workflow import Child, Step
from resile.runtime.folders import named_logs, worktree, worktree_branch
from resile.runtime.past import row_of
from resile.runtime.session import take
from resile.store.contract import LetterCount, LetterRow, RunRow, Store
from resile.store.open import open_store
from resile.surfaces.documents import timestamp
from resile.surfaces.verbs.drive import open_again

SIGNATURES_MAX = 1_000
SAMPLES_MAX = 3
PURGE_KEYS = 1_000
HOUR_SECONDS = 3_600

# Kinds of failure that are no matter of an exit code.
_ERROR_TYPES = {
    "timeout": "Timeout",
    "oom": "ResourceExhausted",
    "check": "ValidationFailed",
    "contract": "ValidationFailed",
}
_NO_COMMIT = "contract: no commit"


def letters(number: int, *, db: str | None, step: str | None = None) -> Iterator[dict[str, Any]]:
    """The records of a run's dead letters, by map and index, as a stream."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        for found in _rows(store, row, step, None):
            yield record(row, found)
    finally:
        store.close()


def letter(number: int, which: str, *, db: str | None, step: str | None = None) -> dict[str, Any]:
    """The record of one item, which is named by its id or its index."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        index = which if which.isdigit() else which.rpartition("[")[2].removesuffix("]")
        known = index.isascii() and index.isdigit() and len(index) <= 18
        fans = fan_outs(store, row, step) if known else []
        kept = [store.letter(number, fan.job, int(index)) for fan in fans]
        found = [one for one in kept if one is not None and which in (index, one.item_id)]
        if len(found) > 1:
            names = ", ".join(dict.fromkeys(one.step for one in found))
            raise ResileError(
                "ambiguous-item",
                f"several maps of run {number} have an item {which}: {names}",
                hint="name it by --step",
            )
        if not found:
            hint = f"`resile dlq list {number}` lists them"
            raise ResileError("no-such-letter", f"run {number} has no dead letter {which!r}", hint=hint)
        return record(row, found[0])
    finally:
        store.close()


def stats(number: int, *, db: str | None, step: str | None = None) -> dict[str, Any]:
    """What the dead letters of a run have in common."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        tally = _Tally()
        for found in _rows(store, row, step, None):
            tally.add(found)
        return {"run": number, "workflow": row.workflow, **tally.document()}
    finally:
        store.close()


def count(number: int, *, db: str | None, step: str | None = None, signature: str | None = None) -> int:
    """How many dead letters a purge would remove."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        if signature is None:
            return sum(fan.count for fan in fan_outs(store, row, step))
        return sum(1 for _ in _rows(store, row, step, signature))
    finally:
        store.close()


def purge(number: int, *, db: str | None, step: str | None = None, signature: str | None = None) -> dict[str, Any]:
    """Remove dead letters for good; refused while another engine drives the run."""
    store = open_again(db)
    try:
        row = row_of(store, number)
        lease = take(store, number)
        try:
            if step is None and signature is None:
                gone = store.purge_letters(lease)
            else:
                keys = ((found.job, found.index) for found in _rows(store, row, step, signature))
                gone = 0
                while some := list(islice(keys, PURGE_KEYS)):
                    gone += store.purge_letters(lease, some)
        finally:
            store.release_lease(lease)
        left = sum(fan.count for fan in store.letter_counts(number))
        return {"run": number, "purged": gone, "dead_letters": left}
    finally:
        store.close()


def fan_outs(store: Store, row: RunRow, step: str | None) -> list[LetterCount]:
    """The maps of a run that have dead letters: all, or those of one name; a name that no map has is refused."""
    found = store.letter_counts(row.id)
    if step is None:
        return found
    workflow = codec.decode(store.definition(row.definition))
    maps = list(dict.fromkeys(_maps(workflow.steps)))
    if step not in maps:
        hint = f"its maps are: {', '.join(maps)}" if maps else "it has no maps"
        raise ResileError("no-such-map", f"run {row.id} has no map {step!r}", hint=hint)
    return [fan for fan in found if fan.step == step]


def _maps(steps: tuple[Step, ...]) -> Iterator[str]:
    """The names of the steps that fan out, also inside of other fan-outs and child workflows."""
    for step in steps:
        match step.action:
            case FanOut():
                yield step.name
                yield from _maps(step.action.steps)
            case Child():
                yield from _maps(step.action.workflow.steps)


def _rows(store: Store, row: RunRow, step: str | None, signature: str | None) -> Iterator[LetterRow]:
    """The letters of these maps with this signature."""
    for fan in fan_outs(store, row, step):
        for found in store.letters(row.id, fan.job):
            if signature in (None, found.signature):
                yield found


def record(row: RunRow, letter: LetterRow) -> dict[str, Any]:
    """A dead letter as JSON has it."""
    return {
        "item_id": letter.item_id,
        "step": letter.step,
        "index": letter.index,
        "correlation_id": letter.correlation_id,
        "reason": letter.reason,
        "item_data": letter.value,
        "first_attempt": timestamp(letter.first_at),
        "last_attempt": timestamp(letter.last_at),
        "failure_count": letter.failure_count,
        "error_signature": letter.signature,
        "reprocess_eligible": letter.eligible,
        "manual_review_required": not letter.eligible,
        "worktree_artifacts": _artifacts(row, letter),
        "failure_history": [
            {
                "attempt_number": number,
                "timestamp": timestamp(failure.at),
                "error_type": error_type(failure),
                "error_message": failure.message,
                "stack_trace": failure.stderr,
                "agent_id": letter.item_id,
                "step_failed": failure.step,
                "duration_ms": round(failure.seconds * 1000),
                "json_log_location": _log(row, failure),
            }
            for number, failure in enumerate(letter.history, 1)
        ],
    }


def _artifacts(row: RunRow, letter: LetterRow) -> dict[str, Any] | None:
    """What a failed item that worked apart has left behind, while it is there."""
    import os
    import subprocess

    folder = worktree(row.output, row.id, letter.job, letter.index)
    if not os.path.isdir(folder):
        return None
    status = subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=False)
    return {
        "worktree_path": folder,
        "branch_name": worktree_branch(row.id, letter.job, letter.index),
        "uncommitted_changes": status.stdout.splitlines(),
        "error_logs": _log(row, letter.history[-1]) if letter.history else None,
    }


def error_type(failure: ItemFailure) -> str | dict[str, Any]:
    """What went wrong, in the words of the record."""
    if failure.signature == _NO_COMMIT:
        return "CommitValidationFailed"
    if failure.kind in _ERROR_TYPES:
        return _ERROR_TYPES[failure.kind]
    return "Unknown" if failure.exit_code is None else {"CommandFailed": {"exit_code": failure.exit_code}}


def _log(row: RunRow, failure: ItemFailure) -> str | None:
    """Where the failing attempt's errors are, else its output; None where it printed nothing."""
    name = f"job_wf{row.id}_j{failure.job}_r{failure.epoch}_a{failure.attempt}"
    paths = (os.path.join(named_logs(row.output), f"{name}.{stream}") for stream in ("e", "o"))
    return next((path for path in paths if os.path.exists(path)), None)


class _Tally:
    """Counts while the letters go by."""

    def __init__(self) -> None:
        self.total = 0
        self.eligible = 0
        self.others = 0
        self.steps: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, dict[str, Any]] = {}
        self.hours: dict[int, int] = {}

    def add(self, letter: LetterRow) -> None:
        """One more."""
        self.total += 1
        self.eligible += letter.eligible
        self.steps[letter.step] = self.steps.get(letter.step, 0) + 1
        self.reasons[letter.reason] = self.reasons.get(letter.reason, 0) + 1
        hour = int(letter.last_at // HOUR_SECONDS)
        self.hours[hour] = self.hours.get(hour, 0) + 1
        if letter.history:
            kind = error_type(letter.history[-1])
            self.errors.setdefault(str(kind), {"error_type": kind, "count": 0})["count"] += 1
        if letter.signature in self.groups or len(self.groups) < SIGNATURES_MAX:
            self._group(letter)
        else:
            self.others += 1

    def _group(self, letter: LetterRow) -> None:
        """Put a letter with those that failed alike."""
        message = letter.history[-1].message if letter.history else "it never started"
        group = self.groups.setdefault(
            letter.signature,
            {"message": message, "count": 0, "first": letter.first_at, "last": letter.last_at, "items": []},
        )
        group["count"] += 1
        group["first"] = min(group["first"], letter.first_at)
        group["last"] = max(group["last"], letter.last_at)
        if len(group["items"]) < SAMPLES_MAX:
            group["items"].append(letter.item_id)

    def document(self) -> dict[str, Any]:
        """The counts, the most frequent first."""
        groups = [
            {
                "signature": signature,
                "count": group["count"],
                "message": group["message"],
                "first_occurrence": timestamp(group["first"]),
                "last_occurrence": timestamp(group["last"]),
                "sample_items": group["items"],
            }
            for signature, group in self.groups.items()
        ]
        return {
            "total": self.total,
            "reprocess_eligible": self.eligible,
            "manual_review_required": self.total - self.eligible,
            "steps": self.steps,
            "reasons": self.reasons,
            "pattern_groups": sorted(groups, key=lambda group: -group["count"]),
            "other_patterns": self.others,
            "error_distribution": sorted(self.errors.values(), key=lambda error: -error["count"]),
            "temporal_distribution": [
                {"hour": timestamp(float(hour * HOUR_SECONDS)), "count": found}
                for hour, found in sorted(self.hours.items())
            ],
        }
