"""A SQLite store that is complete after a clean exit, and that says so when its file or its WAL is damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from resile.store.errors import StoreError, StoreGone
from resile.store.lease import boot_seconds
from resile.store.sqlite.store import SqliteStore
from resile.store.sqlite.witness import RUNS_MAX, Witness
from tests.store.child import ROOT, Child
from tests.store.samples import DEFINITION, batch, entry, job, new_run, run_row, wait_for

# Makes a run, and is killed.
MAKE_A_RUN = """
import os, sys
from resile.store.sqlite.store import SqliteStore
from tests.store.samples import DEFINITION, run_row
SqliteStore(sys.argv[1]).create_run(run_row(), DEFINITION, [])
os.kill(os.getpid(), 9)
"""
# Makes many runs, and is killed.
MAKE_MANY_RUNS = """
import os, sys
from resile.store.sqlite.store import SqliteStore
from tests.store.samples import DEFINITION, run_row
store = SqliteStore(sys.argv[1])
for _ in range(300):
    store.create_run(run_row(), DEFINITION, [])
os.kill(os.getpid(), 9)
"""
HINT = (
    "`resile db check` says which runs are whole; move the file and its `-wal` away and put a backup in its place, or"
    " go on without them after `resile db check --accept`"
)


def side_files(path: str) -> list[str]:
    """The names of the files beside a database."""
    return sorted(file.name for file in Path(path).parent.iterdir() if file.name != Path(path).name)


def killed(path: str, tickets: int = 9) -> tuple[int, int]:
    """A database whose engine was killed while it wrote; its run, and how many batches were acknowledged."""
    store = SqliteStore(path)
    run = store.create_run(run_row(), DEFINITION, [job(1)])
    store.close()
    with Child("write", path, str(run)) as writer:
        told = [int(writer.line()) for _ in range(tickets)][-1]
        writer.process.kill()
        writer.process.wait()
    return run, told


def refusal(path: str, *, readonly: bool) -> StoreError:
    """The error with which a database is refused."""
    with pytest.raises(StoreError) as refused:
        SqliteStore(path, readonly=readonly)
    return refused.value


def seen(path: str, run: int) -> list[int]:
    """The numbers of the events of a run."""
    store = SqliteStore(path, readonly=True)
    try:
        return [kept.seq for kept in store.entries(run)]
    finally:
        store.close()


def test_a_closed_store_is_one_file(path: str) -> None:
    """After a clean exit everything is in the file itself: a copy of it alone has every event."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    for seq in range(1, 6):
        wait_for(writer, writer.submit(batch(lease, entry(seq))))
    assert Witness(path).known_events() == {0: 0, run: 5}
    store.close()
    assert side_files(path) == []
    assert Witness(path).known_events() == {0: 0}
    copy = str(Path(path).parent / "copy.db")
    shutil.copyfile(path, copy)
    assert seen(copy, run) == [1, 2, 3, 4, 5]


def test_the_last_of_many_runs_is_missed(path: str) -> None:
    """A server writes more runs than a file has room to note: the last ones are noted, and their loss shows."""
    subprocess.run([sys.executable, "-c", MAKE_MANY_RUNS, path], cwd=ROOT, check=False)
    assert sorted(Witness(path).known_events()) == [0, *range(301 - RUNS_MAX, 301)]
    os.unlink(f"{path}-wal")
    assert refusal(path, readonly=False).code == "store-damaged"


def test_what_killed_engines_noted_makes_room(path: str) -> None:
    """A file whose attributes are all taken by runs of the past still knows the last run."""
    SqliteStore(path).close()
    with suppress(OSError):
        for run in range(1, 10_000):
            os.setxattr(path, f"user.resile.{run}", b"7")
    full = max(Witness(path).known_events())
    assert full < 9_999
    Witness(path).remember(20_000, 3)
    known = Witness(path).known_events()
    assert (known[20_000], known[0], max(run for run in known if run < 20_000)) == (3, 0, full)


def test_the_first_of_two_to_close_leaves_the_wal(path: str) -> None:
    """A store that others still use keeps its WAL, and the last to close it removes it."""
    first, second = SqliteStore(path), SqliteStore(path)
    run, lease = new_run(first)
    first.close()
    assert side_files(path) == ["resile.db-shm", "resile.db-wal"]
    writer = second.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    second.close()
    assert side_files(path) == []
    assert seen(path, run) == [1]


