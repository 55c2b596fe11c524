"""One process for each version that compiles whatever file it is given, and what is the same in both versions."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).parent / "driver.py"
COMPILE_SECONDS_MAX = 60.0


class Version:
    """One version of Resile: its sources, and an interpreter that knows these and no others.

    A variable such as PYTHONPATH would not do: the programs that run steps start interpreters which ignore it, and
    those would load what is installed here. So a version has an environment of its own, in which the packages of
    this one are, except for what is installed by a link to its sources.
    """

    def __init__(self, name: str, tree: Path, folder: Path) -> None:
        self.name = name
        self.sources = (tree / "src").resolve()
        self._home = (folder / f"python-{name}").resolve()
        self.python = str(self._home / "bin" / "python")

    def prepare(self) -> None:
        """Make the environment, and compile the sources so that each process need not."""
        venv.create(self._home, clear=True, symlinks=True, with_pip=False)
        (site,) = self._home.glob("lib/python*/site-packages")
        # A folder that is named in such a file is searched, but the files of this kind in it are not read.
        (site / "version.pth").write_text(f"{self.sources}\n{sysconfig.get_path('purelib')}\n")
        subprocess.run([self.python, "-m", "compileall", "-q", str(self.sources)], check=True)

    def neutral(self, text: str) -> str:
        """A text without the places of this version."""
        return text.replace(str(self.sources), "<sources>").replace(str(self._home), "<python>")


class Compiler:
    """The driver of one version; it is started again where a file was the end of it."""

    def __init__(self, version: Version, folder: Path) -> None:
        self.version = version
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def ask(self, path: Path) -> None:
        """Begin with a file."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(str(path)).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of the file."""
        line = self._line()
        if line is None:
            self.close()
            return {"crash": f"no answer within {COMPILE_SECONDS_MAX:.0f} s, or the end of the process"}
        told: dict[str, Any] = json.loads(self.version.neutral(line.decode()))
        return told

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process, self._rest = None, b""

    def _start(self) -> None:
        """Start the driver and make sure that it is this version which it has loaded."""
        self._process = subprocess.Popen(
            [self.version.python, "-P", str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        line = self._line()
        home = Path(json.loads(line)["home"]) if line is not None else None
        if home is None or not home.is_relative_to(self.version.sources):
            raise RuntimeError(f"the {self.version.name} version does not load from {self.version.sources}, but {home}")

    def _line(self) -> bytes | None:
        """The next line; None where the process ended or takes too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], COMPILE_SECONDS_MAX)
            data = os.read(self._process.stdout.fileno(), 1 << 20) if ready else b""
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line
