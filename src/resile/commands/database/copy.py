"""`resile db copy`: add the runs of one store to another, with their events, results and dead letters.

A run keeps its number, its history and its folder: the output of its steps stays where it is. No engine can drive a
run while it is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from resile.commands.documents.answers import DatabaseCopy
from resile.engine.replay import row_of
from resile.engine.session import hold_lease
from resile.errors import ResileError
from resile.store.errors import run_exists
from resile.store.open import exists, open_store

RUNS_MAX = 1_000_000


def copy_database(source: str, target: str, runs: Sequence[int] = ()) -> DatabaseCopy:
    """Copy these runs, or all, oldest first. If the target already has one of them, copy none."""
    if not exists(source):
        raise ResileError("no-store", f"there is no database {source}", where=source)
    with closing(open_store(source)) as here, closing(open_store(target)) as there:
        if here.identity() == there.identity():
            raise ResileError("bad-call", "both names are names of the same database")
        rows = [row_of(here, run) for run in dict.fromkeys(runs)] or here.runs(RUNS_MAX)[::-1]
        for row in rows:
            if there.run(row.id) is not None:
                raise run_exists(row.id, target)
        for row in rows:
            with hold_lease(here, row.id), here.reading():
                there.import_run(here, row.id)
        return DatabaseCopy(runs=[row.id for row in rows])
