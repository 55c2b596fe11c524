"""The real program in a folder of its own, and gates by which tests and steps wait for each other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import resile
from tests.cli.warm import warm_process

SOURCES = str(Path(resile.__file__).parent.parent)
DEADLINE_SECONDS = 60.0
"""Far more than any command needs: on a loaded machine only a command that hangs may reach it."""


class Program:
    """Calls `resile` in one folder with one database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        drop = ("NO_COLOR", "COLUMNS", "LINES", "RESILE_OUTPUT_DIR", "RESILE_TRACEBACK", "FORCE_COLOR")
        self.env = {name: value for name, value in os.environ.items() if name not in drop}
        self.env |= {"RESILE_DB": str(folder / "resile.db"), "PYTHONPATH": SOURCES, "TERM": "xterm-256color"}
        self.argv = [sys.executable, "-m", "resile.cli.main"]

    def write(self, text: str, name: str = "flow.yaml") -> str:
        """Put a workflow into the folder; its name."""
        (self.folder / name).write_text(text)
        return name

    def call(self, *words: str, code: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; with `code` it must exit so."""
        done = subprocess.run(
            [*self.argv, *words],
            cwd=self.folder,
            env=self.env | env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=DEADLINE_SECONDS,
        )
        if code is not None:
            assert done.returncode == code, done
        return done

    def call_warm(self, *words: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command to its end in a fork of a warm interpreter, as `call` does in a new one."""
        done = subprocess.CompletedProcess(
            [*self.argv, *words], *warm_process().run(list(words), str(self.folder), self.env, DEADLINE_SECONDS)
        )
        if code is not None:
            assert done.returncode == code, done
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        """The one document that a command prints."""
        return msgspec.json.decode(self.call(*words, "--json", code=code).stdout)

    def start(self, *words: str) -> Started:
        """Start a command and look on."""
        return Started([*self.argv, *words], self.folder, self.env)

    def gate(self, name: str) -> Gate:
        """A named pipe in the folder."""
        return Gate(self.folder / name)


class Gate:
    """A named pipe: a step reports by writing a line to it, or waits by reading one from it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open for both, so that neither opening nor writing ever waits for the other side.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def wait(self) -> None:
        """Until something was written."""
        ready, _, _ = select.select([self._pipe], [], [], DEADLINE_SECONDS)
        assert ready, "nobody came to the gate"
        os.read(self._pipe, 1024)

    def open(self, times: int = 1) -> None:
        """Let so many readers pass."""
        os.write(self._pipe, b"go\n" * times)


class Started:
    """A command that is going on; its two streams can be waited for."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._pipes = {self.process.stdout.fileno(): "out", self.process.stderr.fileno(): "err"}
        self.text = {"out": "", "err": ""}

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def send(self, number: signal.Signals) -> None:
        """A signal to this process alone."""
        self.process.send_signal(number)

    def until(self, stream: str, needle: str) -> None:
        """Read until a stream has said this."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while needle not in self.text[stream]:
            assert self._read(deadline), f"{needle!r} did not come; said was {self.text}"

    def end(self) -> int:
        """Read everything; the exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(DEADLINE_SECONDS)

    def _read(self, deadline: float) -> bool:
        """One piece of either stream; False when both are at their end."""
        if not self._pipes:
            return False
        ready, _, _ = select.select(list(self._pipes), [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the deadline passed; said was {self.text}"
        for pipe in ready:
            data = os.read(pipe, 65536)
            if data:
                self.text[self._pipes[pipe]] += data.decode()
            else:
                del self._pipes[pipe]
        return True


def rule_text(rule: dict[str, Any]) -> str:
    """A rule of a document as text shows it: its place, then its words; the words alone where it has no place."""
    if rule["line"] is None:
        assert (rule["file"], rule["column"]) == (None, None)
        return str(rule["text"])
    return f"{rule['file']}:{rule['line']}:{rule['column']} {rule['text']}"
