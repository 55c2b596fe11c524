"""Starts processes while the other threads of the launcher go on.

A spawning thread sleeps until the new program runs, a third of a millisecond. Python's own posix_spawn holds the
interpreter's lock all that time, so the launcher calls the C library directly: then all slots can start attempts at
once.

Runs inside the launcher, so only built-in modules, ctypes and `os`, which ctypes needs, are imported. To load ctypes
takes 4 ms; the launcher does that while the engine, which starts at the same time, prepares its first attempt.
"""

from __future__ import annotations

import posix
from ctypes import CDLL, Array, byref, c_char, c_char_p, c_int, sizeof
from errno import EACCES, EINVAL, ENOENT, ENOEXEC, ENOTDIR
from os.path import isfile as is_file
from os.path import join as path_in

from resile.executors import descriptors
from resile.executors.local.launcher.system_calls import signal
from resile.executors.local.processes import TAG_VARIABLE, attempt_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resile.executors.local.wire import Start

# More than any C library needs for file actions, attributes and signal sets.
OPAQUE_BYTES = 1024
SPAWN_SETSIGDEF = 0x04
SPAWN_SETSIGMASK = 0x08
SPAWN_SETSID = 0x80
# Python ignores these two signals, and ignored signals stay ignored across exec.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_EXECUTABLE = (ENOENT, EACCES, ENOEXEC, ENOTDIR)

_library = CDLL(None)
_Opaque = c_char * OPAQUE_BYTES
_spawn = _library.posix_spawn
_search_and_spawn = _library.posix_spawnp
_actions_init = _library.posix_spawn_file_actions_init
_actions_dup2 = _library.posix_spawn_file_actions_adddup2
_actions_chdir = _library.posix_spawn_file_actions_addchdir_np
_actions_destroy = _library.posix_spawn_file_actions_destroy


class Actions:
    """The file actions and the directory of a child, before it executes the program."""

    def __init__(self, out: int, err: int, directory: bytes = b"") -> None:
        self.out = out
        self.err = err
        self.opaque = _Opaque()
        _actions_init(self.opaque)
        _actions_dup2(self.opaque, out, 1)
        _actions_dup2(self.opaque, err, 2)
        if directory:
            _actions_chdir(self.opaque, directory)

    def __del__(self) -> None:
        """Free the memory that the C library allocated for them."""
        _actions_destroy(self.opaque)


class Environment:
    """The environment of all attempts as a C array, so that an attempt only adds pointers."""

    def __init__(self, pairs: list[bytes]) -> None:
        self.by_name = pairs_by_name(pairs)
        # Drop RESILE_ATTEMPT inherited from an outer run; otherwise every attempt would have to override it and could
        # not share this block.
        self.by_name.pop(TAG_VARIABLE, None)
        self.path = self.by_name.get(b"PATH", b"PATH=/bin:/usr/bin")[5:]
        # Keep the texts too, because the pointers point into them.
        self.texts = (c_char_p * len(self.by_name))(*self.by_name.values())
        self.pointers = bytes(self.texts)

    def extend(self, pairs: list[bytes]) -> Array[c_char_p]:
        """This environment with the variables that one attempt adds or changes."""
        known = self.by_name
        if any(pair.partition(b"=")[0] in known for pair in pairs):
            return _text_array_of([*{**known, **pairs_by_name(pairs)}.values()])
        made = (c_char_p * (len(known) + len(pairs) + 1)).from_buffer_copy(
            self.pointers + bytes(sizeof(c_char_p) * (len(pairs) + 1))
        )
        made[len(known) : -1] = [*pairs]
        return made


