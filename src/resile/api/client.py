"""`Client`: the runs of one database or server, for programs that look at them, continue them and judge failures."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike, fspath
from typing import Any, Literal

from msgspec import Struct, to_builtins

from resile.api import run as runs
from resile.api.run import OnEvent, Run
from resile.api.workflow import Workflow
from resile.commands.client import Client as Commands
from resile.errors import ResileError


class Client:
    """The runs of a database, or of a server.

    `db` is a path or an address, as `--db` takes it, or the URL of a server; its `token` is that of the variable
    RESILE_TOKEN if it is not given.
    """

    def __init__(self, db: str | None = None, *, token: str | None = None) -> None:
        self.db = runs.database_for(db)
        self._token = token
        if token is not None and not runs.is_server(self.db):
            raise ResileError("bad-call", "a token is for a server", hint='Client("http://127.0.0.1:8700", token=…)')

    def _commands(self) -> Commands:
        """The commands on the database or the server."""
        return runs.commands_at(self.db, self._token)

    def runs(self) -> list[dict[str, Any]]:
        """All runs: number, workflow, status, times and counts of steps, as `resile status --json` prints them."""
        from resile.commands.inspect import RunFilter

        with self._commands() as commands:
            return [_plain(run) for run in commands.runs(RunFilter(limit=None)).runs]

    def get(self, run: int) -> dict[str, Any]:
        """One run with its jobs, as `resile status RUN --json` prints it."""
        with self._commands() as commands:
            return _plain(commands.status(run))

    def submit(
        self,
        workflow: Workflow | str | PathLike[str],
        *,
        inputs: dict[str, Any] | None = None,
        max_parallel: int | None = None,
        on_event: OnEvent | None = None,
    ) -> Run:
        """Run a workflow in this database, or on this server, to its end."""
        if runs.is_server(self.db):
            if isinstance(workflow, Workflow):
                workflow = workflow.file
            call = runs.call_of(fspath(workflow), inputs, max_parallel)
            with self._commands() as commands:
                return Run(commands.run(call, runs.EventListener(on_event)), self.db)
        return runs.run(workflow, db=self.db, inputs=inputs, max_parallel=max_parallel, on_event=on_event)

    def resume(self, run: int, *, max_parallel: int | None = None, on_event: OnEvent | None = None) -> Run:
        """Continue a run that was interrupted or is parked."""
        if runs.is_server(self.db):
            with self._commands() as commands:
                return Run(commands.resume(run, runs.limits_of(max_parallel), runs.EventListener(on_event)), self.db)
        return runs.resume(run, db=self.db, max_parallel=max_parallel, on_event=on_event)

    def cancel(self, run: int, reason: str = "") -> dict[str, Any]:
        """Cancel a run: ask the engine that drives it; without an engine, drive the run to its `end` here."""
        with self._commands() as commands:
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
        with self._commands() as commands:
            return _plain(commands.judge(run, step, judgement))

    def explain(self, run: int, step: str | None = None) -> dict[str, Any]:
        """The failures of a run, which rule answered each and why, as `resile explain --json` prints it."""
        with self._commands() as commands:
            return _plain(commands.explain(run, step))

    def dead_letters(self, run: int, step: str | None = None) -> Iterator[dict[str, Any]]:
        """The items of a run that failed for good, with their history."""
        with self._commands() as commands:
            yield from map(_plain, commands.dead_letters(run, step))


def _plain(document: Struct) -> dict[str, Any]:
    plain: dict[str, Any] = to_builtins(document)
    return plain