def test_a_reader_hinders_no_exit(path: str) -> None:
    """While a reader has an older view, a writer ends at once and leaves what it could not move to the next."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    reader = SqliteStore(path, readonly=True)
    with reader.reading():
        assert [kept.seq for kept in reader.entries(run)] == [1]
        wait_for(writer, writer.submit(batch(lease, entry(2))))
        store.close()
        assert [kept.seq for kept in reader.entries(run)] == [1]
    assert Witness(path).known_events() == {0: 0, run: 2}
    assert [kept.seq for kept in reader.entries(run)] == [1, 2]
    reader.close()
    SqliteStore(path).close()
    assert (side_files(path), Witness(path).known_events()) == ([], {0: 0})


def cut(path: str, size: int) -> None:
    """Cut a file."""
    os.truncate(path, size)


def overwrite(path: str, offset: int, data: bytes) -> None:
    """Write bytes into a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


LOST_WALS: dict[str, Callable[[str], None]] = {
    "deleted": lambda path: os.unlink(f"{path}-wal"),
    "deleted with the index": lambda path: [os.unlink(f"{path}{end}") for end in ("-wal", "-shm")] and None,
    "emptied": lambda path: cut(f"{path}-wal", 0),
    "cut in its header": lambda path: cut(f"{path}-wal", 20),
    "cut in the middle": lambda path: cut(f"{path}-wal", os.path.getsize(f"{path}-wal") // 2),
    "cut to one frame": lambda path: cut(f"{path}-wal", 32 + 24 + 4096),
    "header overwritten": lambda path: overwrite(f"{path}-wal", 0, b"\xff" * 32),
    "frame overwritten": lambda path: overwrite(f"{path}-wal", 32 + 24 + 100, b"\xff" * 64),
}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("how", LOST_WALS)
def test_a_wal_that_lost_events_is_damage(path: str, how: str, readonly: bool) -> None:
    """Nothing opens a database that lacks acknowledged events, and nothing of it is changed."""
    run, told = killed(path)
    assert os.path.exists(f"{path}-wal")
    LOST_WALS[how](path)
    before = Path(path).read_bytes()
    refused = refusal(path, readonly=readonly)
    assert (refused.code, refused.where, refused.hint) == ("store-damaged", path, HINT)
    assert refused.message.startswith(f"{path} is damaged: events ")
    assert refused.message.endswith(f" of run {run} are gone, because {path}-wal is missing, cut or damaged")
    assert Path(path).read_bytes() == before
    assert told == 27


def test_a_lost_run_is_damage(path: str) -> None:
    """A run that was made and is gone with the WAL is missed as well."""
    SqliteStore(path).close()
    subprocess.run([sys.executable, "-c", MAKE_A_RUN, path], cwd=ROOT, check=False)
    os.unlink(f"{path}-wal")
    assert refusal(path, readonly=True).message == (
        f"{path} is damaged: run 1 is gone, because {path}-wal is missing, cut or damaged"
    )


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_database_that_was_emptied_is_damage(path: str, size: int, readonly: bool) -> None:
    """A file that has been a database is not taken for a new one."""
    SqliteStore(path).close()
    cut(path, size)
    refused = refusal(path, readonly=readonly)
    assert (refused.code, refused.message) == (
        "store-damaged",
        f"{path} is damaged: it has been a database and is empty now",
    )
    assert os.path.getsize(path) == size


def test_a_killed_store_that_another_program_folded_is_whole(path: str) -> None:
    """A program that opens and closes a killed database with SQLite removes its WAL, and that is no damage."""
    run, told = killed(path)
    other = apsw.Connection(path)
    assert other.execute("SELECT count(*) FROM log").get >= told
    other.close()
    assert side_files(path) == []
    assert len(seen(path, run)) >= told
    SqliteStore(path).close()
    assert Witness(path).known_events() == {0: 0}


def test_a_backup_of_a_store_in_use_is_whole(path: str) -> None:
    """A copy that SQLite made while a run went on opens like any other, to readers and to writers."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    copy = str(Path(path).parent / "copy.db")
    target, source = apsw.Connection(copy), apsw.Connection(path)
    with target.backup("main", source, "main") as copying:
        copying.step()
    target.close()
    source.close()
    wait_for(writer, writer.submit(batch(lease, entry(2))))
    assert seen(copy, run) == [1]
    other = SqliteStore(copy)
    assert other.identity() == store.identity()
    other.close()
    store.close()
    assert seen(path, run) == [1, 2]


def test_a_store_on_a_read_only_medium_is_read(path: str, tmp_path: Path) -> None:
    """After a clean exit a database is read where no file can be made beside it."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    store.close()
    medium = tmp_path / "medium"
    medium.mkdir()
    mount = ["mount", "--bind", str(Path(path).parent), str(medium)]
    if subprocess.run(mount, capture_output=True).returncode:
        assert not os.environ.get("CI"), "CI runs these tests as root"
        pytest.skip("only root may mount a file system")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(medium)], check=True)
        assert seen(str(medium / "resile.db"), run) == [1]
        assert refusal(str(medium / "resile.db"), readonly=False).code in ("store-readonly", "store-unopenable")
    finally:
        subprocess.run(["umount", str(medium)], check=True)


