"""A pseudo terminal around the program, for tests of what a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from tests.cli.program import DEADLINE_SECONDS, Program

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program whose three streams are one terminal."""

    def __init__(self, program: Program, *words: str, columns: int = 80, lines: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        self._height = lines
        self.resize(columns)
        self.process = subprocess.Popen(
            [*program.argv, *words],
            cwd=program.folder,
            env=program.env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.data = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def raw(self) -> str:
        """What was written."""
        return self.data.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """What was written, without the movements of the cursor."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n").replace("\r", "\n")

    def resize(self, columns: int) -> None:
        """Give the terminal another width, as a person does with a mouse."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", self._height, columns, 0, 0))

    def read_more(self) -> None:
        """Read what comes next."""
        assert self._read(time.monotonic() + DEADLINE_SECONDS), f"the program has ended: {self.text}"

    def press_ctrl_c(self) -> None:
        """As a person does: the terminal then signals its whole foreground group."""
        os.write(self._ours, b"\x03")

    def until(self, needle: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Read until this was shown."""
        deadline = time.monotonic() + seconds
        while needle not in self.text:
            assert self._read(deadline), f"{needle!r} was not shown: {self.text}"

    def end(self) -> int:
        """Read everything; the exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(DEADLINE_SECONDS)

    def _read(self, deadline: float) -> bool:
        """One piece; False when the other side is closed."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the deadline passed; shown was {self.text}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.data += data
        return bool(data)
