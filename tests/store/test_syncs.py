"""Which transactions of SQLite are flushed: all but those that only move leases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resile.store.errors import StoreError
from resile.store.sqlite.store import SqliteStore

from .samples import DEFINITION, run_row

FULL = 2
# Each line is one transaction; the marks are system calls that nothing else makes.
PROGRAM = """
import os, sys
from resile.store.sqlite.store import SqliteStore
from tests.store.samples import DEFINITION, run_row

def mark(name):
    os.access("/mark/" + name, os.F_OK)

store = SqliteStore(sys.argv[1])
tables = store.server_tables()
mark("create")
store.create_run(run_row(), DEFINITION, (), 0)
mark("take")
[(_, lease)] = tables.take_due(1e9, 100.0, 30.0, 10)
mark("renew")
assert tables.renew_leases([lease], 101.0, 30.0) == []
mark("release")
tables.release_all([], [(lease, 5.0)])
mark("enqueue")
tables.enqueue(1, 7.0)
mark("close")
"""


def test_only_transactions_that_move_leases_are_not_flushed(tmp_path: Path) -> None:
    """A server takes, renews and releases leases without a flush, and flushes runs and submissions."""
    if shutil.which("strace") is None:
        assert os.environ.get("CI") != "true", "CI must have strace"
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    words = ["strace", "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,access", sys.executable, "-c", PROGRAM]
    subprocess.run([*words, str(tmp_path / "runs.db")], check=True, cwd=Path(__file__).parents[2])
    flushes: dict[str, int] = {}
    name = "open"
    for line in trace.read_text().splitlines():
        if '"/mark/' in line:
            name = line.partition('"/mark/')[2].partition('"')[0]
            flushes[name] = 0
        elif "sync(" in line and name in flushes:
            flushes[name] += 1
    del flushes["close"]
    assert {name: count > 0 for name, count in flushes.items()} == {
        "create": True,
        "take": False,
        "renew": False,
        "release": False,
        "enqueue": True,
    }


def test_a_connection_flushes_again_after_leases_were_moved(tmp_path: Path) -> None:
    """Also if the transaction fails."""
    store = SqliteStore(str(tmp_path / "runs.db"))
    tables = store.server_tables()
    store.create_run(run_row(), DEFINITION, (), 0)
    [(_, lease)] = tables.take_due(1e9, 100.0, 30.0, 10)
    assert store._db.pragma("synchronous") == FULL
    store._db.execute("CREATE TRIGGER refuse BEFORE DELETE ON leases BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreError):
        tables.release_all([lease], [])
    assert (store._db.pragma("synchronous"), store._db.in_transaction) == (FULL, False)
    store.close()