def test_readers_of_a_store_in_use_never_find_damage(path: str) -> None:
    """A store that is opened again and again beside a writer always has what the writer told to be durable."""
    store = SqliteStore(path)
    run = store.create_run(run_row(), DEFINITION, [job(1)])
    store.close()
    with Child("write", path, str(run)) as writer:
        for _ in range(40):
            told = int(writer.line())
            assert len(seen(path, run)) >= told
        writer.process.kill()


@pytest.mark.parametrize("page", range(2, 12))
def test_an_overwritten_page_is_damage(path: str, page: int) -> None:
    """A store with a page of rubbish, whichever, is called damaged as soon as the page is read."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    for seq in range(1, 200):
        writer.submit(batch(lease, entry(seq)))
    store.close()
    overwrite(path, (page - 1) * 4096, os.urandom(4096))
    found: list[str] = []
    try:
        store = SqliteStore(path)
        store.runs()
        list(store.entries(run))
        list(store.jobs(run))
        list(store.attempts(run))
        list(store.letters(run))
        store.definition(run_row().definition)
        store.cached_definition("key")
        store.requests(run)
        store.cache_definition("key", DEFINITION)
        store.create_run(run_row(), DEFINITION, [job(1)])
        store.acquire_lease(run, boot_seconds() + 100, 1.0)
    except StoreError as error:
        found.append(error.code)
    assert found in ([], ["store-damaged"])


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("log", "event", "not json"),
        ("log", "event", b"\xff\xfe"),
        ("runs", "summary", "{"),
        ("definitions", "body", b"\x78\x01rubbish"),
        ("jobs", "cause", "]"),
    ],
)
def test_a_row_that_makes_no_sense_is_damage(path: str, table: str, column: str, value: str | bytes) -> None:
    """A row that can't be decoded is damage, and no other error."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    store._db.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(StoreError) as refused:
        (store.runs(), list(store.entries(run)), list(store.jobs(run)), store.definition(run_row().definition))
    assert refused.value.code == "store-damaged"
    assert refused.value.message.startswith(f"{path} is damaged: a row can't be read: ")
    store.close()


def test_a_store_that_said_that_it_is_gone_closes_in_silence(path: str) -> None:
    """The writer's own error about the same loss, which comes later, is not raised a second time."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    os.rename(path, f"{path}.moved")
    with pytest.raises(StoreGone):
        store.requests(run)
    writer.submit(batch(lease, entry(1)))
    store.close()
    assert isinstance(writer.error, StoreGone)


@pytest.mark.parametrize("name", ["resile.db", "resile.db-wal"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_store_whose_file_is_gone_writes_nothing(path: str, name: str, how: str) -> None:
    """A commit to a file that was deleted or replaced is not acknowledged, and the file in its place is left alone."""
    store = SqliteStore(path)
    run, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    file = Path(path).parent / name
    file.rename(file.with_suffix(".moved"))
    if how == "replaced":
        file.write_bytes(b"another")
    ticket = writer.submit(batch(lease, entry(2)))
    with pytest.raises(StoreGone) as gone:
        writer.flush()
    assert ticket == 2
    assert gone.value.message == f"{file} was {how} while it was in use, so nothing more can be recorded"
    for act in (lambda: store.requests(run), lambda: store.renew_lease(lease, 0.0, 1.0)):
        with pytest.raises(StoreGone):
            act()
    store.close()
    assert file.exists() == (how == "replaced")
    assert how == "deleted" or file.read_bytes() == b"another"
