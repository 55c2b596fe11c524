"""Calls with limits that the kernel holds: 150 ms of CPU time and 64 MB, in a fork of this process.

    engine ---- fork ----> child: limits set, make() called, its result written to a pipe, end
           <--- pipe ----  the result; or the end of the pipe, and the signal that ended the child says why

Python can't interrupt native code such as `'a'.center(10**9)`, so the call has a process of its own. The child shares
the values of the engine and changes none of them; it runs no other code of the engine, and ends without clean-up. CPU
time decides, not wall time: on a busy machine the evaluation waits, and the engine does other things (waiting.py).
"""

from __future__ import annotations

import marshal
import os
import resource
import signal
from collections.abc import Callable
from threading import Lock
from typing import Any

from resile.languages.waiting import waiting
from resile.model.limits import TEMPLATE_CPU_SECONDS_MAX, TEMPLATE_MEMORY_BYTES_MAX

_PIECE_BYTES = 1024 * 1024
_is_child = False
# A child of another thread must not inherit the writing end of the pipe: reading would end only with that child.
_forking = Lock()


class TooMuch(Exception):
    """The call needed more CPU time or memory than it may have."""


def call_bounded(make: Callable[[], Any]) -> Any:
    """The result of `make`, which must be plain data and may not raise; raises TooMuch at a limit."""
    if _is_child:
        # The limits of the outer call hold for this one as well.
        return make()
    with _forking:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run_child(make, theirs)
        os.close(theirs)
    with waiting():
        data, status = _result_of(pid, ours)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        raise TooMuch(f"it takes more than {TEMPLATE_CPU_SECONDS_MAX * 1e3:.0f} ms of CPU time")
    if status != 0:
        raise TooMuch(f"it needs more than {TEMPLATE_MEMORY_BYTES_MAX >> 20} MB of memory")
    return marshal.loads(data)


def _result_of(pid: int, pipe: int) -> tuple[bytes, int]:
    """All that a child writes to a pipe, and its wait status."""
    data = bytearray()
    try:
        while piece := os.read(pipe, _PIECE_BYTES):
            data += piece
    finally:
        os.close(pipe)
        status = os.waitpid(pid, 0)[1]
    return bytes(data), status


def _run_child(make: Callable[[], Any], pipe: int) -> None:
    """Make the call in the child, and end it."""
    global _is_child
    _is_child = True
    code = 1
    try:
        # Signals concern the engine, which this process still shares a socket for them with.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit = _address_space_bytes() + TEMPLATE_MEMORY_BYTES_MAX
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
        signal.setitimer(signal.ITIMER_PROF, TEMPLATE_CPU_SECONDS_MAX)
        data = marshal.dumps(make())
        signal.setitimer(signal.ITIMER_PROF, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(pipe, view) :]
        code = 0
    finally:
        os._exit(code)


def _address_space_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
