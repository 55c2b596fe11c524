"""The output of attempts on workers: segments of their own in the folder of the epoch.

launcher/wTOKEN-NAME.o   launcher/wTOKEN-NAME.e     TOKEN is the attempt's, NAME the worker's

Where the worker keeps output in a folder that the server sees too, they are links to its files there.
"""

from __future__ import annotations

import os
from contextlib import suppress

from resile.executors.contract import Stream
from resile.executors.local import wire
from resile.executors.local.segments import segment_of_worker
from resile.model.failure import LogRange
from resile.model.folders import make_folder

_ENDINGS: dict[Stream, str] = {"out": ".o", "err": ".e"}
# A file that an argument names goes to the worker with the attempt, up to this size.
FILE_BYTES_MAX = 16 * 2**20


class WorkerOutput:
    """What there is of the output of one attempt: what its worker has sent, or what it wrote to the shared folder."""

    def __init__(self, folder: str, token: str, name: str, *, is_new: bool) -> None:
        """`folder` is that of the run's epoch, `name` the worker's."""
        self._segment = segment_of_worker(token, name)
        self._paths = {stream: os.path.join(folder, self._segment + ending) for stream, ending in _ENDINGS.items()}
        self._sizes: dict[Stream, int] = {"out": 0, "err": 0}
        self.is_linked = False
        if not is_new:
            self.is_linked = any(map(os.path.islink, self._paths.values()))
            self._measure()

    def _measure(self) -> None:
        """See how much there is."""
        for stream, path in self._paths.items():
            if os.path.exists(path):
                self._sizes[stream] = os.path.getsize(path)

    def link(self, folder: str, segment: str) -> None:
        """Read the output from this folder of the attempt; raises OSError."""
        if self.is_linked:
            return
        make_folder(os.path.dirname(self._paths["out"]))
        for stream, path in self._paths.items():
            with suppress(FileExistsError):
                os.symlink(os.path.join(folder, wire.FOLDER, segment + _ENDINGS[stream]), path)
        self.is_linked = True

    @property
    def sizes(self) -> tuple[int, int]:
        """How many bytes there are of stdout and stderr."""
        if self.is_linked:
            self._measure()
        return self._sizes["out"], self._sizes["err"]

    @property
    def log(self) -> LogRange:
        """Where the output so far is."""
        out, err = self.sizes
        return LogRange(self._segment, 0, out, 0, err)

    def keep(self, stream: Stream, offset: int, data: bytes) -> bool:
        """Append output; what is there already is passed over. False where some before it, or of it, is missing.

        Raises OSError where it can't be written.
        """
        if self.is_linked:
            # A worker that has lost the folder sends what it has; the end shows whether all of it is there.
            return True
        size = self._sizes[stream]
        if offset > size:
            return False
        new = data[size - offset :]
        if new:
            self._sizes[stream] += _append(self._paths[stream], size, new)
        return self._sizes[stream] >= offset + len(data)


def _append(path: str, size: int, data: bytes) -> int:
    """Write to the end of a segment; how much of it there was room for."""
    if not size:
        make_folder(os.path.dirname(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return os.pwrite(descriptor, data, size)
    finally:
        os.close(descriptor)


class FileTooLarge(Exception):
    """A file of an attempt can't go to a worker."""


def files_of(words: tuple[bytes, ...], folder: str) -> list[tuple[bytes, bytes]]:
    """The files of an attempt that its arguments name, in the folder of its epoch; raises FileTooLarge."""
    inside = os.fsencode(folder) + b"/"
    files: list[tuple[bytes, bytes]] = []
    for word in dict.fromkeys(words):
        if word.startswith(inside) and not word.startswith(inside + wire.FOLDER.encode()) and os.path.isfile(word):
            with open(word, "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise FileTooLarge(f"a value of this step is larger than the {FILE_BYTES_MAX >> 20} MiB for workers")
            files.append((word, content))
    return files
