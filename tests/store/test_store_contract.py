"""The contract suite: what holds for every store, whichever database is behind it."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread
from threading import Event as Flag
from typing import get_args

import pytest
from msgspec.structs import replace

from resile.core.actions import Note
from resile.core.events import AttemptEnded, Event
from resile.model.codec import content_hash
from resile.model.failure import LogRange, Outcome, Usage
from resile.store.contract import AttemptRow, Entry, JobRow, Lease, SignatureHistory, Snapshot, Store
from resile.store.errors import LeaseHeld, StoreError
from tests.store.conftest import Place
from tests.store.samples import (
    DEFINITION,
    EVENTS,
    FAILURE,
    OUTCOME,
    WAIT_SECONDS_MAX,
    batch,
    entry,
    is_readable,
    job,
    new_run,
    run_row,
    wait_for,
)


def test_a_new_run_is_there_with_its_jobs_and_definition(store: Store) -> None:
    """A created run is read back as it was given, under the id that creating it returned."""
    jobs = [job(1), JobRow(2, "é|x", "map[0]", 12, 3, 9, True, True, {"step": "a", "job": 1}, 1.5, 2.5)]
    run = store.create_run(run_row(), DEFINITION, jobs)
    assert store.run(run) == replace(run_row(), id=run)
    assert list(store.jobs(run)) == jobs
    assert store.definition(content_hash(DEFINITION)) == DEFINITION
    assert (list(store.entries(run)), list(store.attempts(run)), store.latest_snapshot(run)) == ([], [], None)


def test_a_database_has_a_name_of_its_own(place: Place, tmp_path: Path) -> None:
    """Every opening of a database gives the same 16 hex digits, another database others."""
    first, second = place.open(), place.open()
    other = type(place)(tmp_path / "other").open()
    try:
        name = first.identity()
        assert re.fullmatch("[0-9a-f]{16}", name)
        assert (second.identity(), first.identity(1), first.identity(99)) == (name, name, name)
        assert other.identity() != name
    finally:
        other.close()


def test_a_renamed_database_keeps_the_names_of_earlier_runs(place: Place) -> None:
    """From the run on for which a database was renamed it has the new name, to every opening."""
    first, second = place.open(), place.open()
    name = first.identity()
    other = second.renew_identity(3)
    assert other != name
    for store in (first, second):
        assert [store.identity(run) for run in (1, 2, 3, 4)] == [name, name, other, other]
        assert store.identity() == other


def test_runs_are_listed_newest_first(store: Store) -> None:
    """Ids rise by one, and the list is cut at its limit."""
    ids = [store.create_run(run_row(name), DEFINITION, []) for name in ("a", "b", "c")]
    assert ids == [1, 2, 3]
    assert [(row.id, row.workflow) for row in store.runs()] == [(3, "c"), (2, "b"), (1, "a")]
    assert [row.id for row in store.runs(limit=2)] == [3, 2]
    assert [row.id for row in store.runs(limit=2, before=3)] == [2, 1]
    assert store.runs(before=1) == []


def test_what_is_not_there(store: Store) -> None:
    """An unknown run is empty to readers and refused to those who want to act on it."""
    assert (store.run(9), list(store.jobs(9)), list(store.attempts(9)), list(store.notes(9))) == (None, [], [], [])
    assert (store.lease(9, 0.0), store.requests(9), store.latest_snapshot(9)) == (None, [], None)
    for act in (lambda: store.acquire_lease(9, 0.0, 1.0), lambda: store.request(9, 0.0, "cancel", {})):
        with pytest.raises(StoreError) as refused:
            act()
        assert refused.value.code == "no-such-run"
    with pytest.raises(StoreError) as missing:
        store.definition("0" * 64)
    assert missing.value.code == "no-such-definition"


def test_a_large_definition_comes_back_whole(store: Store) -> None:
    """Large definitions are kept in another form, which no reader sees."""
    large = b'{"name":"' + b"x" * 1_000_000 + b'"}'
    store.create_run(replace(run_row(), definition=content_hash(large)), large, [])
    assert store.definition(content_hash(large)) == large


def test_compiled_definitions_are_cached_by_key(store: Store) -> None:
    """A key gives the definition last cached under it; an unknown key gives nothing."""
    store.cache_definition("file-hash 1", DEFINITION)
    store.cache_definition("file-hash 2", b"{}")
    store.cache_definition("file-hash 1", b"[]")
    assert store.cached_definition("file-hash 1") == b"[]"
    assert store.cached_definition("file-hash 2") == b"{}"
    assert store.cached_definition("file-hash 3") is None


def test_every_event_is_read_back_as_it_was_written(store: Store) -> None:
    """The log gives back equal events of every type there is, with equal notes."""
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    _, lease = new_run(store)
    written = [entry(seq, 1, event) for seq, event in enumerate(EVENTS, 1)]
    writer = store.writer()
    writer.submit(batch(lease, *written))
    writer.flush()
    assert list(store.entries(lease.run)) == written


def test_text_that_is_not_unicode_survives(store: Store) -> None:
    """Bytes of a program's output that no encoding explains come back unchanged, in events, rows and paths."""
    odd = b"caf\xe9 \xff".decode("utf-8", "surrogateescape")
    run = store.create_run(replace(run_row(), directory=odd), DEFINITION, [job(1)])
    lease = store.acquire_lease(run, 100.0, 60.0)
    failure = replace(FAILURE, stderr=odd)
    ended = AttemptEnded(1.0, 1, 1, Outcome(1, failure, values={"a": odd}))
    written = Entry(1, ended, (Note(1, 1.0, "attempt_failed", data={"message": odd}),))
    attempt = AttemptRow(1, 1, 1, failure=failure)
    writer = store.writer()
    writer.submit(batch(lease, written, attempts=(attempt,)))
    writer.flush()
    assert list(store.entries(run)) == [written]
    assert list(store.attempts(run)) == [attempt]
    row = store.run(run)
    assert row is not None
    assert row.directory == odd


