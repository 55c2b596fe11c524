"""What people are told when a database refuses: which of the known troubles it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest
from psycopg import errors
from psycopg.rows import TupleRow

from resile.store.errors import StoreDamaged, StoreError, StoreFull
from resile.store.postgres import session
from resile.store.postgres.address import parse
from resile.store.postgres.session import TRIES_MAX, Session, Unreachable
from resile.store.sqlite.connection import explain
from tests.cluster import Cluster

from .conftest import PostgresPlace

PLACE = "postgresql://h/d"


@pytest.mark.parametrize(
    ("error", "folder", "kind", "code", "said", "advised"),
    [
        (apsw.FullError("full"), "TMP", StoreFull, "store-full", "no room is left for", "free some space"),
        (apsw.IOError("disk"), "/proc", StoreFull, "store-full", "no room is left for", "free some space"),
        (apsw.IOError("disk"), "TMP", StoreError, "store-io", "disk", "check the disk"),
        (apsw.IOError("disk"), "TMP/none", StoreError, "store-io", "disk", "check the disk"),
        (apsw.BusyError("busy"), "/proc", StoreError, "store-busy", "was locked for 30 s", "another program"),
        (apsw.CorruptError("bad"), "TMP", StoreDamaged, "store-damaged", "bad", ""),
        (apsw.NotADBError("no"), "TMP", StoreError, "store-unreadable", "is not a database", "name another file"),
        (apsw.ReadOnlyError("no"), "TMP", StoreError, "store-readonly", "can't be written to", "may you write"),
        (apsw.CantOpenError("no"), "TMP", StoreError, "store-unopenable", "no", "is it a file"),
        (PermissionError(13, "denied"), "TMP", StoreError, "store-unopenable", "denied", "is it a file"),
        (apsw.SQLError("syntax"), "/proc", StoreError, "store-failed", "syntax", ""),
    ],
)
def test_what_sqlite_refuses(
    tmp_path: Path,
    error: apsw.Error | OSError,
    folder: str,
    kind: type[StoreError],
    code: str,
    said: str,
    advised: str,
) -> None:
    """An error of the disk is one of a full disk only where the disk is full; `/proc` is a disk that never has room."""
    path = f"{folder.replace('TMP', str(tmp_path))}/r.db"
    found = explain(error, path)
    assert (type(found), found.code) == (kind, code)
    assert path in found.message
    assert said in found.message
    assert advised in found.hint


@pytest.mark.parametrize(
    ("error", "kind", "code", "said"),
    [
        (Unreachable("no route\nmore"), StoreError, "store-unreachable", f"{PLACE} can't be reached: no route"),
        (
            errors.DiskFull("x"),
            StoreFull,
            "store-full",
            f"no room is left for {PLACE}; everything recorded before is safe",
        ),
        (errors.LockNotAvailable("x"), StoreError, "store-busy", f"{PLACE} did not answer in time: x"),
        (errors.QueryCanceled("\n y\nz"), StoreError, "store-busy", f"{PLACE} did not answer in time: y"),
        (errors.ReadOnlySqlTransaction("x"), StoreError, "store-readonly", f"{PLACE} can't be written to: x"),
        (errors.InsufficientPrivilege("x"), StoreError, "store-readonly", f"{PLACE} can't be written to: x"),
        (errors.UndefinedTable(""), StoreError, "store-failed", f"{PLACE}: UndefinedTable"),
    ],
)
def test_what_postgresql_refuses(error: psycopg.Error, kind: type[StoreError], code: str, said: str) -> None:
    """The first line of what the server said, or the kind of error where it said nothing."""
    found = session.explain(error, PLACE)
    assert (type(found), found.code, found.message, found.where) == (kind, code, said, PLACE)
    assert bool(found.hint) == (code != "store-failed")


@pytest.fixture
def opened(tmp_path: Path, cluster: Cluster) -> Iterator[Session]:
    """A session with a schema of its own."""
    PostgresPlace.cluster = cluster
    place = PostgresPlace(tmp_path)
    place.open()
    made = Session(parse(place.url))
    yield made
    made.close()
    place.close()


@pytest.mark.parametrize("error", [errors.SerializationFailure, errors.DeadlockDetected])
def test_transactions_in_each_other_s_way_are_tried_again(opened: Session, error: type[psycopg.Error]) -> None:
    """Up to ten times, each from its beginning; then it is said what went wrong, and the session is as good as new."""
    calls: list[int] = []

    def work(db: psycopg.Connection[TupleRow]) -> int:
        """Be in the way of another transaction, so many times as the test wants."""
        calls.append(len(calls))
        db.execute("CREATE TABLE left_behind ()")
        if len(calls) <= refused:
            raise error("x")
        return len(calls)

    refused = TRIES_MAX
    assert opened.write(work) == TRIES_MAX + 1
    opened.write(lambda db: db.execute("DROP TABLE left_behind"))
    calls.clear()
    refused = TRIES_MAX + 1
    with pytest.raises(StoreError, match=r": x$"):
        opened.write(work)
    assert len(calls) == TRIES_MAX + 1
    assert opened.read(lambda db: db.execute("SELECT to_regclass('left_behind')").fetchall()) == [(None,)]
