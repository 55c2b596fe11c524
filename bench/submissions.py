"""`python -m bench.submissions RESILE COUNT`: a server, and one client that hands it runs of three steps.

It prints the seconds from the first request until the last run has ended, and its own CPU seconds, which are no cost
of the server. The benchmark measures its whole process tree.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.cases import Bench
from bench.services import resile_server, submit, wait_for_runs, wait_ready

FLOW = 'resile: 1\nname: three\nsteps:\n  a: {shell: "true"}\n  b: {shell: "true"}\n  c: {shell: "true"}\n'
WAIT_SECONDS_MAX = 600.0


def main(resile: str, count: int) -> None:
    """Submit so many runs on one connection, and wait for their ends."""
    bench = Bench(Path.cwd(), resile, rounds=1, startup_rounds=1, wide=0, scale=())
    with resile_server(bench) as server:
        wait_ready(server)
        connection = server.connect()
        begin = time.perf_counter()
        for _ in range(count):
            submit(connection, FLOW)
        wait_for_runs(connection, "completed", count, WAIT_SECONDS_MAX)
        wall_seconds = time.perf_counter() - begin
        connection.close()
    print(wall_seconds, time.process_time())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
