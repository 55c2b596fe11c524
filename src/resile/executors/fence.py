"""Fences: an engine that has lost its lease starts nothing, even if it does not know that yet.

    FOLDER/engine-NUMBER.fence    `+`: the engine with this number may start attempts
                                  `-`, or no such file: a newer engine drives the run

An engine creates its own fence, then closes those of older engines, and only then looks for attempts that still run.
The launcher and function workers first record that an attempt begins, then check the fence of their engine, and only
then start the attempt. So either the newer engine finds the record, or the attempt never starts. If two engines create
fences at the same time, at least one of them sees the other's.

A server opens very many fences, and making a file for each would be most of the cost of a short run. So the fences of
its new runs are hard links to one file, which always says `+`. To close such a fence is to remove its name; processes
that obey it open it by name for each check (`FenceAt`).

The launcher only needs `FenceReader`, so only built-in modules are imported at the top.
"""

from __future__ import annotations

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

OPEN, CLOSED = b"+", b"-"
_PREFIX, _SUFFIX = "engine-", ".fence"


class FenceReader:
    """The fence of the engine that a launcher serves."""

    def __init__(self) -> None:
        self._file = -1

    def watch(self, path: bytes) -> None:
        """Obey this fence from now on; if there is no such file, the fence counts as closed."""
        self.close()
        try:
            self._file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            self._file = -1

    def is_closed(self) -> bool:
        """Has a newer engine closed the fence, so that nothing may start any more for its owner?"""
        try:
            return self._file < 0 or posix.pread(self._file, 1, 0) != OPEN
        except OSError:
            # On a shared disk the file may be gone by now.
            return True

    def close(self) -> None:
        """Stop watching the fence."""
        if self._file >= 0:
            posix.close(self._file)
            self._file = -1


class FenceAt:
    """The fence of one of many engines that a launcher serves; it opens the file for each check and closes it again."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def is_closed(self) -> bool:
        """Has a newer engine closed the fence?"""
        reader = FenceReader()
        reader.watch(self._path)
        try:
            return reader.is_closed()
        finally:
            reader.close()


class Fence:
    """The fence of one engine.

    `number` is the number of its lease. `confirm` renews the lease, and raises the store's error if another engine has
    it. With `shared` the fence is a hard link to that file, if the file system allows one.
    """

    def __init__(self, folder: str, number: int, confirm: Callable[[], None], *, shared: str = "") -> None:
        self.number = number
        self.confirm = confirm
        self.path = f"{folder}/{_PREFIX}{number}{_SUFFIX}"
        self._folder = folder
        self._file = -1
        self._is_shared = self._is_removed = False
        try:
            self._is_shared = bool(shared) and _link(shared, self.path)
            if not self._is_shared:
                self._file = create_open(self.path)
            present = _numbers_in(folder)
            older = [found for found in present if found < number]
            for found in older:
                _close(f"{folder}/{_PREFIX}{found}{_SUFFIX}")
        except OSError as error:
            from resile.errors import ResileError

            raise ResileError("output_folder", f"can't write: {error.strerror}", where=self.path) from None
        if older:
            # A newer engine may have taken the folder meanwhile.
            present = _numbers_in(folder)
        if number not in present or max(present) > number:
            if not self._is_shared:
                posix.pwrite(self._file, CLOSED, 0)
            _unlink(self.path)
            self.check()

    def is_closed(self) -> bool:
        """Has a newer engine closed this fence?"""
        if not self._is_shared:
            return posix.pread(self._file, 1, 0) != OPEN
        try:
            posix.stat(self.path)
        except FileNotFoundError:
            return True
        return False

    def check(self) -> None:
        """Raise the store's error if a newer engine drives the run."""
        if not self.is_closed():
            return
        self.confirm()
        from resile.errors import ResileError

        hint = f"if no other engine drives this run, remove {self._folder}/{_PREFIX}*{_SUFFIX}"
        raise ResileError("fenced", "another engine has taken over the folder of this run", hint=hint)

    def close(self) -> None:
        """Remove the fence, because the engine ends."""
        if self._is_removed:
            return
        self._is_removed = True
        _unlink(self.path)
        if self._file >= 0:
            posix.close(self._file)


def create_open(path: str) -> int:
    """Create an open fence; return its descriptor."""
    file = posix.open(path, posix.O_RDWR | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
    posix.write(file, OPEN)
    return file


def _link(shared: str, path: str) -> bool:
    """Make a hard link to a file; False if the file system has no hard links, or allows no more for this file."""
    try:
        posix.link(shared, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _numbers_in(folder: str) -> list[int]:
    """The numbers of all fences in a folder."""
    names = [name for name in posix.listdir(folder) if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
    return [int(name[len(_PREFIX) : -len(_SUFFIX)]) for name in names]


def _close(path: str) -> None:
    """Close a fence: write CLOSED into it for processes that have it open, and remove it for all that open it later."""
    try:
        descriptor = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        # A file with other names is the fence of other engines, too: removing the name is enough (see `FenceAt`).
        if posix.fstat(descriptor).st_nlink == 1:
            posix.pwrite(descriptor, CLOSED, 0)
    finally:
        posix.close(descriptor)
    _unlink(path)


def _unlink(path: str) -> None:
    """Remove a file if it exists."""
    try:
        posix.unlink(path)
    except FileNotFoundError:
        return
