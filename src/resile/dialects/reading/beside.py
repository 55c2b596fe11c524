"""Opens the files that a workflow file names; a caller may confine them to one folder, or note them.

A server checks files of callers who may not read its machine: without the confinement a finding in `/etc/passwd`,
taken in as a child workflow, would quote it. A client of a server notes the files, to send them along.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from typing import BinaryIO

from resile.model.limits import FILE_BYTES_MAX

_FOLDER: ContextVar[str] = ContextVar("confined", default="")
_NOTED: ContextVar[dict[str, bytes] | None] = ContextVar("noted", default=None)


@contextmanager
def confined_to(folder: str) -> Iterator[None]:
    """Within the block only files below this folder are opened; links out of it do not count as below."""
    token = _FOLDER.set(os.path.realpath(folder))
    try:
        yield
    finally:
        _FOLDER.reset(token)


@contextmanager
def noting_files() -> Iterator[dict[str, bytes]]:
    """Within the block the files that are opened are noted, by path, with what they have."""
    found: dict[str, bytes] = {}
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def open_beside(path: str) -> BinaryIO:
    """Open a file that a workflow file names; raises OSError, also for one outside of the folder."""
    folder = _FOLDER.get()
    if folder and os.path.commonpath((folder, os.path.realpath(path))) != folder:
        raise PermissionError(errno.EACCES, "it is outside of the folder of the workflow", path)
    noted = _NOTED.get()
    if noted is None:
        return open(path, "rb")
    with open(path, "rb") as file:
        data = noted[os.path.abspath(path)] = file.read(FILE_BYTES_MAX + 1)
    return BytesIO(data)
