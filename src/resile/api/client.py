"""`Client`: the runs of one database, for programs that look at them, continue them and judge their failures."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any, Literal

from msgspec import Struct, to_builtins

from resile.api import run as runs
from resile.api.run import OnEvent, Run
from resile.api.workflow import Workflow
from resile.commands.client import Client as Commands


class Client:
    """The runs of a database: `db` is a path or an address, as `--db` takes it."""

    def __init__(self, db: str | None = None) -> None:
        self.db = runs.database_for(db)

    def runs(self) -> list[dict[str, Any]]:
        """All runs: number, workflow, status, times and counts of steps, as `resile status --json` prints them."""
        with Commands.at(self.db) as commands:
            return [_plain(run) for run in commands.runs().runs]

    def get(self, run: int) -> dict[str, Any]:
        """One run with its jobs, as `resile status RUN --json` prints it."""
        with Commands.at(self.db) as commands:
            return _plain(commands.status(run))

    def submit(
        self,
        workflow: Workflow | str | PathLike[str],
        *,
        inputs: dict[str, Any] | None = None,
        max_parallel: int | None = None,
        on_event: OnEvent | None = None,
    ) -> Run:
        """Run a workflow in this database."""
        return runs.run(workflow, db=self.db, inputs=inputs, max_parallel=max_parallel, on_event=on_event)

    def resume(self, run: int, *, max_parallel: int | None = None, on_event: OnEvent | None = None) -> Run:
        """Continue a run that was interrupted or is parked."""
        return runs.resume(run, db=self.db, max_parallel=max_parallel, on_event=on_event)

    def cancel(self, run: int, reason: str = "") -> dict[str, Any]:
        """Cancel a run: ask the engine that drives it; without an engine, drive the run to its `end` here."""
        with Commands.at(self.db) as commands:
            return _plain(commands.cancel(run, reason, runs.EventListener(None)))

    def judge(
        self,
        run: int,
        step: str,
        verdict: Literal["retry", "skip", "fail"],
        *,
        reason: str = "",
        output: Any = None,
        memory_bytes: int = 0,
        runtime_seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Decide on a parked failure; `resume` then continues the run.

        `output` is the output of a skipped step; `memory_bytes` and `runtime_seconds` are resources for a retried one.
        """
        from resile.commands.judge import Judgement

        judgement = Judgement(
            verdict=verdict, reason=reason, output=output, memory_bytes=memory_bytes, runtime_seconds=runtime_seconds
        )
        with Commands.at(self.db) as commands:
            return _plain(commands.judge(run, step, judgement))

    def explain(self, run: int, step: str | None = None) -> dict[str, Any]:
        """The failures of a run, which rule answered each and why, as `resile explain --json` prints it."""
        with Commands.at(self.db) as commands:
            return _plain(commands.explain(run, step))

    def dead_letters(self, run: int, step: str | None = None) -> Iterator[dict[str, Any]]:
        """The items of a run that failed for good, with their history."""
        with Commands.at(self.db) as commands:
            yield from map(_plain, commands.dead_letters(run, step))


def _plain(document: Struct) -> dict[str, Any]:
    plain: dict[str, Any] = to_builtins(document)
    return plain
