"""Runs of the real command line that are killed at random moments and resumed until they end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

RESILE = [sys.executable, "-m", "resile.cli.main"]


def times(name: str, usual: int) -> int:
    """How often a suite does something; `RESILE_KILLS=1000 RESILE_STOPS=50 RESILE_CUTS=50 make test-slow` says it."""
    return int(os.environ.get(name, str(usual)))


# On a fast machine many runs end before the moment of their kill, so suites go on until there were enough kills.
ROUNDS_MAX = max(400, 4 * times("RESILE_KILLS", 0))


class Runs:
    """One database and one folder, in which runs are started, killed and resumed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.effects = folder / "effects"
        self.effects.touch()
        self.env = {**os.environ, "RESILE_DB": str(folder / "state" / "resile.db"), "EFFECTS": str(self.effects)}
        self._patience, self._size = 1.0, -1

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A command that goes on by itself."""
        return subprocess.Popen(
            [*RESILE, *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def call(self, *words: str) -> tuple[int, dict[str, Any]]:
        """A command with --json: its exit code and its document."""
        done = subprocess.run(
            [*RESILE, *words, "--json"], cwd=self.folder, env=self.env, capture_output=True, check=False
        )
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    def kill_at_random(self, process: subprocess.Popen[bytes], chance: random.Random, seconds_max: float) -> bool:
        """Kill an engine after a random time, unless the command ends before; did it?

        Where nothing happened since the last time, as on a busy machine, the engine gets more time.
        """
        size = self.effects.stat().st_size
        self._patience = self._patience * 1.4 if size == self._size else max(1.0, self._patience / 2)
        self._size = size
        return kill_at_random(process, process.pid, chance, seconds_max * self._patience)

    def counted(self) -> Counter[str]:
        """How often each effect has happened."""
        return Counter(self.effects.read_text().split())

    def number(self) -> int:
        """The newest run's number, 0 before there is one."""
        from resile.store.errors import StoreMissing
        from resile.store.open import open_store

        try:
            store = open_store(self.env["RESILE_DB"], readonly=True)
        except StoreMissing:
            # Also where an engine was killed while it made the database.
            return 0
        try:
            runs = store.runs(1)
            return runs[0].id if runs else 0
        finally:
            store.close()

    def notes(self) -> list[Any]:
        """The notes of the newest run."""
        from resile.store.open import open_store

        store = open_store(self.env["RESILE_DB"], readonly=True)
        try:
            return list(store.notes(self.number()))
        finally:
            store.close()

    def noted(self, kind: str) -> Counter[str]:
        """How often the log of the newest run says this, by step."""
        return Counter(note.step for note in self.notes() if note.type == kind)

    def attempts(self) -> Counter[tuple[int, int]]:
        """How often the log says that each attempt of a job began."""
        return Counter((note.job, note.attempt) for note in self.notes() if note.type == "attempt_started")

    def output(self) -> str:
        """What the steps of the newest run printed."""
        argv = [*RESILE, "logs", str(self.number())]
        done = subprocess.run(argv, cwd=self.folder, env=self.env, capture_output=True, check=True, text=True)
        return done.stdout

    def launcher(self, engine: int) -> int:
        """The process id of the launcher that an engine started, 0 where there is none yet."""
        try:
            children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
        except OSError:
            return 0
        return int(children[0]) if children else 0


def kill_at_random(process: subprocess.Popen[bytes], pid: int, chance: random.Random, seconds_max: float) -> bool:
    """Kill a process after a random time unless the command ends before; did it?"""
    try:
        process.wait(timeout=chance.uniform(0.0, seconds_max))
    except subprocess.TimeoutExpired:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True
    return False
