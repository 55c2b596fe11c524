"""The paths of a run's files, below a folder that belongs to one database.

    OUTPUT/.resile-database     the name of the database to which the folder belongs: the first that used it
    OUTPUT/NAME/                for another database, and if the folder has files of a version that gave no names
    .../runs/wf1_r2/            one epoch of one run; its launcher is labelled NAME_wf1_r2
    .../job_stdio/              the log files for people
    OUTPUT/work/…/              where the steps of a run work that has no directory of its caller

So databases beside each other share no file; neither does a new database share files with a deleted one. A run keeps
its folder, and runs of older versions keep theirs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from os.path import join

from msgspec.structs import replace

from resile.errors import ResileError
from resile.model.folders import claim_folder, make_folder
from resile.store.contract import RunRow, Store

OWNER = ".resile-database"
_RUNS, _LOGS, _WORKTREES, _WORK, _TORC = "runs", "job_stdio", "worktrees", "work", "torc"
_NAME_BYTES = 8
_OWNER_BYTES_MAX = 64


def claim_output(output: str) -> None:
    """Create the output folder; a failure, or a folder that others can write, is an error before anything is stored."""
    try:
        claim_folder(output, "; or name another folder with --output")
    except OSError as error:
        message, hint = f"can't make the output folder: {error.strerror}", "name another with --output"
        raise ResileError("output-unusable", message, where=output, hint=hint) from error


def own_folder(store: Store, row: RunRow) -> RunRow:
    """The row of a run that begins, with a folder below its output folder that no other run has or had."""
    try:
        output = _folder_of(row.output, store.identity())
        try:
            make_folder(epoch_folder(output, row.id, row.epoch), new=True)
        except FileExistsError:
            # The database is a copy, or was restored from one, and the other has made a run of this number.
            output = _folder_of(row.output, store.renew_identity(row.id))
            make_folder(epoch_folder(output, row.id, row.epoch), new=True)
    except OSError as error:
        message, hint = f"can't make the folder of a run: {error.strerror}", "name another folder with --output"
        raise ResileError("output-unusable", message, where=row.output, hint=hint) from error
    return replace(row, output=output)


def _folder_of(output: str, identity: str) -> str:
    """The folder of a database: the output folder itself if that is new or belongs to it, else one inside."""
    if any(os.path.lexists(join(output, name)) for name in (_RUNS, _LOGS, _WORKTREES)):
        return output if _owner(output) == identity else join(output, identity)
    make_folder(output)
    # An engine that dies before it has written the name leaves a folder that belongs to no database.
    try:
        file = os.open(join(output, OWNER), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return output if _owner(output) == identity else join(output, identity)
    with open(file, "w") as owner:
        owner.write(identity)
    return output


def _owner(output: str) -> str:
    """The name of the database to which an output folder belongs; empty if no name was written yet."""
    try:
        file = os.open(join(output, OWNER), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, _OWNER_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def claim_folders(output: str, run: int, epoch: int, identity: str) -> None:
    """Make the folders of an epoch; raises ResileError if another user could write to one of them."""
    folder = epoch_folder(output, run, epoch)
    above = os.path.dirname(output) if os.path.basename(output) == identity else output
    for ours in dict.fromkeys((above, output, os.path.dirname(folder), folder)):
        claim_folder(ours)


def epoch_folder(output: str, run: int, epoch: int) -> str:
    """The folder of one epoch of one run: segments, spool and scripts; log ranges are relative to it."""
    return join(output, _RUNS, f"wf{run}_r{epoch}")


def label(identity: str, run: int, epoch: int) -> str:
    """The name of an epoch among those of all databases, by which engine and launcher know that they belong together.

    `identity` is empty for a run of an older version.
    """
    return f"{identity}_wf{run}_r{epoch}" if identity else f"wf{run}_r{epoch}"


def files_of_run(output: str, run: int) -> list[str]:
    """Everything below an output folder that belongs to one run: its epochs, its log files, its worktrees, its data."""
    found: list[str] = []
    places = (_RUNS, f"wf{run}_"), (_LOGS, f"job_wf{run}_"), (_WORKTREES, f"wf{run}_"), (_TORC, f"user_data_wf{run}_")
    for folder, start in places:
        with suppress(FileNotFoundError):
            found += [entry.path for entry in os.scandir(join(output, folder)) if entry.name.startswith(start)]
    return sorted(found)


def work_folder(output: str) -> str:
    """A new name for the folder of a run that has no directory of its caller."""
    return join(output, _WORK, os.urandom(_NAME_BYTES).hex())


def is_work_folder(directory: str, output: str) -> bool:
    """Is this directory a folder that was made for one run below this output folder, or for a part of it?"""
    above = os.path.dirname(directory)
    return os.path.basename(above) == _WORK and os.path.dirname(above) in (output, os.path.dirname(output))


def named_logs(output: str) -> str:
    """The folder of the log files for people."""
    return join(output, _LOGS)


def worktree(output: str, run: int, job: int, index: int) -> str:
    """The worktree of an item of a fan-out, if it has one."""
    return join(output, _WORKTREES, f"wf{run}_j{job}_i{index}")


def worktree_branch(identity: str, run: int, job: int, index: int, begins: str = "") -> str:
    """The branch on which the item of a worktree commits; `identity` as in `label`, `begins` by the file's choice."""
    if begins:
        return "-".join(part for part in (begins, identity, f"wf{run}_j{job}", f"item_{index}") if part)
    return join("resile", identity, f"wf{run}_j{job}_i{index}")
