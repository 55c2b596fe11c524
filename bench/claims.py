"""Claims of attempts by workers: in both databases, and against plain updates of each.

Both sides commit a batch of 32 at a time, on the same disk, with synced commits.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from functools import partial

import psycopg

from bench.cases import Bench, Figure, environment, reset
from bench.measure import CommandFailed
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
_SQLITE_UPDATE = """UPDATE ready SET worker = ?, token = ?, at = ? WHERE id IN
    (SELECT id FROM ready WHERE worker IS NULL ORDER BY id LIMIT ?)"""


def claims(bench: Bench) -> list[Figure]:
    """Batches of claims, by one worker after the other."""
    programs = installed()
    if programs is None:
        raise CommandFailed("not installed: PostgreSQL (on Debian: apt-get install postgresql)")
    batches = 300 if bench.is_full else 60
    reset(bench.folder)
    cluster = Cluster(programs, bench.folder.parent, fsync=True)
    try:
        with psycopg.connect(cluster.url().partition("&schema=")[0], autocommit=True) as plain:
            plain.execute(_CREATE)
            plain.execute(_CREATE_INDEX)
            plain_sqlite = _plain_sqlite(bench)
            sqlite, postgres = open_store(environment(bench.folder)["RESILE_DB"]), open_store(cluster.url())
            try:
                seconds = _rounds(bench, batches, plain, plain_sqlite, sqlite, postgres)
            finally:
                sqlite.close()
                postgres.close()
                plain_sqlite.close()
    finally:
        cluster.remove()
    return _figures(seconds, batches * BATCH)


def _plain_sqlite(bench: Bench) -> sqlite3.Connection:
    """A database with the table of the plain updates alone, on the same disk, with synced commits."""
    db = sqlite3.connect(bench.folder / "state" / "plain.db", isolation_level=None)
    for sql in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _CREATE, _CREATE_INDEX):
        db.execute(sql)
    return db


def _rounds(
    bench: Bench,
    batches: int,
    plain: psycopg.Connection,
    plain_sqlite: sqlite3.Connection,
    sqlite: SharedStore,
    postgres: SharedStore,
) -> dict[str, list[float]]:
    """The seconds of all batches in each round, by side."""
    seconds: dict[str, list[float]] = {"sqlite": [], "postgres": [], "plain": [], "plain sqlite": []}
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
        plain_sqlite.execute("DELETE FROM ready")
        plain_sqlite.execute("BEGIN")
        plain_sqlite.executemany("INSERT INTO ready (id) VALUES (?)", ((n,) for n in range(1, batches * BATCH + 1)))
        plain_sqlite.execute("COMMIT")
        seconds["plain sqlite"].append(
            _timed(
                batches,
                lambda batch: plain_sqlite.execute(_SQLITE_UPDATE, ("worker-1", f"{batch:032x}", time.time(), BATCH)),
            )
        )
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


def _figures(seconds: dict[str, list[float]], count: int) -> list[Figure]:
    """The time of one claim in each database, against its plain updates and by itself."""
    each = {name: statistics.median(values) / count * 1e6 for name, values in seconds.items()}
    figures = []
    for what, name, floor, floor_name, bound, least in (
        ("one, PostgreSQL", "postgres", "plain", "SKIP LOCKED", 2.0, POSTGRES_MIN),
        ("one, SQLite", "sqlite", "plain sqlite", "plain UPDATE", 0.0, SQLITE_MIN),
    ):
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[floor], strict=True))
        figures.append(Figure("claims", what, each[name], "us", floor_name, each[floor], ratio, bound))
        figures.append(Figure("claims", what, each[name], "us", bound=1e6 // least))
    return figures
