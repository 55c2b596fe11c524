"""Claims of attempts by workers: in both databases, and against plain updates of PostgreSQL.

Both sides commit a batch of 32 at a time, on the same disk, with synced commits.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import psycopg

from bench.cases import Bench, Figure, environment, reset
from bench.measure import CommandFailed
from bench.servers import is_full
from resile.store.open import open_store
from resile.store.server_tables import Claim, ServerTables, SharedStore
from tests.cluster import Cluster, installed
from tests.store.samples import DEFINITION, run_row

BATCH = 32
# Claims a second that each database must keep.
SQLITE_MIN, POSTGRES_MIN = 5_000, 3_000
_CREATE = "CREATE TABLE ready (id bigint PRIMARY KEY, worker text, token text, at double precision)"
_CREATE_INDEX = "CREATE INDEX ready_free ON ready (id) WHERE worker IS NULL"
_UPDATE = """UPDATE ready SET worker = %s, token = %s, at = %s WHERE id IN
    (SELECT id FROM ready WHERE worker IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)"""


def claims(bench: Bench) -> list[Figure]:
    """Batches of claims, by one worker after the other."""
    programs = installed()
    if programs is None:
        raise CommandFailed("not installed: PostgreSQL (on Debian: apt-get install postgresql)")
    batches = 300 if is_full(bench) else 60
    reset(bench.folder)
    cluster = Cluster(programs, bench.folder.parent, fsync=True)
    try:
        with psycopg.connect(cluster.url().partition("&schema=")[0], autocommit=True) as plain:
            plain.execute(_CREATE)
            plain.execute(_CREATE_INDEX)
            sqlite, postgres = open_store(environment(bench.folder)["RESILE_DB"]), open_store(cluster.url())
            try:
                seconds = _rounds(bench, batches, plain, sqlite, postgres)
            finally:
                sqlite.close()
                postgres.close()
    finally:
        cluster.remove()
    return _figures(seconds, batches * BATCH, full=is_full(bench))


def _rounds(
    bench: Bench, batches: int, plain: psycopg.Connection, sqlite: SharedStore, postgres: SharedStore
) -> dict[str, list[float]]:
    """The seconds of all batches in each round, by side."""
    seconds: dict[str, list[float]] = {"sqlite": [], "postgres": [], "plain": []}
    for _ in range(max(3, bench.rounds)):
        for name, store in (("sqlite", sqlite), ("postgres", postgres)):
            run = store.create_run(run_row(), DEFINITION, [])
            tables = store.server_tables()
            seconds[name].append(_timed(batches, partial(_claim, tables, run)))
            if len(tables.claims(run=run)) != batches * BATCH:
                raise CommandFailed(f"{name} does not have all claims")
        plain.execute("TRUNCATE ready")
        plain.execute("INSERT INTO ready SELECT generate_series(1, %s)", (batches * BATCH,))
        seconds["plain"].append(
            _timed(batches, lambda batch: plain.execute(_UPDATE, ("worker-1", f"{batch:032x}", time.time(), BATCH)))
        )
        if plain.execute("SELECT 1 FROM ready WHERE worker IS NULL").fetchone():
            raise CommandFailed("the plain updates left rows")
    return seconds


def _claim(tables: ServerTables, run: int, number: int) -> None:
    """Keep the claims of one batch."""
    jobs = range(number * BATCH + 1, (number + 1) * BATCH + 1)
    tables.add_claims([Claim(run, 1, job, 1, "worker-1", f"{job:032x}", time.time()) for job in jobs])


def _timed(batches: int, call: Callable[[int], object]) -> float:
    begin = time.perf_counter()
    for number in range(batches):
        call(number)
    return time.perf_counter() - begin


def _figures(seconds: dict[str, list[float]], count: int, *, full: bool) -> list[Figure]:
    """The time of one claim in each, and PostgreSQL against the plain updates."""
    each = {name: statistics.median(values) / count * 1e6 for name, values in seconds.items()}
    ratio = statistics.median(a / b for a, b in zip(seconds["postgres"], seconds["plain"], strict=True))
    bound = 2.0 if full else 0.0
    return [
        Figure("claims", "one, PostgreSQL", each["postgres"], "us", "SKIP LOCKED", each["plain"], ratio, bound),
        Figure("claims", "one, PostgreSQL", each["postgres"], "us", bound=1e6 // POSTGRES_MIN if full else 0.0),
        Figure("claims", "one, SQLite", each["sqlite"], "us", bound=1e6 // SQLITE_MIN if full else 0.0),
    ]
