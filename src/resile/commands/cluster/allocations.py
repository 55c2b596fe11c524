"""`slurm status`, `slurm cancel`: the allocations of runs; the comment of an allocation names its run.

An engine that was killed can't end its allocations, so listing them ends those that have nothing left to do.
"""

from __future__ import annotations

import re

from resile.commands.documents.answers import AllocationEntry, AllocationList
from resile.engine.paths import epoch_folder, label
from resile.engine.replay import row_of
from resile.errors import ResileError
from resile.executors.contract import Ended, Lost, Withdrawn
from resile.executors.parsl import slurm
from resile.executors.parsl.nodes import Nodes
from resile.store.contract import RunRow, Store
from resile.store.lease import boot_seconds

_OVER = (Ended, Withdrawn, Lost)
_COMMENT = re.compile(r"(?:\w+_)?wf(\d+)_r(\d+)")


def allocation_list(store: Store, run: int | None) -> AllocationList:
    """The allocations of a run, or of all runs of the database, that Slurm still knows and that have not ended."""
    _refuse_without_slurm()
    rows: dict[int, RunRow | None] = {} if run is None else {run: row_of(store, run)}
    found: list[AllocationEntry] = []
    for one in slurm.all_allocations():
        match = _COMMENT.fullmatch(one.comment)
        if match is None or one.is_over or (run is not None and int(match[1]) != run):
            continue
        number, epoch = int(match[1]), int(match[2])
        if number not in rows:
            rows[number] = store.run(number)
        row = rows[number]
        if row is None or one.comment != label(store.identity(number), number, epoch):
            continue
        done, is_busy = work_in(one.id, epoch_folder(row.output, row.id, epoch))
        if not is_busy and store.lease(number, boot_seconds()) is None:
            slurm.cancel([one.id])
            continue
        reason = "" if one.reason == "None" else one.reason
        found.append(AllocationEntry(one.id, one.name, number, one.state, one.node, done, one.seconds_left, reason))
    return AllocationList(allocations=found)


def cancel_allocations(store: Store, run: int) -> AllocationList:
    """End all allocations of a run; return the ended ones."""
    row_of(store, run)
    before = allocation_list(store, run)
    slurm.cancel(one.id for one in before.allocations)
    return before


def work_in(allocation: str, folder: str) -> tuple[int, bool]:
    """How many attempts of the epoch with this folder ended in an allocation, and whether one still runs there."""
    nodes = Nodes(folder)
    open_ones: set[tuple[int, int]] = set()
    done = 0
    for happening in nodes.read():
        identity = happening.node.identity
        if identity is None or identity.allocation != allocation:
            continue
        if happening.taken:
            open_ones.add(happening.key)
        elif happening.dropped or isinstance(happening.report, _OVER):
            open_ones.discard(happening.key)
            done += isinstance(happening.report, Ended)
    return done, bool(open_ones)


def _refuse_without_slurm() -> None:
    """Refuse where Slurm's commands are missing."""
    if not slurm.is_there():
        hint = "call it where Slurm's commands are: on a login node"
        raise ResileError("not-installed", "Slurm's commands are not installed here", hint=hint)
