"""Hosts in processes of their own, the runs that are enqueued for them, and what became of these."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from resile.commands.start.call import ResourceLimits, RunCall
from resile.commands.start.prepare import prepare
from resile.core.events import Options, RunStarted
from resile.engine.clock import clock_of
from resile.engine.replay import fold_log, row_of
from resile.engine.session import create
from resile.store.contract import AttemptRow
from resile.store.lease import boot_seconds
from resile.store.open import open_store
from tests.executors.local.driver import wait_for

ROOT = Path(__file__).parent.parent.parent
RESILE = [sys.executable, "-m", "resile.cli.main"]
TAKE_OVER_SECONDS_MAX = 20.0


class Hosts:
    """Some hosts on one database, in one folder; steps run in it."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.database = database
        self.store = open_store(database)
        self.tables = self.store.server_tables()
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, slots: int = 2, output: str = "output") -> subprocess.Popen[str]:
        """Start a host, and wait until it is ready."""
        words = [sys.executable, "-m", "tests.host.process", self.database, str(self.folder / output), str(slots)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(words, cwd=self.folder, env=env, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def submit(self, text: str, *, priority: int = 0, parallel: int = 100, count: int = 1) -> list[int]:
        """Enqueue runs of a workflow; return their numbers."""
        path = self.folder / "workflow.yaml"
        path.write_text(f"resile: 1\nname: t\n{text}")
        call = RunCall(path=str(path), limits=ResourceLimits(max_parallel=parallel))
        loaded, inputs, capacity = prepare(call, self.store)
        runs = []
        for _ in range(count):
            clock = clock_of()
            first = RunStarted(clock.now(), capacity, inputs, Options(), clock.machine, loaded.source)
            output, directory = str(self.folder / "output"), str(self.folder)
            row, _ = create(self.store, loaded.workflow, loaded.definition, first, output=output, directory=directory)
            self.tables.enqueue(row.id, time.time(), priority)
            runs.append(row.id)
        return runs

    def ask(self, run: int, kind: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Leave a request for a run, and wait for its result."""
        number = self.store.request(run, time.time(), kind, {"by": "ann", **(body or {})})
        self.tables.enqueue(run, time.time())
        result = wait_for(lambda: self.store.result(number))
        assert result is not None
        return result

    def status(self, run: int) -> str:
        """What the row of a run says."""
        return row_of(self.store, run).status

    def wait(self, run: int, status: str = "completed") -> None:
        """Wait until a run has this status, and no server has its lease."""
        wait_for(lambda: self.status(run) == status and self.store.lease(run, boot_seconds()) is None)

    def wait_until_released(self, run: int) -> None:
        """Wait until no process drives a run any more, which has not ended."""
        wait_for(lambda: self.store.lease(run, boot_seconds()) is None)

    def jobs(self, run: int) -> dict[str, str]:
        """The status of each step of a run, from its log."""
        state = fold_log(self.store, row_of(self.store, run))
        return {state.step_of(job).name: job.status.name for job in state.jobs.values()}

    def wait_for_queue(self, run: int) -> None:
        """Wait until the only step `s` of a run is in the host's queue for a slot."""
        wait_for(lambda: self.jobs(run)["s"] == "pending")
        # The host queues what is durable before it answers a request that came later.
        number = self.store.request(run, time.time(), "resume", {"by": "ann"})
        result = wait_for(lambda: self.store.result(number))
        assert result is not None
        assert result["error"]["code"] == "run-active"

    def count_notes(self, run: int, kind: str) -> int:
        """How many events of this type a run has."""
        return sum(note.type == kind for note in self.store.notes(run))

    def attempts(self, run: int) -> list[AttemptRow]:
        """All attempts of a run."""
        return list(self.store.attempts(run))

    def effects(self, name: str = "effects") -> list[str]:
        """The lines that steps appended to a file, sorted."""
        path = self.folder / name
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def wait_for_effects(self, enough: Callable[[list[str]], bool], name: str = "effects") -> list[str]:
        """Wait until steps have written enough lines."""
        wait_for(lambda: enough(self.effects(name)))
        return self.effects(name)

    def resile(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call the command line on the same database."""
        command = [*RESILE, words[0], "--db", self.database, *words[1:]]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """kill -9."""
        process.kill()
        process.wait()

    def terminate(self, process: subprocess.Popen[str]) -> str:
        """SIGTERM, and wait until it has gone; return what it said."""
        process.terminate()
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        return said

    def close(self) -> None:
        """End every host with its steps."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.terminate()
        for process in self.processes:
            if process.poll() is None:
                process.wait(30)
            if process.stdout is not None:
                process.stdout.close()
        self.store.close()
