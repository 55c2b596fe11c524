"""A folder in which Prodigy files run, with an agent that writes down what it is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.program import Program
from tests.runs.ladder.flows import STEP

# Answers every prompt by writing it to the trace; `/reach N` makes the result that a validation reads.
CLAUDE = """#!/bin/sh
shift
echo "agent: $*" >> "$TRACE"
case "$1" in
  "/reach "*) echo "{\\"completion_percentage\\": ${1##* }, \\"gaps\\": {\\"g1\\": \\"it's \\$HOME\\"}}" > result.json;;
  "/commit"*)
    if test -n "$AGENT_BRANCHES"; then git branch --show-current >> "$(dirname "$TRACE")/branches"; fi
    git commit -q --allow-empty -m "done${1#/commit}" ;;
esac
"""


class Folder:
    """A folder with `./step` and an agent called `claude`, in which Prodigy files run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.program = Program(path)
        (path / "bin").mkdir()
        # An item may work in another folder.
        for name, text in (("step", STEP.replace(" trace", ' "$TRACE"')), ("bin/claude", CLAUDE)):
            (path / name).write_text(text)
            (path / name).chmod(0o755)
        self.program.env["TRACE"] = str(path / "trace")
        self.program.env["PATH"] = f"{path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def run(self, text: str, *words: str, code: int = 0) -> list[str]:
        """Run a file; the trace that its steps left."""
        (self.path / "trace").unlink(missing_ok=True)
        self.program.write(text, "flow.yml")
        self.document: dict[str, Any] = self.program.json("run", "flow.yml", "--max-parallel", "1", *words, code=code)
        trace = self.path / "trace"
        return trace.read_text().split("\n")[:-1] if trace.exists() else []

    @property
    def status(self) -> dict[str, str]:
        """The status of each step of the workflow."""
        jobs = [job for job in self.document["jobs"] if job["scope"] == "root" and job["step"] != "end"]
        words = ("recovered", "tolerated")
        return {job["step"]: next((word for word in words if job[word]), job["status"]) for job in jobs}

    def repository(self) -> None:
        """Make the folder a git repository with one commit, of `./step`."""
        for words in (
            ["init", "-q", "-b", "main"],
            ["config", "user.name", "a"],
            ["config", "user.email", "a@b.c"],
            ["add", "step"],
            ["commit", "-q", "-m", "start"],
        ):
            subprocess.run(["git", *words], cwd=self.path, check=True, timeout=20)

    def git(self, *words: str) -> list[str]:
        """The lines that git prints."""
        done = subprocess.run(["git", *words], cwd=self.path, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.splitlines()
