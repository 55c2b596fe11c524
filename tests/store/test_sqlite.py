"""The SQLite store's own promises: its file, its versions, a full disk, and its refusals."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from resile.core.actions import KeepLetter
from resile.store.contract import JobRow
from resile.store.errors import StoreError, StoreFull, StoreMissing, StoreTooNew
from resile.store.sqlite import schema
from resile.store.sqlite import store as sqlite
from resile.store.sqlite.connection import check_library
from resile.store.sqlite.store import SqliteStore
from tests.store.samples import BROKEN, DEFINITION, batch, entry, job, letter, new_run, run_row, wait_for

KNOWN = len(schema.MIGRATIONS)


def write_until_full(store: SqliteStore) -> tuple[int, int]:
    """Write large entries one after another until the store is full; the run, and how many were acknowledged."""
    run, lease = new_run(store)
    writer = store.writer()
    done: list[int] = []

    def write() -> None:
        for seq in range(1, 1_000):
            heavy = entry(seq, 1)
            heavy.notes[0].data["text"] = "x" * 20_000
            wait_for(writer, writer.submit(batch(lease, heavy)))
            done.append(seq)

    with pytest.raises(StoreFull) as full:
        write()
    assert full.value.code == "store-full"
    assert full.value.hint == "free some space, or name a file on another disk with --db"
    return run, len(done)


def check_resumable(path: str, run: int, told: int) -> None:
    """Exactly what was acknowledged is there, and the run takes more."""
    store = SqliteStore(path)
    assert [kept.seq for kept in store.entries(run)] == list(range(1, told + 1))
    lease = store.acquire_lease(run, now=1000.0, seconds=60.0)
    writer = store.writer()
    writer.submit(batch(lease, entry(told + 1)))
    writer.flush()
    assert [kept.seq for kept in store.entries(run)] == list(range(1, told + 2))
    store.close()
    assert apsw.Connection(path).pragma("integrity_check") == "ok"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where the system lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_store_at_its_ceiling_stops_and_can_be_resumed(path: str) -> None:
    """When the database may grow no further the writer says so, and nothing is half-written."""
    store = SqliteStore(path, pages_max=100)
    run, told = write_until_full(store)
    assert told > 0
    store.close()
    check_resumable(path, run, told)


def test_a_full_disk_stops_the_run_and_loses_nothing(small_disk: Path) -> None:
    """On a real full file system, readers still read; with room again, the run goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 400_000)
    path = str(small_disk / "resile.db")
    store = SqliteStore(path)
    run, told = write_until_full(store)
    assert told > 0
    assert len(list(store.entries(run))) == told
    store.close()
    ballast.unlink()
    check_resumable(path, run, told)


def test_only_the_owner_can_read_the_store(path: str) -> None:
    """The folder has mode 0700, the database and its side files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        new_run(store)
    finally:
        os.umask(before)
    folder = Path(path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {"resile.db": 0o600, "resile.db-wal": 0o600, "resile.db-shm": 0o600}
    store.close()


def test_what_is_durable_is_synced(path: str) -> None:
    """Both connections run with synchronous=FULL (2), in WAL, with foreign keys."""
    store = SqliteStore(path)
    writer = store.writer()
    for db in (store._db, writer._db):
        assert db.pragma("synchronous") == 2
        assert db.pragma("journal_mode") == "wal"
        assert db.pragma("foreign_keys") == 1
        assert db.pragma("busy_timeout") == 30_000
        assert db.pragma("wal_autocheckpoint") == 512
        assert db.pragma("journal_size_limit") == 4 * 1024 * 1024
    store.close()


def test_reading_makes_nothing(path: str) -> None:
    """A store that is not there is an error to a reader, and is still not there afterwards."""
    with pytest.raises(StoreMissing) as missing:
        SqliteStore(path, readonly=True)
    assert missing.value.message == f"there is no database {path}"
    assert not Path(path).parent.exists()


@pytest.mark.slow
def test_an_empty_file_is_no_store_to_read_and_a_fresh_one_to_write(path: str) -> None:
    """A file that was made and never filled is like no store."""
    Path(path).parent.mkdir()
    Path(path).touch()
    with pytest.raises(StoreMissing):
        SqliteStore(path, readonly=True)
    store = SqliteStore(path)
    assert store.runs() == []
    store.close()


def test_a_store_for_reading_refuses_to_write(path: str) -> None:
    """Every writing verb of a store opened for reading is refused, and reading goes on."""
    SqliteStore(path).close()
    store = SqliteStore(path, readonly=True)
    with pytest.raises(StoreError) as refused:
        store.create_run(run_row(), DEFINITION, [])
    assert refused.value.code == "store-readonly"
    assert refused.value.hint == "may you write to the file and to its folder? --db or $RESILE_DB name another"
    with pytest.raises(StoreError) as no_writer:
        store.writer()
    assert no_writer.value.code == "store-readonly"
    assert store.runs() == []
    store.close()


@pytest.mark.parametrize("content", [b"hello, I am a text\n" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: str, content: bytes, readonly: bool) -> None:
    """Text and rubbish are named as such, and not a byte of them is changed."""
    Path(path).parent.mkdir()
    Path(path).write_bytes(content)
    with pytest.raises(StoreError) as refused:
        SqliteStore(path, readonly=readonly)
    assert refused.value.code == "store-unreadable"
    assert refused.value.where == path
    assert Path(path).read_bytes() == content


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """What can't be a file is said plainly."""
    for readonly in (False, True):
        with pytest.raises(StoreError) as refused:
            SqliteStore(str(tmp_path), readonly=readonly)
        assert refused.value.code == "store-unopenable"
        assert refused.value.message == f"{tmp_path} is a folder, not a database"
        assert refused.value.hint == f"name a file, such as {tmp_path}/resile.db"
    assert list(tmp_path.iterdir()) == []