class Spawner:
    """Starts processes with the run's environment, in its directory, each in a session of its own."""

    def __init__(self) -> None:
        self.attributes = _make_attributes()
        self.environment = Environment([])
        self.directory = b"/"
        self.token = b""
        self.home: int | None = None
        # If this process raised its limit of open files: the old limit, for attempts, and its own.
        self.raised: tuple[int, int] | None = None

    def configure(self, token: bytes, directory: bytes, pairs: list[bytes]) -> None:
        """Apply the settings that all attempts share; an attempt that is starting now keeps the previous ones."""
        self.token = token
        self.environment = Environment(pairs)
        posix.putenv(b"PATH", self.environment.path)
        self.directory = directory
        if self.home is not None:
            posix.close(self.home)
            self.home = None
        self.enter_directory()

    def enter_directory(self) -> int:
        """Change to the run's directory; return an errno if that fails, else 0."""
        try:
            if self.home is None:
                self.home = posix.open(self.directory, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
            posix.chdir(self.home)
        except OSError as error:
            return error.errno or ENOENT
        return 0

    def spawn(
        self, start: Start, output: Actions, known: Environment, directory: bytes = b""
    ) -> tuple[int, int, bytes]:
        """Start an attempt that writes to `output`; return its pid, or 0 with the errno and the stage that failed.

        The attempt's own directory is relative to `directory`, or to the launcher's if `directory` is empty.
        """
        cwd, pairs = start.cwd, start.env
        if directory:
            cwd = path_in(directory, cwd) if cwd else directory
        elif self.home is None and (errno := self.enter_directory()):
            return 0, errno, b"cwd"
        path = next((pair[5:] for pair in reversed(pairs) if pair.startswith(b"PATH=")), known.path)
        environment = known.extend([*pairs, b"%s=%s" % (TAG_VARIABLE, attempt_tag(self.token, start.key))])
        actions = Actions(output.out, output.err, cwd) if cwd else output
        pid, errno = self.execute(start.argv, path, cwd, actions, environment)
        if errno in _NOT_EXECUTABLE and start.fallback and not directory_errno(cwd):
            pid, errno = self.execute(start.fallback, path, cwd, actions, environment)
        if errno and (problem := directory_errno(cwd)):
            return 0, problem, b"cwd"
        return pid, errno, b"exec" if errno else b"-"

    def execute(
        self, argv: list[bytes], path: bytes, cwd: bytes, actions: Actions, environment: Array[c_char_p]
    ) -> tuple[int, int]:
        """Start one program; return its pid, or 0 and an errno."""
        if not argv:
            return 0, EINVAL
        program, call = argv[0], _search_and_spawn
        if path != self.environment.path and b"/" not in program:
            # The C library would search the PATH of this process, not that of the attempt.
            program, errno = find_program(program, path, cwd)
            if errno:
                return 0, errno
            call = _spawn
        pid = c_int()
        words = _text_array_of(argv)
        theirs, ours = self.raised or (None, None)
        if theirs is not None:
            descriptors.set_soft(theirs)
        errno = call(byref(pid), program, actions.opaque, self.attributes, words, environment)
        if ours is not None:
            descriptors.set_soft(ours)
        return (0, errno) if errno else (pid.value, 0)


def find_program(name: bytes, path: bytes, cwd: bytes) -> tuple[bytes, int]:
    """The program of this name in a PATH, as the child will see it; or an errno."""
    if not name:
        # Like the C library: an empty name would match each folder of the PATH.
        return b"", ENOENT
    candidates = [b"%s/%s" % (folder or b".", name) for folder in path.split(b":")]
    places = [path_in(cwd, candidate) for candidate in candidates]
    for candidate, place in zip(candidates, places, strict=True):
        if posix.access(place, posix.X_OK) and is_file(place):
            return candidate, 0
    return b"", EACCES if any(posix.access(place, posix.F_OK) for place in places) else ENOENT


def directory_errno(cwd: bytes) -> int:
    """The errno of entering a directory; 0 if that works."""
    if not cwd:
        return 0
    try:
        posix.close(posix.open(cwd + b"/.", posix.O_PATH | posix.O_CLOEXEC))
    except OSError as error:
        return error.errno or ENOENT
    return 0


def pairs_by_name(pairs: list[bytes]) -> dict[bytes, bytes]:
    """`NAME=value` texts by name; the last one of a name counts."""
    return {name: pair for pair in pairs if (name := pair.partition(b"=")[0])}


def _text_array_of(words: list[bytes]) -> Array[c_char_p]:
    return (c_char_p * (len(words) + 1))(*words)


def _make_attributes() -> Array[c_char]:
    """Spawn attributes: a new session, no signal blocked, default handlers for the signals that Python ignores."""
    attributes, signals = _Opaque(), _Opaque()
    _library.posix_spawnattr_init(attributes)
    _library.sigemptyset(signals)
    _library.posix_spawnattr_setsigmask(attributes, signals)
    for number in _DEFAULT_SIGNALS:
        _library.sigaddset(signals, int(number))
    _library.posix_spawnattr_setsigdefault(attributes, signals)
    _library.posix_spawnattr_setflags(attributes, SPAWN_SETSIGDEF | SPAWN_SETSIGMASK | SPAWN_SETSID)
    return attributes
