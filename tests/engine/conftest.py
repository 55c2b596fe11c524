"""A folder with its own database, in which workflow texts are run by the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


class Place:
    """Where a test runs its workflows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.env = {**os.environ, "RESILE_DB": str(self.state / "r.db")}

    def run(self, text: str, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        """Run a workflow text to its end: exit code and document."""
        (self.folder / "flow.yaml").write_text(text, errors="surrogateescape")
        return self.call("run", "flow.yaml", *words, env=env)

    def call(self, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        """Any command with --json."""
        done = subprocess.run(
            [sys.executable, "-m", "resile.cli.main", *words, "--json"],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            capture_output=True,
            check=False,
        )
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    def events(self, run: int) -> list[dict[str, Any]]:
        """The canonical events of a run."""
        done = subprocess.run(
            [sys.executable, "-m", "resile.cli.main", "events", "ls", str(run), "--json"],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def text(self, name: str) -> str:
        """A file that a step wrote."""
        return (self.folder / name).read_text(errors="surrogateescape")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A fresh folder."""
    return Place(tmp_path)


def statuses(document: Mapping[str, Any]) -> dict[str, str]:
    """Each step's status by name."""
    return {job["step"]: job["status"] for job in document["jobs"]}
