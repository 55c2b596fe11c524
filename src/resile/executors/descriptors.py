"""The limit of open files of a process, and the number of slots for which a launcher's limit is enough.

The launcher reserves some descriptors for itself, and a quarter of the rest for what attempts leave behind; slots get
the others.

Runs inside the launcher, so only built-in modules and `resource` are imported.
"""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

# An engine with a launcher needs 20; a workflow with functions, files and templates needs more.
NEEDED = 48
# The descriptors for the launcher's own files, and for files that it opens for a moment.
RESERVED = 28
SLOT_DESCRIPTORS = 6
_UNLIMITED = 1 << 20


def open_files_max() -> tuple[int, int]:
    """The soft and the hard limit of open files of this process."""
    soft, hard = (_UNLIMITED if limit == RLIM_INFINITY else limit for limit in getrlimit(RLIMIT_NOFILE))
    return soft, hard


def set_soft(limit: int) -> None:
    """Set the soft limit of this process, and of the processes that it starts from now on."""
    setrlimit(RLIMIT_NOFILE, (limit, getrlimit(RLIMIT_NOFILE)[1]))


def refuse_too_few() -> None:
    """Raise ResileError if the limit is too low to drive a run."""
    soft, _ = open_files_max()
    if soft < NEEDED:
        from resile.errors import ResileError

        message = f"only {soft} files may be open at once (`ulimit -n`), and a run needs {NEEDED}"
        raise ResileError("open-files", message, hint="raise the limit: `ulimit -n 1024`")


def slots_within(limit: int) -> int:
    """The number of slots for which a launcher with this limit has descriptors."""
    spare = max(0, limit - RESERVED)
    return max(1, (spare - spare // 4) // SLOT_DESCRIPTORS)


def leftovers_within(limit: int) -> int:
    """The number of pipes, and of processes, of ended attempts that a launcher with this limit may watch."""
    return max(1, (limit - RESERVED) // 8)