def test_entries_and_notes_are_streamed_from_any_number(store: Store) -> None:
    """`after` leaves out what was seen: whole entries for one, single notes for the other."""
    _, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(lease, entry(1, 3), entry(4, 0), entry(5, 2)))
    writer.flush()
    assert [kept.seq for kept in store.entries(lease.run)] == [1, 4, 5]
    assert [kept.seq for kept in store.entries(lease.run, after=1)] == [4, 5]
    seen = {after: [note.seq for note in store.notes(lease.run, after)] for after in range(8)}
    assert seen[0] == [1, 2, 3, 5, 6]
    assert (seen[1], seen[2], seen[3], seen[4]) == ([2, 3, 5, 6], [3, 5, 6], [5, 6], [5, 6])
    assert (seen[5], seen[6], seen[7]) == ([6], [], [])


def test_a_stream_takes_up_where_it_stopped(store: Store) -> None:
    """Reading after the last seq gives just what was committed since."""
    _, lease = new_run(store)
    writer = store.writer()
    for seq in (1, 3, 5):
        writer.submit(batch(lease, entry(seq)))
        writer.flush()
        assert [note.seq for note in store.notes(lease.run, after=seq - 1)] == [seq, seq + 1]


def test_later_rows_replace_earlier_ones(store: Store) -> None:
    """Jobs, attempts and the run are what the last batch said; rows of other keys stay."""
    run, lease = new_run(store, jobs=3)
    first = AttemptRow(2, 1, 1, started_at=1.0, pid=77)
    last = AttemptRow(2, 1, 1, 1.0, 2.0, 139, OUTCOME.usage, OUTCOME.log, FAILURE, 77)
    other = AttemptRow(1, 2, 1, ended_at=3.0, usage=Usage(0.5), log=LogRange("slot-2"))
    writer = store.writer()
    writer.submit(batch(lease, jobs=(job(2, 4, 1), job(3, 7)), attempts=(first,)))
    writer.submit(batch(lease, jobs=(job(2, 6, 1), job(4, 2)), attempts=(last, other)))
    final = batch(lease)
    final.row = replace(run_row(), id=run, status="failed", epoch=2, ended_at=9.0, summary={"routes": [1]})
    writer.submit(final)
    writer.flush()
    assert [(row.id, row.status, row.attempts) for row in store.jobs(run)] == [
        (1, 1, 0),
        (2, 6, 1),
        (3, 7, 0),
        (4, 2, 0),
    ]
    assert list(store.attempts(run)) == [other, last]
    assert list(store.attempts(run, job=2)) == [last]
    assert store.run(run) == final.row