def test_a_copy_without_its_wal_is_explained(path: str) -> None:
    """While a store is open, what was written last is in the second file; a copy of only the first says so."""
    store = SqliteStore(path)
    copy = Path(path).parent / "copy.db"
    subprocess.run(["cp", path, copy], check=True)
    # A reader waits for a database that was written to lately.
    os.utime(copy, (0, 0))
    store.close()
    with pytest.raises(StoreMissing) as missing:
        SqliteStore(str(copy), readonly=True)
    assert missing.value.message == f"{copy} is empty: nothing has run yet"
    assert "`-wal` file, so copy both" in missing.value.hint


def test_the_database_of_another_program_is_refused(path: str) -> None:
    """Its tables are left alone."""
    Path(path).parent.mkdir()
    other = apsw.Connection(path)
    other.execute("CREATE TABLE cookies (name)")
    with pytest.raises(StoreError) as refused:
        SqliteStore(path)
    assert refused.value.code == "store-foreign"
    assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("cookies",)]
    other.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_newer_database_is_refused(path: str, readonly: bool) -> None:
    """The message says both versions, the hint what to do."""
    SqliteStore(path, migrations=(*schema.MIGRATIONS, "CREATE TABLE later (x)")).close()
    with pytest.raises(StoreTooNew) as refused:
        SqliteStore(path, readonly=readonly)
    assert refused.value.message == f"{path} has schema version {KNOWN + 1}; this Resile knows versions up to {KNOWN}"
    assert "newer Resile" in refused.value.hint


def test_an_older_database_is_brought_forward(path: str) -> None:
    """Each missing migration is applied once, in order, and what was stored stays."""
    old = SqliteStore(path)
    run, _ = new_run(old)
    old.close()
    newer = (
        *schema.MIGRATIONS,
        "ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",
        "UPDATE runs SET note = note || '!'",
    )
    for _ in range(2):
        store = SqliteStore(path, migrations=newer)
        assert store._db.execute("SELECT id, note FROM runs").fetchall() == [(run, "none!")]
        assert store._db.pragma("user_version") == KNOWN + 2
        store.close()


def test_a_database_of_version_1_gets_its_dead_letters(path: str) -> None:
    """What the first version stored stays, and the table of the second is there to be filled."""
    old = SqliteStore(path, migrations=(schema.VERSION_1,))
    run = old.create_run(run_row(), DEFINITION, [job(1)])
    for seq in (12, 3):
        event = f'{{"type":"cancel_requested","at":{seq}.5}}'
        old._db.execute("INSERT INTO log VALUES (?, ?, ?, '[]')", (run, seq, event))
    old.close()
    with pytest.raises(StoreError) as refused:
        SqliteStore(path, readonly=True)
    assert refused.value.code == "store-too-old"
    store = SqliteStore(path)
    assert [(entry.seq, entry.event.at) for entry in store.entries(run)] == [(3, 3.5), (12, 12.5)]
    assert [entry.seq for entry in store.entries(run, after=3)] == [12]
    assert ([row.id for row in store.runs()], list(store.letters(run))) == ([run], [])
    some = batch(store.acquire_lease(run, now=100.0, seconds=60.0))
    some.letters = (KeepLetter(letter(3, BROKEN)),)
    writer = store.writer()
    writer.submit(some)
    writer.flush()
    assert [row.item_id for row in store.letters(run)] == ["map[3]"]
    store.close()


def test_letters_of_version_2_keep_their_items(path: str) -> None:
    """They belong to maps of the run itself, called by the names that their ids have."""
    old = SqliteStore(path, migrations=(schema.VERSION_1, schema.VERSION_2))
    run = old.create_run(run_row(), DEFINITION, [job(number) for number in range(1, 8)])
    old._db.execute(
        "INSERT INTO dead_letters VALUES (?, 7, 12, 'a+b', 'list[12]', 'failed', 'sig', 0, 1.0, 2.0, 1, '\"x\"', '[]')",
        (run,),
    )
    old.close()
    store = SqliteStore(path)
    [row] = store.letters(run)
    assert (row.name, row.index, row.item_id, row.step, row.job, row.scope) == ("list", 12, "list[12]", "a+b", 7, 1)
    assert (row.reason, row.value, row.correlation_id) == ("failed", "x", f"{run}:list[12]")
    assert (row.map, row.eligible) == ("list", True)
    store.close()


