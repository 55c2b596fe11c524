"""How many files a process may have open, and how many slots of a launcher these are enough for.

Of its limit the launcher reserves some for itself and a quarter for what attempts leave behind; slots get the rest.

Runs inside the launcher, so only built-in modules and `resource` are imported.
"""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

# An engine with a launcher works with 20; a workflow with functions, files and templates takes more.
NEEDED = 48
# For the launcher's own files, and those that it opens for a moment.
RESERVED = 28
SLOT_DESCRIPTORS = 6
_UNLIMITED = 1 << 20


def open_files_max() -> tuple[int, int]:
    """The soft and the hard limit of open files of this process."""
    soft, hard = (_UNLIMITED if limit == RLIM_INFINITY else limit for limit in getrlimit(RLIMIT_NOFILE))
    return soft, hard


def set_soft(limit: int) -> None:
    """Set the soft limit, of this process and of those that it starts from now on."""
    setrlimit(RLIMIT_NOFILE, (limit, getrlimit(RLIMIT_NOFILE)[1]))


def refuse_too_few() -> None:
    """Refuse to drive a run with a limit that is too low for any step."""
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
    """How many pipes, and how many processes, of ended attempts a launcher with this limit may watch."""
    return max(1, (limit - RESERVED) // 8)
