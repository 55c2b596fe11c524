"""What the tests of the Python surface share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import resile
from resile import Run, Workflow


class Place:
    """A folder with a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = str(folder / "resile.db")

    def run(self, flow: Workflow, **more: Any) -> Run:
        """Run a workflow here."""
        return resile.run(flow, db=self.db, output=str(self.folder / "output"), **more)

    def failures(self, run: Run) -> dict[str, Any]:
        """The failure of each job's last attempt, by its step."""
        from resile.store.open import open_store

        store = open_store(self.db, readonly=True)
        try:
            names = {job.id: job.step for job in store.jobs(run.id)}
            return {names[row.job]: row.failure for row in store.attempts(run.id) if row.failure is not None}
        finally:
            store.close()

    def notes(self, run: Run) -> list[tuple[str, str]]:
        """The canonical events of a run: type and step."""
        from resile.store.open import open_store

        store = open_store(self.db, readonly=True)
        try:
            return [(note.type, note.step) for note in store.notes(run.id)]
        finally:
            store.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty folder."""
    return Place(tmp_path)


@pytest.fixture(params=["processes", "threads"])
def workers(request: pytest.FixtureRequest) -> Any:
    """Both kinds of workers, one after the other."""
    return request.param