def test_an_older_database_is_not_changed_by_a_reader(path: str) -> None:
    """A reader takes version 3 as it is, with a lease that expires by the wall clock; a writer migrates it."""
    old = SqliteStore(path, migrations=schema.MIGRATIONS[:3])
    run = old.create_run(run_row(), DEFINITION, [job(1)])
    held = (run, "token", "elsewhere", "boot pid", 7, "1", 100.0)
    old._db.execute("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*held, time.time() + 60.0))
    old.close()
    reader = SqliteStore(path, readonly=True)
    holder = reader.lease(run, now=0.0)
    assert holder is not None
    assert (holder.host, holder.expires_boot_seconds, [row.id for row in reader.runs()]) == ("elsewhere", 0.0, [run])
    assert reader._db.pragma("user_version") == 3
    reader.close()
    writer = SqliteStore(path)
    assert (writer.lease(run, now=0.0), writer._db.pragma("user_version")) == (holder, KNOWN)
    writer._db.execute("UPDATE leases SET expires_at = ?", (time.time(),))
    assert writer.lease(run, now=0.0) is None
    writer.close()


def test_a_migration_that_fails_changes_nothing(path: str) -> None:
    """The version before it stays whole and usable."""
    old = SqliteStore(path)
    run, _ = new_run(old)
    old.close()
    broken = (*schema.MIGRATIONS, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)")
    with pytest.raises(StoreError) as refused:
        SqliteStore(path, migrations=broken)
    assert refused.value.code == "store-failed"
    store = SqliteStore(path)
    assert [row.id for row in store.runs()] == [run]
    assert store._db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall() == []
    store.close()


def test_a_sqlite_with_the_wal_reset_bug_is_refused() -> None:
    """Versions before 3.51.3 can lose commits; the one at hand does not."""
    with pytest.raises(StoreError) as refused:
        check_library("3.51.2")
    assert refused.value.code == "sqlite-too-old"
    check_library("3.51.3")
    check_library(apsw.sqlite_lib_version())


def test_a_run_of_many_jobs_is_made_in_one_go(path: str) -> None:
    """All jobs of a large run are there and in order."""
    store = SqliteStore(path)
    run = store.create_run(run_row(), DEFINITION, [JobRow(n, f"s{n}", "root", 1) for n in range(1, 10_001)])
    assert [row.id for row in store.jobs(run)] == list(range(1, 10_001))
    store.close()


def test_the_cache_of_compiled_files_forgets_the_oldest(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its number old keys go, with their definitions unless a run or another key still has them."""
    monkeypatch.setattr(sqlite, "COMPILED_MAX", 2)
    store = SqliteStore(path)
    store.create_run(run_row(), DEFINITION, [])
    for key, definition in (("a", DEFINITION), ("b", b"1"), ("c", b"2"), ("d", b"3"), ("e", b"3")):
        store.cache_definition(key, definition)
    known = {key: store.cached_definition(key) for key in "abcde"}
    assert known == {"a": None, "b": None, "c": None, "d": b"3", "e": b"3"}
    bodies = store._db.execute("SELECT body FROM definitions ORDER BY body").fetchall()
    assert bodies == [("3",), (DEFINITION.decode(),)]
    store.close()


def test_people_can_read_the_log_with_plain_sql(path: str) -> None:
    """Events and notes are JSON text."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(lease, entry(1, 1)))
    writer.flush()
    sql = "SELECT place >> 36, place & 68719476735, event ->> 'type', event ->> 'at', notes ->> '$[0][2]' FROM log"
    assert store._db.execute(sql).fetchall() == [(run, 1, "attempt_started", 1.0, "step_started")]
    store.close()


def test_people_can_read_dead_letters_with_plain_sql(path: str) -> None:
    """The item and its history are JSON text, and the correlation id is a column."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    some = batch(lease)
    some.letters = (KeepLetter(letter(3, BROKEN, value={"path": "a.txt"})),)
    writer = store.writer()
    writer.submit(some)
    writer.flush()
    sql = "SELECT correlation_id, item ->> 'path', history ->> '$[0][2]', eligible FROM dead_letters"
    assert store._db.execute(sql).fetchall() == [(f"{run}:map[3]", "a.txt", "test", 1)]
    store.close()


def test_an_error_of_any_kind_stops_the_writer_with_nothing_written(path: str) -> None:
    """A batch that can't be encoded is refused whole, like one that can't be stored."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    bad = entry(2)
    bad.notes[0].data["n"] = object()
    writer = store.writer()
    writer.submit(batch(lease, entry(1, 1), bad))
    with pytest.raises(StoreError) as refused:
        writer.flush()
    assert refused.value.code == "store-failed"
    assert list(store.entries(run)) == []
    store.close()


def test_a_log_number_is_written_once(path: str) -> None:
    """The log is append-only: a seq that is there already is refused."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(lease, entry(1, 1)))
    writer.submit(batch(lease, entry(1, 2)))
    with pytest.raises(StoreError):
        writer.flush()
    assert all(len(kept.notes) == 1 for kept in store.entries(run))
    store.close()
