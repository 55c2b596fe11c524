"""The filter of a fan-out: a JavaScript expression that selects items, in a process of its own.

with closing(Filter(code, bare, seconds_max)) as wanted:
    wanted.judge([(index, text), ...]) -> [True, False, ...]       ItemsRefused names the item that failed
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from resile.executors.programs.items.text import ItemsRefused, decode
from resile.model.limits import EXPRESSION_BYTES_MAX

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "filter_process.py")
_READ_BYTES = 64 * 1024


class Filter:
    """One process that evaluates the filter for each item; `close` ends it."""

    def __init__(self, code: str, bare: bool, seconds_max: float) -> None:
        import subprocess

        size = len(code.encode("utf-8", "surrogatepass"))
        if size > EXPRESSION_BYTES_MAX:
            raise ItemsRefused(f"the filter has {size} bytes, at most {EXPRESSION_BYTES_MAX} are allowed")
        self._seconds_max = seconds_max
        self._deadline = time.monotonic() + seconds_max
        # Pass no part of the environment, which may contain secrets, except what the interpreter needs to start.
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._items, self._answers = self._process.stdin, self._process.stdout
        import json

        self._send(json.dumps([code, bare]).encode() + b"\n")

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._items.close()
        self._answers.close()

    def judge(self, items: Sequence[tuple[int, bytes]]) -> list[bool]:
        """Whether the filter selects each of these items; each is given with its index."""
        self._send(b"".join(text + b"\n" for _, text in items))
        answers = self._read_answers(len(items))
        done, _, why = answers.partition(b"!")
        if len(done) < len(items):
            index = items[len(done)][0]
            raise ItemsRefused(f"filter at item {index}: {decode(why) if why else self._exit_reason()}")
        if time.monotonic() > self._deadline:
            raise ItemsRefused(f"the filter took more than {self._seconds_max:g} s, up to item {items[-1][0]}")
        return [answer == ord("1") for answer in done]

    def _send(self, data: bytes) -> None:
        """Write all data, unless the process has exited."""
        rest = memoryview(data)
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._items.fileno(), rest) :]

    def _read_answers(self, count: int) -> bytes:
        """Read this many answers; fewer if one is an error, which is the last."""
        answers = b""
        while b"!" in answers or len(answers) < count:
            more = os.read(self._answers.fileno(), _READ_BYTES)
            if not more:
                break
            answers += more
        return answers

    def _exit_reason(self) -> str:
        """Why a process exited that printed no reason."""
        import signal

        code = self._process.wait()
        if code == -signal.SIGPROF:
            return "it took too much CPU time and could not be asked to stop"
        return f"its process ended with {code}"
