"""The acts of an agent on a database: separate processes, which outlive the agent, carry out those that start steps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from msgspec import to_builtins

from resile.commands.agents.judge_many import AGENT
from resile.commands.client import Client
from resile.commands.load import CompileOptions
from resile.commands.service.submit import SubmitOptions, TextCall, submit_text
from resile.engine.session import caller
from resile.server.mcp.toolbox import Acts, Right, Toolbox
from resile.store.open import default_output, open_store
from resile.store.server_tables import SharedStore


class LocalActs(Acts):
    """Acts on the database `db`."""

    def __init__(self, client: Client, store: SharedStore, db: str | None, by: str) -> None:
        self._client = client
        self._store = store
        self._db = db
        self._by = by

    def ring(self, run: int) -> None:
        """Do nothing: if a server drives the run, it knows already; else `resile resume` continues the run."""

    def redrive(self, run: int, condition: str | None) -> dict[str, Any]:
        """Start `resile dlq retry` as a process of its own."""
        words = ["dlq", "retry", str(run)] + ([] if condition is None else ["--filter", condition])
        self._start(words)
        return {"run": run, "started": True}

    def run_text(self, text: str, dialect: str, inputs: dict[str, Any]) -> int:
        """Store the run, and start a process that drives it unless a server does."""
        call = TextCall(
            text=text,
            output=os.path.abspath(default_output(self._db)),
            compile_options=CompileOptions(dialect),
            inputs=inputs,
        )
        run = submit_text(self._store, call, SubmitOptions(by=self._by)).run
        self._start(["resume", str(run)])
        return run

    def cancel(self, run: int, reason: str) -> dict[str, Any]:
        """Ask the engine that drives the run, or end it here."""
        done: dict[str, Any] = to_builtins(self._client.cancel(run, reason, _Silent()))
        return done

    def _start(self, words: list[str]) -> None:
        """Start a command of Resile that goes on without this process; its output is in the database."""
        db = [] if self._db is None else ["--db", self._db]
        subprocess.Popen(
            [sys.executable, "-m", "resile", *words, *db],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


class _Silent:
    """Ignores the notes of an engine, because stdout belongs to the protocol."""

    debug: Callable[[str], None] | None = None

    def on_start(self, *_: object) -> None:
        """Nothing to do."""

    def notes(self, *_: object) -> None:
        """Nothing to do."""

    def warn(self, text: str) -> None:
        """Nothing to do."""

    def introduce(self, text: str) -> None:
        """Nothing to do."""


def serve_database(db: str | None, rights: frozenset[Right], judge_quota: int) -> None:
    """Serve one agent over stdin and stdout; each call opens the database on its own thread."""
    from resile.server.mcp.serve import make_server, serve_stdio

    by = f"{AGENT}{caller()}"
    open_store(db, readonly=True).close()

    @contextmanager
    def open_toolbox(_: object) -> Iterator[Toolbox]:
        """Open the database for one call."""
        with closing(open_store(db)) as store:
            client = Client(store)
            yield Toolbox(client, store, LocalActs(client, store, db, by), by, rights, judge_quota)

    serve_stdio(make_server(open_toolbox))
