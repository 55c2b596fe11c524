"""The output of attempts on workers: each attempt has a segment of its own in the folder of the epoch.

launcher/wTOKEN-NAME.o   launcher/wTOKEN-NAME.e     TOKEN is the attempt's, NAME the worker's

If the worker writes output to a folder that the server sees too, the segments are links to its files there.
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
# The largest file of a step that the server sends to a worker with the attempt.
FILE_BYTES_MAX = 16 * 2**20


class WorkerOutput:
    """The output of one attempt so far: the worker has sent it, or writes it to the shared folder."""

    def __init__(self, folder: str, token: str, name: str, *, is_new: bool) -> None:
        """`folder` is the folder of the run's epoch, `name` the name of the worker."""
        self._segment = segment_of_worker(token, name)
        self._paths = {stream: os.path.join(folder, self._segment + ending) for stream, ending in _ENDINGS.items()}
        self._sizes: dict[Stream, int] = {"out": 0, "err": 0}
        self.is_linked = False
        if not is_new:
            self.is_linked = any(map(os.path.islink, self._paths.values()))
            self._measure()

    def _measure(self) -> None:
        """Read the present sizes of the files."""
        for stream, path in self._paths.items():
            if os.path.exists(path):
                self._sizes[stream] = os.path.getsize(path)

    def link(self, folder: str, segment: str) -> None:
        """Link to the worker's files in the attempt's shared folder; raises OSError."""
        if self.is_linked:
            return
        make_folder(os.path.dirname(self._paths["out"]))
        for stream, path in self._paths.items():
            with suppress(FileExistsError):
                os.symlink(os.path.join(folder, wire.FOLDER, segment + _ENDINGS[stream]), path)
        self.is_linked = True

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of stdout and of stderr so far."""
        if self.is_linked:
            self._measure()
        return self._sizes["out"], self._sizes["err"]

    @property
    def log(self) -> LogRange:
        """The log range of the output so far."""
        out, err = self.sizes
        return LogRange(self._segment, 0, out, 0, err)

    def keep(self, stream: Stream, offset: int, data: bytes) -> bool:
        """Append output, without the part that the file already has.

        False if output before it is missing, or the disk took only a part of it. Raises OSError if writing fails.
        """
        if self.is_linked:
            # A worker that lost the shared folder sends its output: ignore that. The end shows whether all is there.
            return True
        size = self._sizes[stream]
        if offset > size:
            return False
        new = data[size - offset :]
        if new:
            self._sizes[stream] += _append(self._paths[stream], size, new)
        return self._sizes[stream] >= offset + len(data)


def _append(path: str, size: int, data: bytes) -> int:
    """Write data at this offset of a segment; return the bytes written, which are fewer on a full disk."""
    if not size:
        make_folder(os.path.dirname(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return os.pwrite(descriptor, data, size)
    finally:
        os.close(descriptor)


class FileTooLarge(Exception):
    """A file of an attempt is too large to be sent to a worker."""


def files_of(words: tuple[bytes, ...], folder: str) -> list[tuple[bytes, bytes]]:
    """The files in the folder of the epoch that an attempt's arguments name, with content; raises FileTooLarge."""
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
