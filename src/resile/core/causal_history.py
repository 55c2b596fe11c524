"""`causal_history(notes, jobs)`: every note that bears on some jobs, causes first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from resile.core.actions import Note


def causal_history(notes: Iterable[Note], jobs: Collection[int]) -> list[Note]:
    """The notes about these jobs and, before each, the notes of other jobs that caused it, in the order of the log."""
    by_seq: dict[int, Note] = {}
    found: set[int] = set()
    for note in notes:
        by_seq[note.seq] = note
        if note.job not in jobs:
            continue
        cause: Note | None = note
        while cause is not None and cause.seq not in found:
            found.add(cause.seq)
            cause = by_seq.get(cause.because)
    return [by_seq[seq] for seq in sorted(found)]
