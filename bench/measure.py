"""Wall and CPU time of one command and of every process it leaves behind.

    bench --fork--> reaper (child subreaper) --spawn--> command --> launcher, shells, steps ...

A workflow engine may hand its work to processes that are not its children when they end, and their CPU time
would then be missing from its own `wait4`. The reaper adopts every orphan below it and waits until none is
left, so its RUSAGE_CHILDREN holds the whole tree. Wall time stops when the command itself ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

PR_SET_CHILD_SUBREAPER = 36
MEASURE_SECONDS_MAX = 900
ERROR_BYTES_MAX = 2_000


class Sample(NamedTuple):
    """One timing; `rss_bytes_max` is the largest process among the command and those it waited for."""

    wall_seconds: float
    cpu_seconds: float
    rss_bytes_max: int
    started_at: float


class CommandFailed(Exception):
    """A measured command did not exit 0, so its time means nothing."""


def measure(argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Sample:
    """Run a command in `folder`, its output in the files `stdout` and `stderr` there, and time its whole tree."""
    reading, writing = os.pipe()
    reaper = os.fork()
    if reaper == 0:
        os.close(reading)
        _reap(argv, folder, {**os.environ, **(env or {})}, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(reaper, 0)
    if not data:
        raise CommandFailed(f"{' '.join(argv[:4])} did not end within {MEASURE_SECONDS_MAX} s, or could not be started")
    exit_code, *numbers = json.loads(data)
    if exit_code != 0:
        errors = (folder / "stderr").read_bytes()[-ERROR_BYTES_MAX:].decode(errors="replace")
        raise CommandFailed(f"{' '.join(argv[:4])} exited {exit_code}\n{errors}")
    return Sample(*numbers)


def _reap(argv: Sequence[str], folder: Path, env: Mapping[str, str], answer: int) -> NoReturn:
    """The forked side: run, wait for everything, write one JSON line, and leave without Python's clean-up."""
    signal.alarm(MEASURE_SECONDS_MAX)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.chdir(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, "stdout", flags, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, "stderr", flags, 0o644),
    ]
    try:
        started_at = time.time()
        begin = time.perf_counter()
        pid = os.posix_spawnp(argv[0], list(argv), env, file_actions=files)
        _, status, usage = os.wait4(pid, 0)
        wall_seconds = time.perf_counter() - begin
        _wait_for_orphans()
        tree = resource.getrusage(resource.RUSAGE_CHILDREN)
        row = (
            os.waitstatus_to_exitcode(status),
            wall_seconds,
            tree.ru_utime + tree.ru_stime,
            usage.ru_maxrss * 1024,
            started_at,
        )
        os.write(answer, json.dumps(row).encode())
    finally:
        os._exit(0)


def _wait_for_orphans() -> None:
    """Reap adopted processes until there is none; the alarm bounds it."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return