def test_attempts_are_ordered_by_job_epoch_and_number(store: Store) -> None:
    """However they were written."""
    _, lease = new_run(store)
    keys = [(2, 1, 1), (1, 2, 1), (1, 1, 10), (1, 1, 2)]
    writer = store.writer()
    writer.submit(batch(lease, attempts=tuple(AttemptRow(*key) for key in keys)))
    writer.flush()
    assert [(row.job, row.epoch, row.attempt) for row in store.attempts(lease.run)] == sorted(keys)


def test_batches_of_any_size_are_written_whole(store: Store) -> None:
    """A batch with many rows of each kind loses and doubles none."""
    writer = store.writer()
    for size in (1, 2, 3, 63, 64, 65, 200):
        run, lease = new_run(store, jobs=size)
        numbers = range(1, size + 1)
        some = batch(
            lease,
            *[entry(seq, 1) for seq in numbers],
            jobs=tuple(job(number, 5) for number in numbers),
            attempts=tuple(AttemptRow(number, 1, 1) for number in numbers),
        )
        writer.submit(some)
        writer.flush()
        assert [kept.seq for kept in store.entries(run)] == list(numbers)
        assert [(row.id, row.status) for row in store.jobs(run)] == [(number, 5) for number in numbers]
        assert [row.job for row in store.attempts(run)] == list(numbers)


def test_tickets_rise_and_become_durable_in_order(store: Store) -> None:
    """Durable never goes back, and what it covers is there when it says so."""
    _, lease = new_run(store)
    writer = store.writer()
    tickets = [writer.submit(batch(lease, entry(seq))) for seq in range(1, 400, 2)]
    assert tickets == list(range(1, 201))
    seen = [0]
    while seen[-1] < tickets[-1]:
        wait_for(writer, seen[-1] + 1)
        seen.append(writer.durable())
        assert len(list(store.entries(lease.run))) >= seen[-1]
    assert all(before < after for before, after in pairwise(seen))


def test_the_descriptor_is_readable_until_durable_is_asked(store: Store) -> None:
    """A poll wakes for a commit, and not again for the same one."""
    _, lease = new_run(store)
    writer = store.writer()
    assert (is_readable(writer), writer.durable()) == (False, 0)
    writer.submit(batch(lease, entry(1)))
    writer.flush()
    assert is_readable(writer)
    assert (writer.durable(), is_readable(writer)) == (1, False)


def test_closing_the_writer_writes_what_waits(store: Store) -> None:
    """Nothing submitted is lost by an orderly end, and closing twice does no harm."""
    _, lease = new_run(store)
    writer = store.writer()
    for seq in range(1, 100, 2):
        writer.submit(batch(lease, entry(seq)))
    writer.close()
    writer.close()
    assert len(list(store.entries(lease.run))) == 50


def test_a_store_has_one_writer(store: Store) -> None:
    """A second one is refused."""
    store.writer()
    with pytest.raises(StoreError) as refused:
        store.writer()
    assert refused.value.code == "writer-open"


def test_the_newest_snapshot_is_kept(store: Store) -> None:
    """Each replaces the one before; other runs have their own."""
    run, lease = new_run(store)
    _, other = new_run(store)
    writer = store.writer()
    for owner, snapshot in (
        (lease, Snapshot(1, 1, b"\x00one")),
        (other, Snapshot(5, 1, b"other")),
        (lease, Snapshot(3, 2, b"three")),
    ):
        some = batch(owner, entry(snapshot.seq))
        some.snapshot = snapshot
        writer.submit(some)
    writer.submit(batch(lease, entry(7)))
    writer.flush()
    assert store.latest_snapshot(run) == Snapshot(3, 2, b"three")
    assert store.latest_snapshot(other.run) == Snapshot(5, 1, b"other")


