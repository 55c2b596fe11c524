"""What a crowd of badly behaved clients costs the runs of a server.

    alone: one run of short steps, one after another          crowded: the same while 200 clients disturb the server

The crowd is that of the load test: slow readers, half-open connections, oversized bodies, malformed requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.cases import Bench, Figure, reset
from bench.measure import CommandFailed
from bench.services import API, Service, get, resile_server, submit, wait_ready

ROOT = Path(__file__).parent.parent
RUN_SECONDS_MAX = 300.0
DELAY_MAX = 2.0


def crowd(bench: Bench) -> list[Figure]:
    """The time of a run, alone and in the crowd; an answer that is the server's fault fails the case."""
    seconds, steps = (60.0, 200) if bench.is_full else (10.0, 20)
    flow = "resile: 1\nname: short\nsteps:\n" + "".join("  - shell: sleep 0.1\n" for _ in range(steps))
    reset(bench.folder)
    with resile_server(bench) as server:
        wait_ready(server)
        alone = _run_seconds(server, flow)
        clients = subprocess.Popen(
            [sys.executable, "-m", "tests.server.crowd", str(server.port), "1", str(seconds)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        try:
            crowded = _run_seconds(server, flow)
            answers = json.loads(clients.communicate(timeout=RUN_SECONDS_MAX)[0])
        finally:
            clients.kill()
            clients.wait()
    faults = {status: count for status, count in answers.items() if int(status) >= 500}
    if faults or not answers:
        raise CommandFailed(f"the server answered {faults} of {sum(answers.values())} requests with a fault of its own")
    case = f"server {sum(answers.values()):,} requests"
    return [Figure(case, f"a run of {steps} steps", crowded, "s", "alone", alone, crowded / alone, DELAY_MAX)]


def _run_seconds(server: Service, flow: str) -> float:
    """The seconds from a run's submission to its end."""
    connection = server.connect()
    begin = time.perf_counter()
    run = submit(connection, flow)
    while json.loads(get(connection, f"{API}/runs/{run}"))["status"] == "running":
        if time.perf_counter() - begin > RUN_SECONDS_MAX:
            raise CommandFailed(f"run {run} has not ended after {RUN_SECONDS_MAX:g} s")
        time.sleep(0.05)
    connection.close()
    return time.perf_counter() - begin
