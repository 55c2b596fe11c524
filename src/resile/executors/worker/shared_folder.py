"""An output folder that a worker and its server both see: the worker writes output there and sends none.

    DIR/.resile-worker-MARK              exists while the worker lives; a server that finds it sees the same folder
    DIR/RUN-EPOCH/TOKEN/launcher/        the output of one attempt

At the server, the folder of the run's epoch has links to these files (executors/shared/worker_output.py).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from resile.errors import ResileError
from resile.executors.local import wire
from resile.executors.worker.messages import SharedFolder
from resile.model.folders import claim_folder, create_file


def share(folder: str, mark: str) -> SharedFolder:
    """Create the folder, for its owner only, and in it the file by which the server recognizes it.

    Raises ResileError if that fails.
    """
    path = os.path.realpath(folder)
    told = SharedFolder(path, mark)
    try:
        claim_folder(path, ", or name another with --shared-output")
        create_file(_mark(told)).close()
    except OSError as error:
        message = f"--shared-output can't be used: {error.strerror}"
        raise ResileError("folder-unusable", message, where=path) from error
    return told


def unshare(told: SharedFolder) -> None:
    """Remove the mark file of a worker that ends; the output stays."""
    with suppress(OSError):
        os.unlink(_mark(told))


def find_shared(told: SharedFolder) -> str:
    """The real path of a worker's shared folder; raises ResileError if this server does not see the folder."""
    try:
        is_there = stat.S_ISREG(os.lstat(_mark(told)).st_mode)
        why = "there is another folder at this path"
    except OSError as error:
        is_there, why = False, str(error.strerror)
    if not is_there:
        message = f"the server does not see the worker's --shared-output {told.path} ({why})"
        hint = "both must see the folder under the same path and as the same user; without the option output is sent"
        raise ResileError("shared-output-not-seen", message, hint=hint)
    return os.path.realpath(told.path)


def attempt_folder(shared_output: str, run: int, epoch: int, token: str) -> str:
    """The folder of one attempt in a shared output."""
    return os.path.join(shared_output, f"{run}-{epoch}", token)


def drop_empty(folder: str) -> None:
    """Remove the folder of an attempt if it is empty, and then the folder of its run if that is empty."""
    with suppress(FileNotFoundError, OSError):
        os.rmdir(os.path.join(folder, wire.FOLDER))
        os.rmdir(folder)
    with suppress(OSError):
        os.rmdir(os.path.dirname(folder))


def shared_folders(folder: str) -> list[str]:
    """The attempt folders in shared outputs that links in the folder of a run point to.

    The name of a link contains the token of its attempt, and so must the path of its target; other links are ignored.
    """
    found: dict[str, None] = {}
    for place, _, names in os.walk(folder):
        if os.path.basename(place) == wire.FOLDER:
            for name in names:
                path = os.path.join(place, name)
                target = os.path.dirname(os.path.dirname(os.readlink(path))) if os.path.islink(path) else ""
                if target and name.partition("-")[0] == f"w{os.path.basename(target)}" and os.path.isdir(target):
                    found[target] = None
    return list(found)


def _mark(told: SharedFolder) -> str:
    return os.path.join(told.path, f".resile-worker-{told.mark}")
