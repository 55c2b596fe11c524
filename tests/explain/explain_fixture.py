"""Runs whose explanation is compared word by word."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from tests.runs.ladder.flows import Flows


class ExplainFlows(Flows):
    """Workflows in one folder, and what `resile explain` says of them."""

    def run_and_explain(self, text: str, code: int = 0, *words: str) -> str:
        """Run a workflow, which must exit with this code, and explain it (or the step named by a word)."""
        options = [word for word in words if word.startswith("--")]
        self.run(dedent(text).lstrip(), code, *options)
        return self.explain(*(word for word in words if not word.startswith("--")))

    def explain(self, *words: str, run: int = 1) -> str:
        """What is said of a run, or of one step or item."""
        return self.program.call("explain", str(run), *words, code=0).stdout

    def file(self, name: str, text: str) -> Path:
        """Another file in the folder."""
        path = self.folder / name
        path.write_text(dedent(text).lstrip())
        return path


def lines(text: str) -> str:
    """The expected words, as they stand in a test."""
    return dedent(text).lstrip()