def test_a_held_lease_is_refused_with_its_holder(store: Store) -> None:
    """The message names the run, the process and the machine; readers see the same holder."""
    run, lease = new_run(store)
    with pytest.raises(LeaseHeld) as refused:
        store.acquire_lease(run, now=159.0, seconds=60.0)
    assert refused.value.message.startswith(
        f"run {run} is driven by process {os.getpid()} on {os.uname().nodename} since "
    )
    assert store.lease(run, now=159.0) == lease


def test_an_expired_lease_is_taken_over_and_the_old_one_refused(store: Store) -> None:
    """After its time a lease is free; its old holder can neither keep it, nor write, nor release the new one."""
    run, old = new_run(store)
    assert store.lease(run, now=160.0) is None
    new = store.acquire_lease(run, now=160.0, seconds=60.0)
    with pytest.raises(LeaseHeld):
        store.renew_lease(old, now=161.0, seconds=60.0)
    store.release_lease(old)
    assert store.lease(run, now=161.0) == new
    writer = store.writer()
    writer.submit(batch(old, entry(1), jobs=(job(1, 5),)))
    with pytest.raises(LeaseHeld) as refused:
        writer.flush()
    assert refused.value.code == "lease-lost"
    assert list(store.entries(run)) == []
    assert [row.status for row in store.jobs(run)] == [1, 1]


def test_a_renewed_lease_lasts_longer(store: Store) -> None:
    """Renewing moves the end of the lease, counted from now."""
    run, lease = new_run(store)
    store.renew_lease(lease, now=150.0, seconds=60.0)
    held = store.lease(run, now=209.0)
    assert held is not None
    assert held == replace(lease, expires_boot_seconds=210.0, expires_at=held.expires_at)
    assert held.expires_at > lease.expires_at
    assert store.lease(run, now=210.0) is None


def test_a_released_lease_is_free(store: Store) -> None:
    """Another engine may have it at once, and it may no longer be renewed."""
    run, lease = new_run(store)
    store.release_lease(lease)
    with pytest.raises(LeaseHeld):
        store.renew_lease(lease, now=101.0, seconds=60.0)
    again = store.acquire_lease(run, now=101.0, seconds=60.0)
    assert again.token != lease.token


def test_a_refused_batch_stops_the_writer_for_good(store: Store) -> None:
    """What was submitted after it is not written either, and every question gives the same error."""
    run, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(replace(lease, token="stale"), entry(1)))
    with pytest.raises(LeaseHeld):
        writer.flush()
    writer.submit(batch(lease, entry(3)))
    with pytest.raises(LeaseHeld):
        writer.flush()
    with pytest.raises(LeaseHeld):
        writer.durable()
    writer.close()
    assert list(store.entries(run)) == []


def test_an_error_that_nobody_heard_is_raised_at_close(store: Store) -> None:
    """Closing is the last chance to say that something was not written."""
    _, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(replace(lease, token="stale"), entry(1)))
    with pytest.raises(LeaseHeld):
        writer.close()


