"""What a server costs: runs that it is given, runs that wait, requests, and its start.

The floor of each figure is measured in the same round.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.cases import MEBIBYTE, Bench, Figure, all_completed, compare, environment, reset
from bench.measure import Sample, measure
from bench.services import API, Service, bare_server, get, resile_server, submit, wait_for_runs, wait_ready
from bench.shapes import PARALLEL, Shape, write_native
from bench.submissions import FLOW

STEPS_OF_A_RUN = 3
PARKS = 'resile: 1\nname: parks\nsteps:\n  only: {shell: "exit 3", park: true}\n'


def many_runs(bench: Bench) -> list[Figure]:
    """Many runs of three steps over HTTP, by one client, against one run of as many steps by `resile run`."""
    count = bench.wide * 2 // 5
    shape = Shape("one-run", 1, count * STEPS_OF_A_RUN)
    write_native(shape, bench.folder / "flow.yaml")
    root = Path(__file__).parent.parent
    samples: dict[str, list[Sample]] = {"server": [], "one run": []}
    for _ in range(bench.rounds):
        reset(bench.folder)
        samples["one run"].append(
            measure(
                [bench.resile, "run", "flow.yaml", "--max-parallel", str(PARALLEL), "--json"],
                bench.folder,
                environment(bench.folder),
            )
        )
        all_completed(shape.jobs)(bench.folder)
        reset(bench.folder)
        path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        whole = measure(
            [sys.executable, "-m", "bench.submissions", bench.resile, str(count)],
            bench.folder,
            {**environment(bench.folder), "PYTHONPATH": path},
        )
        wall_seconds, client_seconds = map(float, (bench.folder / "stdout").read_text().split())
        samples["server"].append(
            whole._replace(wall_seconds=wall_seconds, cpu_seconds=whole.cpu_seconds - client_seconds)
        )
    case = f"server {count:,} runs"
    return [compare(case, what, samples, f"{what}_seconds", "one run", 2.0, "server") for what in ("wall", "cpu")]


def parked(bench: Bench) -> list[Figure]:
    """The memory and the idle time of a server whose database has many parked runs, and of one that has none."""
    count, idle_seconds = (10_000, 30.0) if bench.is_full else (1_000, 5.0)
    reset(bench.folder)
    with resile_server(bench) as server:
        wait_ready(server)
        empty_rss, empty_cpu = _idle(server, idle_seconds)
        connection = server.connect()
        submit(connection, PARKS)
        wait_for_runs(connection, "parked", 1, 60.0)
        connection.close()
    _copy_run(Path(environment(bench.folder)["RESILE_DB"]), count)
    with resile_server(bench) as server:
        wait_ready(server)
        connection = server.connect()
        wait_for_runs(connection, "parked", count, 60.0)
        connection.close()
        rss, cpu = _idle(server, idle_seconds)
    case = f"server {count:,} parked"
    return [
        Figure(case, "RSS", rss, "MiB", bound=120.0),
        Figure(case, "RSS against no run", rss, "MiB", "empty server", empty_rss, rss / empty_rss),
        Figure(case, f"cpu, {idle_seconds:g} s idle", cpu, "s", bound=0.3),
        Figure(case, f"cpu, {idle_seconds:g} s idle, no run", empty_cpu, "s"),
    ]


def _idle(server: Service, seconds: float) -> tuple[float, float]:
    """The memory in MiB of a server to which nothing is said for a while, and the CPU seconds that it takes."""
    time.sleep(6.0)  # A run that only waits is forgotten after 5 s.
    before = server.cpu_seconds()
    time.sleep(seconds)
    return server.rss_bytes() / MEBIBYTE, server.cpu_seconds() - before


def _copy_run(file: Path, count: int) -> None:
    """Copy run 1 of a closed database until there are so many."""
    db = sqlite3.connect(file)
    numbers = f"WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < {count})"
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        changed = {"log": {"place": "(n << 36) | (place & ((1 << 36) - 1))"}, "runs": {"id": "n"}}.get(table)
        if changed is None and "run" in columns:
            changed = {"run": "n"} | ({"id": "NULL"} if table == "requests" else {})
            changed |= {"position": "NULL"} if table == "announcements" else {}
        if changed:
            values = ", ".join(changed.get(name, name) for name in columns)
            db.execute(f"INSERT INTO {table} ({', '.join(columns)}) {numbers} SELECT {values} FROM {table}, n")
    # A server that stops before it has handed the run back leaves it due; a parked one waits for a request.
    db.execute("UPDATE submissions SET due_at = NULL")
    db.commit()
    db.close()


def requests(bench: Bench) -> list[Figure]:
    """GET of a run with three steps against a bare route with the same JSON; and the memory of both processes."""
    count = 3_000 if bench.is_full else 500
    reset(bench.folder)
    with resile_server(bench) as server:
        wait_ready(server)
        connection = server.connect()
        idle_rss = server.rss_bytes() / MEBIBYTE
        run = submit(connection, FLOW)
        wait_for_runs(connection, "completed", 1, 60.0)
        path = f"{API}/runs/{run}"
        document = json.loads(get(connection, path))
        with bare_server(bench, document) as bare:
            bare_connection = bare.connect()
            get(bare_connection, "/healthz")
            bare_rss = bare.rss_bytes() / MEBIBYTE
            mine, floors = [], []
            cpu, bare_cpu = server.cpu_seconds(), bare.cpu_seconds()
            for _ in range(max(3, bench.rounds)):
                mine.append(_each(count, lambda: get(connection, path)))
                floors.append(_each(count, lambda: get(bare_connection, path)))
            cpu, bare_cpu = server.cpu_seconds() - cpu, bare.cpu_seconds() - bare_cpu
            bare_connection.close()
        connection.close()
    total = count * len(mine) / 1e6
    ratio = statistics.median(a / b for a, b in zip(mine, floors, strict=True))
    return [
        Figure(
            "server GET run",
            "a request",  # 0.3 of the floor's requests a second.
            statistics.median(mine) * 1e6,
            "us",
            "bare Starlette",
            statistics.median(floors) * 1e6,
            ratio,
            3.33,
        ),
        Figure("server GET run", "cpu", cpu / total, "us", "bare Starlette", bare_cpu / total, cpu / bare_cpu),
        Figure("server idle", "RSS", idle_rss, "MiB", "bare Starlette", bare_rss, idle_rss / bare_rss),
        Figure("server idle", "RSS above bare Starlette", idle_rss - bare_rss, "MiB", bound=60.0),
    ]


def _each(count: int, call: Callable[[], object]) -> float:
    """The seconds of one call, over so many."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def start(bench: Bench) -> list[Figure]:
    """From the start of the process until it says that it listens, against an interpreter that does nothing."""
    reset(bench.folder)
    samples: dict[str, list[Sample]] = {"server": [], "python -c pass": []}
    for number in range(bench.startup_rounds + 1):
        with resile_server(bench) as server:
            wait_ready(server)
        floor = measure([sys.executable, "-c", "pass"], bench.folder)
        if number:  # The first writes the bytecode caches that the bound assumes.
            samples["server"].append(floor._replace(wall_seconds=server.started_seconds))
            samples["python -c pass"].append(floor)
    return [compare("server start", "until it listens", samples, "wall_seconds", "python -c pass", 25.0, "server")]
