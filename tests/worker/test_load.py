"""Many steps on workers that die again and again."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.executors.local.driver import wait_for
from tests.server.service import Server

from .process import WorkerProcess

JOBS = 300
EVERY_SECONDS = 2.0


@pytest.mark.slow
def test_no_step_is_lost_or_recorded_twice(serve: Callable[..., Server], work: Callable[..., WorkerProcess]) -> None:
    """While one of three workers is killed every two seconds and started again, every step completes once."""
    server = serve()
    steps = "\n".join(f"  s{number}: {{shell: 'sleep 0.2; echo {number}'}}" for number in range(JOBS))
    workers = [work(server, f"w{number}", "--slots", "2") for number in range(3)]
    run = server.api.start(f"resile: 1\nsteps:\n{steps}\n")
    number, kill_at = 0, time.monotonic() + EVERY_SECONDS

    def is_over() -> bool:
        """Kill a worker when it is time, and look whether the run has ended."""
        nonlocal number, kill_at
        if time.monotonic() >= kill_at:
            workers[number % 3].send(signal.SIGKILL)
            workers[number % 3].end()
            workers[number % 3] = work(server, f"w{number % 3}", "--slots", "2")
            number, kill_at = number + 1, time.monotonic() + EVERY_SECONDS
        return bool(server.api.get(f"/runs/{run}").json["status"] != "running")

    wait_for(is_over)
    document = server.api.get(f"/runs/{run}").json
    assert (document["status"], document["steps"]["completed"]) == ("completed", JOBS)
    events = server.api.get(f"/runs/{run}/events?limit=1000").json
    ended: Counter[int] = Counter()
    while True:
        for event in events["items"]:
            ended[event["job"]] += event["type"] == "step_completed"
        if not events["next_cursor"]:
            break
        events = server.api.get(f"/runs/{run}/events?limit=1000&cursor={events['next_cursor']}").json
    assert number > 0
    assert {ended[job["id"]] for job in document["jobs"] if job["step"].startswith("s")} == {1}