def test_of_racing_threads_exactly_one_gets_the_lease(place: Place) -> None:
    """Eight openings ask at the same moment; one wins and seven are told so."""
    stores = [place.open() for _ in range(8)]
    run = stores[0].create_run(run_row(), DEFINITION, [])
    barrier = Barrier(len(stores))
    won: list[Lease] = []
    refused: list[LeaseHeld] = []

    def race(store: Store) -> None:
        barrier.wait()
        try:
            won.append(store.acquire_lease(run, 100.0, 60.0))
        except LeaseHeld as error:
            refused.append(error)

    threads = [Thread(target=race, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 7)
    assert stores[3].lease(run, 100.0) == won[0]


def test_requests_wait_until_a_batch_has_answered_them(place: Place) -> None:
    """What any opening leaves is there, oldest first, until the events it became are durable; other runs' stay."""
    surface, engine = place.open(), place.open()
    run, lease = new_run(engine)
    other, _ = new_run(engine)
    ids = [
        surface.request(run, 1.0, "cancel", {"by": "ann"}),
        surface.request(other, 2.0, "cancel", {}),
        surface.request(run, 3.0, "judge", {"job": 7}),
    ]
    assert ids == [1, 2, 3]
    taken = engine.requests(run)
    assert [(kept.id, kept.run, kept.at, kept.kind, kept.body) for kept in taken] == [
        (1, run, 1.0, "cancel", {"by": "ann"}),
        (3, run, 3.0, "judge", {"job": 7}),
    ]
    assert [kept.id for kept in engine.requests(run, after=1)] == [3]
    writer = engine.writer()
    answer = batch(lease, entry(1))
    answer.answered = {1: {"ok": True}}
    writer.submit(answer)
    writer.flush()
    assert [kept.id for kept in place.open().requests(run)] == [3]
    assert [kept.id for kept in surface.requests(other)] == [2]
    assert [surface.result(number) for number in (1, 2, 3)] == [{"ok": True}, None, None]


def test_changed_says_that_something_was_committed(place: Place) -> None:
    """Commits of any opening and of the writer are changes, once each; the first question has the answer yes."""
    store, other = place.open(), place.open()
    assert (store.has_changed(), store.has_changed()) == (True, False)
    run, lease = new_run(store)
    assert (store.has_changed(), store.has_changed()) == (True, False)
    other.request(run, 1.0, "cancel", {})
    assert (store.has_changed(), store.has_changed()) == (True, False)
    writer = store.writer()
    writer.submit(batch(lease, entry(1)))
    writer.flush()
    assert (store.has_changed(), store.has_changed()) == (True, False)


def test_a_half_read_stream_is_in_nobodys_way(place: Place) -> None:
    """A store whose own stream lies open still writes, also after others have written, and the stream goes on."""
    store, other = place.open(), place.open()
    run, lease = new_run(store, jobs=500)
    stream = store.jobs(run)
    assert next(stream).id == 1
    other.request(run, 1.0, "cancel", {})
    assert store.request(run, 2.0, "cancel", {}) == 2
    store.renew_lease(lease, 101.0, 60.0)
    assert [kept.id for kept in store.requests(run)] == [1, 2]
    assert [row.id for row in stream] == list(range(2, 501))


def test_reads_inside_one_moment_agree(place: Place) -> None:
    """What is committed meanwhile is seen by none of them, and by all afterwards."""
    store, engine = place.open(), place.open()
    run, lease = new_run(engine)
    writer = engine.writer()
    submitted = Flag()

    def write() -> None:
        submitted.set()
        writer.submit(batch(lease, entry(1), jobs=(job(1, 5),)))
        writer.flush()

    # A store may let the commit through or make it wait; the reads must not show it either way.
    thread = Thread(target=write)
    with store.reading():
        before = store.run(run)
        thread.start()
        assert submitted.wait(WAIT_SECONDS_MAX)
        for _ in range(200):
            assert [row.status for row in store.jobs(run)] == [1, 1]
            assert list(store.entries(run)) == []
        assert store.run(run) == before
    thread.join()
    assert [row.status for row in store.jobs(run)] == [5, 1]
    assert [kept.seq for kept in store.entries(run)] == [1]


def test_the_history_of_a_signature_counts_cases_and_those_that_passed_later(store: Store) -> None:
    """Over all runs; a later attempt of the same job counts, another job's does not, and wildcards are plain text."""
    wild = replace(FAILURE, signature="50%_!")
    other = replace(FAILURE, signature="50ab!")
    rows = [
        AttemptRow(1, 1, 1, 1.0, 2.0, 1, failure=wild),
        AttemptRow(1, 1, 2, 2.0, 3.0, 1, failure=wild),
        AttemptRow(1, 2, 1, 3.0, 4.0, 0),
        AttemptRow(2, 1, 1, 1.0, 2.0, 1, failure=wild),
        AttemptRow(3, 1, 1, 2.0, 3.0, 0),
        AttemptRow(4, 1, 1, 1.0, 2.0, 1, failure=other),
        AttemptRow(5, 1, 1, 1.0, 2.0, 1, failure=wild),
        AttemptRow(5, 1, 2, 2.0),
    ]
    writer = store.writer()
    for _ in range(2):
        _, lease = new_run(store)
        writer.submit(batch(lease, attempts=tuple(rows)))
    writer.flush()
    writer.close()
    assert store.signature_history("50%_!") == SignatureHistory(8, 4)
    assert store.signature_history("50ab!") == SignatureHistory(2, 0)
    assert store.signature_history("none") == SignatureHistory()
