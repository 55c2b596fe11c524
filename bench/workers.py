"""Steps through two workers of a server, against the same file by `resile run`, two at a time.

`python -m bench.workers RESILE COUNT` is the measured program: it starts a server without slots and two workers with
one slot each, hands over `flow.yaml`, and prints the seconds until the run has ended, and its own CPU seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cases import Bench, Figure, all_completed, compare, environment, reset
from bench.measure import CommandFailed, Sample, measure
from bench.services import API, Service, get, resile_server, submit, wait_for_runs, wait_ready
from bench.shapes import PARALLEL, Shape, write_native

WAIT_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 60.0


def workers(bench: Bench) -> list[Figure]:
    """Independent steps, on two workers of one slot."""
    shape = Shape("wide", 1, bench.wide)
    write_native(shape, bench.folder / "flow.yaml")
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    alone = [bench.resile, "run", "flow.yaml", "--max-parallel", str(PARALLEL), "--json"]
    shared = [sys.executable, "-m", "bench.workers", bench.resile, str(shape.jobs)]
    samples: dict[str, list[Sample]] = {"workers": [], "resile run": []}
    for _ in range(bench.rounds):
        reset(bench.folder)
        samples["resile run"].append(measure(alone, bench.folder, environment(bench.folder)))
        all_completed(shape.jobs)(bench.folder)
        reset(bench.folder)
        whole = measure(shared, bench.folder, {**environment(bench.folder), "PYTHONPATH": path})
        wall_seconds, client_seconds = map(float, (bench.folder / "stdout").read_text().split())
        samples["workers"].append(
            whole._replace(wall_seconds=wall_seconds, cpu_seconds=whole.cpu_seconds - client_seconds)
        )
    case = f"workers {shape.jobs:,}"
    return [
        compare(case, what, samples, f"{what}_seconds", "resile run", bound, "workers")
        for what, bound in (("wall", 1.5), ("cpu", 0.0))
    ]


@contextmanager
def _worker(bench: Bench, server: Service, name: str) -> Iterator[None]:
    """A worker with one slot, which stops when the block ends."""
    words = [bench.resile, "worker", "--server", f"http://127.0.0.1:{server.port}", "--slots", "1", "--name", name]
    words += ["--directory", str(bench.folder / "state" / name)]
    with (bench.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(resile: str, count: int) -> None:
    """Run the file of the current folder on two workers."""
    bench = Bench(Path.cwd(), resile, rounds=1, startup_rounds=1, wide=count, scale=())
    with resile_server(bench, slots=0) as server, _worker(bench, server, "one"), _worker(bench, server, "two"):
        wait_ready(server)
        connection = server.connect()
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(json.loads(get(connection, f"{API}/workers"))["items"]) < PARALLEL:
            if time.monotonic() > deadline:
                raise CommandFailed("the workers have not registered")
            time.sleep(0.05)
        text = Path("flow.yaml").read_text()
        begin = time.perf_counter()
        run = submit(connection, text)
        wait_for_runs(connection, "completed", 1, WAIT_SECONDS_MAX)
        wall_seconds = time.perf_counter() - begin
        steps = json.loads(get(connection, f"{API}/runs/{run}"))["steps"]
        if steps["completed"] != count:
            raise CommandFailed(f"the workers completed {steps['completed']} of {count} steps")
        connection.close()
    print(wall_seconds, time.process_time())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
