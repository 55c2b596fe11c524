"""Several processes at one SQLite store: races, takeovers, kill -9, and readers beside a writer."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from resile.store.errors import LeaseHeld
from resile.store.lease import boot_seconds
from resile.store.sqlite.store import SqliteStore
from tests.store.child import Child
from tests.store.samples import DEFINITION, batch, entry, job, run_row

KILLS = 12


def run_without_engine(path: str) -> int:
    """A new run that nobody drives."""
    store = SqliteStore(path)
    run = store.create_run(run_row(), DEFINITION, [job(1)])
    store.close()
    return run


def test_of_racing_processes_exactly_one_gets_the_lease(path: str) -> None:
    """Six processes ask at once; one wins, and the others are told."""
    run = run_without_engine(path)
    with ExitStack() as stack:
        children = [stack.enter_context(Child("race", path, str(run))) for _ in range(6)]
        assert [child.line() for child in children] == ["ready"] * 6
        for child in children:
            child.go()
        assert sorted(child.line() for child in children) == ["held"] * 5 + ["won"]


def test_a_killed_holder_is_followed_at_once(path: str) -> None:
    """While the holder lives its lease is refused by name; after kill -9 it is nobody's, reaped or not."""
    run = run_without_engine(path)
    store = SqliteStore(path)
    with Child("hold", path, str(run)) as holder:
        pid = int(holder.line())
        assert pid == holder.process.pid
        with pytest.raises(LeaseHeld, match=f"driven by process {pid} on {os.uname().nodename} since 20"):
            store.acquire_lease(run, boot_seconds(), 60.0)
        seen = store.lease(run, boot_seconds())
        assert seen is not None
        assert seen.pid == pid
        os.kill(pid, 9)
        # Dead but not reaped: the parent has not waited for it yet.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert store.lease(run, boot_seconds()) is None
        mine = store.acquire_lease(run, boot_seconds(), 60.0)
        assert store.lease(run, boot_seconds()) == mine
    store.close()


def test_processes_that_make_one_store_at_once_all_succeed(path: str) -> None:
    """Nobody sees a half-made database."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child("open", path)) for _ in range(6)]
        assert [child.line() for child in children] == ["ready"] * 6
        for child in children:
            child.go()
        assert [child.line() for child in children] == ["0"] * 6


def test_opening_a_store_again_keeps_the_locks_of_this_process(path: str) -> None:
    """While one connection has the write lock, further openings and closings in its process do not free it."""
    store = SqliteStore(path)
    with store._writing():
        SqliteStore(path).close()
        SqliteStore(path, readonly=True).close()
        locks = Path("/proc/locks").read_text()
    store.close()
    inode = os.stat(path).st_ino
    mine = [line for line in locks.splitlines() if f" {os.getpid()} " in line and f":{inode} " in line]
    assert [line.split()[1:4] for line in mine] == [["POSIX", "ADVISORY", "READ"]]


def test_a_killed_writer_loses_nothing_that_was_acknowledged(path: str) -> None:
    """After each of many kill -9 the log is whole, covers every acknowledged ticket, and agrees with the tables."""
    run = run_without_engine(path)
    chance = random.Random(7)
    told = 0
    for _ in range(KILLS):
        with Child("write", path, str(run)) as writer:
            for _ in range(chance.randrange(1, 60)):
                told = int(writer.line())
            writer.kill()
            told = max([told, *(int(line) for line in writer.pipe("stdout").read().split("\n")[:-1])])
        store = SqliteStore(path)
        assert store.lease(run, boot_seconds()) is None
        seqs = [kept.seq for kept in store.entries(run)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= told
        assert [row.job for row in store.attempts(run)] == seqs
        jobs = list(store.jobs(run))
        assert [row.id for row in jobs] == [1, *(seq + 1 for seq in seqs)]
        assert jobs[0].attempts == len(seqs)
        store.close()
    assert apsw.Connection(path).pragma("integrity_check") == "ok"


def test_a_reader_sees_each_commit_while_the_writer_goes_on(path: str) -> None:
    """A store opened for reading follows a living writer, and never sees half of a batch."""
    run = run_without_engine(path)
    reader = SqliteStore(path, readonly=True)
    with Child("write", path, str(run)) as writer:
        writer.line()
        assert reader.has_changed()
        for _ in range(30):
            told = int(writer.line())
            with reader.reading():
                seqs = [kept.seq for kept in reader.entries(run)]
                assert seqs[told - 1] == told
                assert next(reader.jobs(run)).attempts == len(seqs)
                assert len(list(reader.attempts(run))) == len(seqs)
        holder = reader.lease(run, boot_seconds())
        assert holder is not None
        assert holder.pid == writer.process.pid
    reader.close()


def test_an_open_stream_does_not_stop_the_writer(path: str) -> None:
    """A reader that stopped in the middle sees its own moment to the end; commits go on beside it."""
    run = run_without_engine(path)
    engine, reader = SqliteStore(path), SqliteStore(path, readonly=True)
    lease = engine.acquire_lease(run, boot_seconds(), 60.0)
    writer = engine.writer()
    writer.submit(batch(lease, *[entry(seq, 1) for seq in range(1, 101)]))
    writer.flush()
    stream = reader.entries(run)
    assert next(stream).seq == 1
    for seq in range(101, 1101):
        writer.submit(batch(lease, entry(seq, 1)))
    writer.flush()
    assert [kept.seq for kept in stream] == list(range(2, 101))
    assert len(list(reader.entries(run))) == 1100
    reader.close()
    engine.close()
