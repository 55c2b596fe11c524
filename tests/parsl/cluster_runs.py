"""Runs on blocks: starts the program, looks at its processes, and reads what became of a run."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

DEADLINE_SECONDS = 480.0


def missing(what: str) -> None:
    """Skip a test because something is not installed; where CI runs, that is an error."""
    assert not os.environ.get("CI"), what
    pytest.skip(what)


def wait_for(what: str, holds: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait until something holds; return it."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        select.select([], [], [], 0.05)
    return found


class Place:
    """A folder with a database, a shared directory, and a file for `--executor`."""

    def __init__(self, folder: Path, env: Mapping[str, str] = {}) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.toml = folder / "cluster.toml"
        self.env = {**os.environ, "RESILE_DB": str(folder / "resile.db"), **env}

    def describe(self, **keys: object) -> None:
        """Write the file for `--executor`."""
        given = {"kind": "parsl", "directory": str(self.shared), **keys}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in given.items()]
        self.toml.write_text("[executor]\n" + "".join(lines))

    def write(self, text: str) -> Path:
        """Write a workflow."""
        path = self.folder / "flow.yaml"
        path.write_text(text)
        return path

    def popen_words(self) -> list[str]:
        """The words that start the program."""
        return [sys.executable, "-m", "resile"]

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """Start the program."""
        return subprocess.Popen(
            [*self.popen_words(), *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: str, seconds: float = DEADLINE_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        process = self.popen(*words)
        out, err = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run(self, text: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a workflow on blocks."""
        return self.call("run", str(self.write(text)), "--executor", str(self.toml), *words)

    def start(self, text: str, *words: str) -> subprocess.Popen[str]:
        """Start a run on blocks."""
        return self.popen("run", str(self.write(text)), "--executor", str(self.toml), *words)

    def events(self, run: int = 1) -> list[dict[str, Any]]:
        """The events of a run so far."""
        found = self.call("events", "list", str(run), "--json")
        return [json.loads(line) for line in found.stdout.splitlines()] if not found.returncode else []

    def processes(self) -> list[str]:
        """The command lines of all processes of blocks that belong to this place."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if str(self.shared) in words and state != "Z":
                    found.append(f"{name} {words}")
        return found

    def agents(self) -> list[int]:
        """The processes of agents."""
        return [int(line.split()[0]) for line in self.processes() if "node.pyz" in line and "-S -E" in line]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place whose blocks are on this machine."""
    found = Place(tmp_path)
    found.describe(provider="local", workers_per_node=2, blocks_max=2, idle="30s")
    return found
