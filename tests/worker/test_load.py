"""Many steps on workers that die or stop again and again, while the database goes away and comes back.

RESILE_WORKER_JOBS says how many steps; 10,000 of them take about half an hour.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, private_cluster
from tests.server.service import Server

from .process import WorkerProcess

JOBS = int(os.environ.get("RESILE_WORKER_JOBS", "1200"))
SLOTS = "4"
WORKERS = 3
KILL_EVERY_SECONDS = 2.0
# Longer than the lease of a worker.
STOP_SECONDS = 20.0
DATABASE_STOPS = 3
# How long the run may stay without any new effect.
SILENT_SECONDS_MAX = 90.0
LIMIT = 1000


class _Disturbances:
    """Kills and stops workers in turn, and restarts the database when a quarter of the steps is done, and so on.

    One worker is stopped past its lease while the two others are killed; then the next one is stopped.
    """

    def __init__(self, cluster: Cluster, start: Callable[[int], WorkerProcess]) -> None:
        self._cluster = cluster
        self._start = start
        self._workers = [start(number) for number in range(WORKERS)]
        self._stopped = 0
        self._next = 0
        self._kill_at = time.monotonic() + KILL_EVERY_SECONDS
        self._continue_at = 0.0
        self.kills = self.stops = self.database_stops = 0

    def work(self, done: int) -> None:
        """Disturb, if it is time; so many steps have had their effect."""
        now = time.monotonic()
        if not self._continue_at:
            self._workers[self._stopped].send(signal.SIGSTOP)
            self._continue_at = now + STOP_SECONDS
        elif now >= self._continue_at:
            self._workers[self._stopped].send(signal.SIGCONT)
            self._stopped, self._continue_at = (self._stopped + 1) % WORKERS, 0.0
            self.stops += 1
        if now >= self._kill_at:
            self._next = next(n % WORKERS for n in range(self._next + 1, 99) if n % WORKERS != self._stopped)
            worker = self._workers[self._next]
            worker.send(signal.SIGKILL)
            worker.end()
            self._workers[self._next] = self._start(self._next)
            self._kill_at = now + KILL_EVERY_SECONDS
            self.kills += 1
        if self.database_stops < DATABASE_STOPS and done > JOBS * (self.database_stops + 1) / (DATABASE_STOPS + 1):
            self._cluster.stop()
            self._cluster.start()
            self.database_stops += 1


@pytest.mark.slow
def test_no_step_is_lost_or_recorded_twice(
    tmp_path: Path, serve: Callable[..., Server], work: Callable[..., WorkerProcess]
) -> None:
    """Every step completes once, no attempt has two effects, and each that was tried again had lost its attempt."""
    effects = tmp_path / "effects"
    steps = "\n".join(f"  s{number}: {{shell: *effect}}" for number in range(JOBS))
    effect = f'sleep 0.3; echo "$RESILE_JOB_ID $RESILE_ATTEMPT_ID" >> {effects}'
    with private_cluster() as cluster:
        server = serve(db=cluster.url("load"))
        disturbances = _Disturbances(cluster, lambda number: work(server, f"w{number}", "--slots", SLOTS, wait=False))
        run = server.api.start(f"resile: 1\nenv: {{X: &effect '{effect}'}}\nsteps:\n{steps}\n")
        for done in _progress(effects):
            disturbances.work(done)
            if done >= JOBS and _status(server, run) != "running":
                break
        # A run that was too short to be disturbed shows nothing.
        assert min(disturbances.kills, disturbances.stops) > 0
        assert disturbances.database_stops == DATABASE_STOPS
        document = server.api.get(f"/runs/{run}").json
        assert (document["status"], document["steps"]["completed"]) == ("completed", JOBS)
        _judge(effects.read_text().split("\n")[:-1], list(_events(server, run)))
        server.resile("db", "check")


def _progress(effects: Path) -> Iterator[int]:
    """How many effects there are, again and again; a run that stays silent fails."""
    last, changed_at = -1, time.monotonic()
    while True:
        done = effects.read_bytes().count(b"\n") if effects.exists() else 0
        if done != last:
            last, changed_at = done, time.monotonic()
        assert time.monotonic() - changed_at < SILENT_SECONDS_MAX, f"{done} effects, and no more"
        yield done
        # The steps and the database need the processor more than this test.
        select.select([], [], [], 0.05)


def _status(server: Server, run: int) -> str:
    """The status of the run; `running` while the server waits for its database."""
    answer = server.api.get(f"/runs/{run}")
    return str(answer.json["status"]) if answer.status == 200 else "running"


def _events(server: Server, run: int) -> Iterator[dict[str, Any]]:
    """Every event of the run."""
    after = 0
    while items := server.api.get(f"/runs/{run}/events?limit={LIMIT}&after={after}").json["items"]:
        yield from items
        after = items[-1]["seq"]


def _judge(effects: list[str], events: list[dict[str, Any]]) -> None:
    """No attempt has two effects; each job completes once, in its last attempt; those before it are lost."""
    assert {line: times for line, times in Counter(effects).items() if times > 1} == {}
    steps = [event for event in events if (event["step"] or "").startswith("s")]
    completed = Counter(event["job"] for event in steps if event["type"] == "step_completed")
    assert set(completed.values()) == {1}
    assert len(completed) == JOBS
    last = {event["job"]: event["attempt"] for event in steps if event["type"] == "step_completed"}
    lost = {(event["job"], event["attempt"]) for event in steps if event["type"] == "attempt_lost"}
    for job, attempt in (map(int, line.split()) for line in effects):
        assert attempt == last[job] or (job, attempt) in lost, (job, attempt)
    assert all((job, attempt) in lost for job, final in last.items() for attempt in range(1, final))
