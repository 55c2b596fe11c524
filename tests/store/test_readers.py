"""A command that reads beside an engine: it never takes a database with runs for an empty one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest

from resile.store.errors import StoreDamaged, StoreError, StoreMissing
from resile.store.sqlite import schema
from resile.store.sqlite.connection import connect
from resile.store.sqlite.store import SqliteStore
from tests.store.child import ROOT
from tests.store.samples import DEFINITION, WAIT_SECONDS_MAX, run_row
from tests.store.test_damage import MAKE_A_RUN

# Opens a database for reading and says how many runs it has.
COUNT_RUNS = """
import sys
from resile.store.sqlite.store import SqliteStore
print("reading", flush=True)
print(len(SqliteStore(sys.argv[1], readonly=True).runs()), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a database will be."""
    return str(tmp_path / "resile.db")


def start_reader(path: str) -> subprocess.Popen[str]:
    """A process that is about to read the database."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    words = [sys.executable, "-c", COUNT_RUNS, path]
    reader = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "reading\n"
    return reader


def test_a_reader_waits_while_the_database_is_created(path: str) -> None:
    """While another process creates the tables, a reader waits for them, and then sees the first run."""
    creator = connect(path, readonly=False)
    creator.execute("BEGIN IMMEDIATE")
    reader = start_reader(path)
    for migration in schema.MIGRATIONS:
        creator.execute(schema.statements(migration)).fetchall()
    creator.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}; PRAGMA user_version = {len(schema.MIGRATIONS)}")
    creator.execute("COMMIT")
    creator.close()
    assert reader.communicate(timeout=WAIT_SECONDS_MAX) == ("0\n", "")


def test_a_reader_waits_for_a_file_that_is_empty_at_first(path: str) -> None:
    """A file of no bytes that is a moment old is a database that is about to be created."""
    os.mknod(path, 0o600)
    reader = start_reader(path)
    store = SqliteStore(path)
    store.create_run(run_row(), DEFINITION, [])
    assert reader.communicate(timeout=WAIT_SECONDS_MAX)[1] == ""
    store.close()


def test_a_reader_sees_what_is_only_in_the_wal(path: str) -> None:
    """A run that is not in the file yet, but in its WAL, is seen beside the engine and after a kill."""
    store = SqliteStore(path)
    store.create_run(run_row(), DEFINITION, [])
    alone = path + ".alone"
    shutil.copyfile(path, alone)
    db = apsw.Connection(alone)
    assert db.execute("SELECT count(*) FROM sqlite_schema").get == 0
    db.close()
    shutil.copyfile(path + "-wal", path + ".killed-wal")
    shutil.copyfile(path, path + ".killed")
    for name in (path, path + ".killed"):
        reader = SqliteStore(name, readonly=True)
        assert [row.id for row in reader.runs()] == [1]
        reader.close()
    store.close()


def test_a_database_that_lost_its_wal_is_not_called_empty(path: str) -> None:
    """A database whose only content was in a WAL that is gone is damaged, and not empty."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    subprocess.run([sys.executable, "-c", MAKE_A_RUN, path], env=env, check=False)
    if not os.listxattr(path):
        pytest.skip("this file system has no extended attributes")
    for ending in ("-wal", "-shm"):
        os.unlink(path + ending)
    with pytest.raises(StoreDamaged) as damaged:
        SqliteStore(path, readonly=True)
    problem = f"{path} is damaged: its runs are gone, because {path}-wal is missing, cut or damaged"
    assert damaged.value.message == problem


def test_an_old_empty_file_is_said_to_be_empty_at_once(path: str) -> None:
    """A file of no bytes that was last written to minutes ago is empty, and a reader does not wait."""
    os.mknod(path, 0o600)
    os.utime(path, (time.time() - 600,) * 2)
    began = time.monotonic()
    with pytest.raises(StoreMissing) as missing:
        SqliteStore(path, readonly=True)
    assert missing.value.message == f"{path} is empty: nothing has run yet"
    assert time.monotonic() - began < 4.0


def test_readers_of_a_database_that_is_migrated(tmp_path: Path) -> None:
    """While databases are created and migrated, each reader sees an old one or a new one, and none between them."""
    problems: list[StoreError] = []
    paths = [str(tmp_path / f"{number}.db") for number in range(30)]
    begun = threading.Barrier(2)

    def read() -> None:
        """Open each database for reading again and again while the other thread migrates it."""
        for path in paths:
            begun.wait(WAIT_SECONDS_MAX)
            for _ in range(20):
                try:
                    SqliteStore(path, readonly=True).close()
                except StoreError as problem:
                    problems.append(problem)

    for path in paths:
        SqliteStore(path, migrations=schema.MIGRATIONS[: schema.READABLE]).close()
    thread = threading.Thread(target=read)
    thread.start()
    for path in paths:
        begun.wait(WAIT_SECONDS_MAX)
        SqliteStore(path).close()
    thread.join(WAIT_SECONDS_MAX)
    assert problems == []


# Makes a database, and dies while a change of it is half on disk: SQLite must undo that before anything is read.
DIES_WHILE_IT_WRITES = """
import os, sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("PRAGMA cache_size = 1; CREATE TABLE t (x); BEGIN")
for number in range(200):
    db.execute("INSERT INTO t VALUES (randomblob(4000))")
os._exit(0)
"""


def test_a_reader_after_a_writer_that_was_killed_while_it_made_the_database(path: str) -> None:
    """What the writer left unfinished is undone, although the reader itself changes nothing."""
    subprocess.run([sys.executable, "-c", DIES_WHILE_IT_WRITES, path], check=True)
    assert os.path.getsize(f"{path}-journal") > 0
    reader = connect(path, readonly=True)
    assert reader.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM t")
    reader.close()
