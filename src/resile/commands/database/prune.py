"""`resile prune`: deletes runs that have ended, with their files, and gives the disk space back.

    select --> for each run: its lease --> its files --> its rows, in one transaction --> the database made smaller

A run that an engine drives, for example to redrive its dead letters, stays. If the command is interrupted between
files and rows, the run stays without its output; the same command then deletes the rest.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from resile.commands.documents.answers import Pruned
from resile.commands.inspect import all_runs
from resile.commands.store_handle import StoreHandle
from resile.engine.paths import files_of_run, is_work_folder
from resile.engine.replay import row_of
from resile.engine.session import take
from resile.errors import ResileError
from resile.executors.worker.shared_folder import drop_empty, shared_folders
from resile.model.status import RUN_ENDED
from resile.store.contract import RunRow
from resile.store.errors import LeaseHeld
from resile.store.lease import boot_seconds
from resile.store.server_tables import SharedStore


class PruneFilter(Struct, frozen=True):
    """Selects the ended runs to delete: all conditions that are given must hold.

    `older_than_seconds` counts from the end of a run. `keep_last` keeps that many of the runs that `workflow` and
    `statuses` select: the newest ones.
    """

    older_than_seconds: float | None = None
    keep_last: int | None = None
    statuses: tuple[str, ...] = ()
    workflow: str = ""


def prune(stores: StoreHandle, only: PruneFilter, *, dry_run: bool = False) -> Pruned:
    """Delete the runs that a filter selects; with `dry_run` only list them."""
    if only == PruneFilter():
        hint = "such as --older-than 30d or --keep-last 100"
        raise ResileError("bad-call", "`prune` needs a condition: which runs to delete", hint=hint)
    if unended := [status for status in only.statuses if status not in RUN_ENDED]:
        ended = ", ".join(sorted(RUN_ENDED))
        raise ResileError("bad-call", f"a run that is {unended[0]} has not ended, and stays", hint=f"one of {ended}")
    if not stores.exists():
        return Pruned(runs=[], bytes=0, note="")
    if dry_run:
        store = stores.read()
        found = [row for row in _select(store, only) if store.lease(row.id, boot_seconds()) is None]
        count = sum(store.run_bytes(row.id) + _bytes_of(_files(store, row)) for row in found)
        return Pruned(runs=sorted(row.id for row in found), bytes=count, note="")
    store = stores.write()
    before = store.size_bytes()
    deleted, given_back = [], 0
    for row in list(_select(store, only)):
        with suppress(LeaseHeld):
            given_back += _delete(store, row)
            deleted.append(row.id)
    why = store.compact(boot_seconds())
    note = f"the space in the database is given back by a later prune: {why}" if why else ""
    given_back += max(0, before - store.size_bytes())
    return Pruned(runs=sorted(deleted), bytes=given_back, note=note)


def delete_run(store: SharedStore, number: int) -> None:
    """Delete one run that has ended, with its log, files and dead letters."""
    row = row_of(store, number)
    if row.status not in RUN_ENDED:
        hint = f"`resile cancel {number}` ends it"
        raise ResileError("run-not-ended", f"run {number} has not ended, so it can't be deleted", hint=hint)
    _delete(store, row)


def _select(store: SharedStore, only: PruneFilter) -> Iterator[RunRow]:
    """The ended runs for which all conditions hold, newest first."""
    found = (
        row
        for row in all_runs(store)
        if only.workflow in ("", row.workflow) and (not only.statuses or row.status in only.statuses)
    )
    before = time.time() - (only.older_than_seconds or 0.0)
    for row in islice(found, only.keep_last or 0, None):
        if row.status in RUN_ENDED and (only.older_than_seconds is None or (row.ended_at or before) < before):
            yield row


def _delete(store: SharedStore, row: RunRow) -> int:
    """Delete one run; return the bytes of its files. Raises LeaseHeld if an engine drives the run."""
    lease = take(store, row.id)
    try:
        current = store.run(row.id)
        if current is None or current.status not in RUN_ENDED:
            raise LeaseHeld("run-driven", f"run {row.id} goes on")
        files = _files(store, current)
        count = _bytes_of(files)
        for path in files:
            _remove(path)
            drop_empty(path)
        store.delete_run(lease)
    except BaseException:
        store.release_lease(lease)
        raise
    return count


def _files(store: SharedStore, row: RunRow) -> list[str]:
    """The files and folders of a run to delete.

    None for a run in a database that had no identity yet: files of that age may belong to another database. The folder
    in which the steps worked stays while another run uses it.
    """
    if not row.output or not store.identity(row.id):
        return []
    is_own = is_work_folder(row.directory, row.output) and store.count_runs_in(row.directory) == 1
    own = [row.directory] if is_own else []
    files = files_of_run(row.output, row.id)
    # First the shared folders of workers: the links in the run's own files lead to them.
    return [*(folder for path in files for folder in shared_folders(path)), *files, *own]


def _remove(path: str) -> None:
    """Remove a file, or a folder with all that is in it."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        message = f"{path} can't be deleted: {error.strerror}"
        raise ResileError("prune-failed", message, where=path, hint="what was deleted before stays deleted") from error


def _bytes_of(paths: list[str]) -> int:
    """The bytes of files and of folders with all that is in them."""
    count = 0
    for path in paths:
        with suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                count += _bytes_of([entry.path for entry in os.scandir(path)])
            else:
                count += os.lstat(path).st_blocks * 512
    return count
