"""Starts a launcher before the engine knows its settings, so that its start overlaps with the engine's own.

    prestart()          at once: a process that waits for frames on a socket pair
    LocalExecutor(...)  later: sends it the folder, the environment and the first attempts

A prestarted launcher that gets no frames exits when its socket is closed. The module imports nothing heavy.
"""

from __future__ import annotations

import os
import sys
import time
from errno import EAGAIN, ENOMEM

from resile.executors.local.launcher.system_calls import signal, socket

# Make packages of these names without running their __init__, so that the launcher imports nothing else.
_BOOT = (
    "import sys\n"
    "path = sys.argv[1]\n"
    "for name in ('resile', 'resile.executors', 'resile.executors.local', 'resile.executors.local.launcher'):\n"
    "    module = sys.modules[name] = type(sys)(name)\n"
    "    module.__path__ = [path + name[6:].replace('.', '/')]\n"
    "from resile.executors.local.launcher.main import main\n"
    "main()\n"
)
# How long to try again while the system has no process for a launcher; shorter than a lease.
SECONDS_MAX = 15.0
AGAIN_SECONDS = 0.1
_children: set[int] = set()


class Prestarted:
    """A launcher that waits for its first frames: its process, and our end of its socket."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.socket = connection


def prestart() -> Prestarted:
    """Start a launcher."""
    _refuse_ignored_children()
    reap()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    here = os.path.dirname(os.path.abspath(__file__))
    argv = [sys.executable, "-I", "-S", "-E", "-c", _BOOT, os.path.dirname(os.path.dirname(here))]
    actions = (
        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    )
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True, setsigmask=())
            break
        except OSError as error:
            if error.errno not in (EAGAIN, ENOMEM) or time.monotonic() > deadline:
                ours.close()
                theirs.close()
                raise _explain(error) from None
        time.sleep(AGAIN_SECONDS)
    theirs.close()
    _children.add(pid)
    return Prestarted(pid, ours)


def _refuse_ignored_children() -> None:
    """Refuse to start if this process ignores SIGCHLD: the launcher would inherit that and get no exit codes."""
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        from resile.errors import ResileError

        hint = "before the run, call `signal.signal(signal.SIGCHLD, signal.SIG_DFL)`"
        raise ResileError("children-ignored", "this program, or the one that started it, ignores SIGCHLD", hint=hint)


def _explain(error: OSError) -> Exception:
    """The error of a command that can't start its launcher."""
    from resile.errors import ResileError

    hint = "see how many processes you may have with `ulimit -u`" if error.errno == EAGAIN else ""
    return ResileError("no-launcher", f"can't start the launcher: {error.strerror}", hint=hint)


def reap() -> None:
    """Reap the launchers that have exited."""
    for pid in tuple(_children):
        try:
            done = os.waitpid(pid, os.WNOHANG)[0]
        except ChildProcessError:
            done = pid
        if done:
            _children.discard(pid)
