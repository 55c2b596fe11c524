"""Many runs share one writer: each has tickets of its own, and the lost lease of one run stops no other."""

from __future__ import annotations

import select

import pytest

from resile.model.failure import LogRange
from resile.store.contract import AttemptRow, Lease, Store, Writer
from resile.store.errors import LeaseHeld, StoreError

from .conftest import MemoryPlace, Place
from .samples import WAIT_SECONDS_MAX, batch, entry, new_run


def wait_for_all(writer: Writer, tickets: dict[Writer, int]) -> None:
    """Wait until the tickets of these shares are durable, as a host does; a share that stopped raises its error."""
    while any(share.durable() < ticket for share, ticket in tickets.items()):
        assert select.select([writer.fileno()], [], [], WAIT_SECONDS_MAX)[0], "the tickets never became durable"
        writer.take_advanced()


def lose(place: Place, lease: Lease) -> None:
    """Let another process take over the run of a lease."""
    other = place.open()
    other.release_lease(lease)
    other.acquire_lease(lease.run, now=100.0, seconds=60.0)


def test_shares_have_tickets_of_their_own(store: Store) -> None:
    """Batches of two runs become durable, and each share counts only its own."""
    (first, one), (second, two) = new_run(store), new_run(store)
    writer = store.writer()
    ours, theirs = writer.share(), writer.share()
    tickets = [
        ours.submit(batch(one, entry(1))),
        theirs.submit(batch(two, entry(1))),
        ours.submit(batch(one, entry(3))),
    ]
    assert tickets == [1, 1, 2]
    wait_for_all(writer, {ours: 2, theirs: 1})
    assert [found.seq for found in store.entries(first)] == [1, 3]
    assert [found.seq for found in store.entries(second)] == [1]


def test_a_lost_lease_stops_only_its_share(place: Place) -> None:
    """Of batches in one queue those of the run that was taken over are refused, and the other run goes on."""
    store = place.open()
    (first, one), (second, two) = new_run(store), new_run(store)
    writer = store.writer()
    ours, theirs = writer.share(), writer.share()
    lose(place, one)
    ours.submit(batch(one, entry(1)))
    theirs.submit(batch(two, entry(1)))
    ours.submit(batch(one, entry(3)))
    wait_for_all(writer, {theirs: 1})
    with pytest.raises(LeaseHeld, match=f"no longer drives run {first}"):
        ours.flush()
    wait_for_all(writer, {theirs: theirs.submit(batch(two, entry(3)))})
    assert [list(store.entries(run)) for run in (first, second)] == [[], [entry(1), entry(3)]]


def test_the_host_learns_which_shares_have_moved(place: Place) -> None:
    """`take_advanced` names the share that is durable and the one that stopped, once."""
    store = place.open()
    (_, one), (_, two), (_, three) = new_run(store), new_run(store), new_run(store)
    writer = store.writer()
    ours, theirs, idle = writer.share(), writer.share(), writer.share()
    lose(place, one)
    ours.submit(batch(one, entry(1)))
    theirs.submit(batch(two, entry(1)))
    writer.flush()
    assert writer.take_advanced() == {ours, theirs}
    assert writer.take_advanced() == set()
    idle.submit(batch(three, entry(1)))
    idle.flush()
    assert writer.take_advanced() == {idle}


def test_output_that_cannot_be_kept_stops_only_its_run(store: Store) -> None:
    """Where the output of one run can't be flushed its batches are left out."""
    (first, one), (second, two) = new_run(store), new_run(store)
    writer = store.writer()
    ours, theirs = writer.share(), writer.share()

    def refuse(_: list[LogRange]) -> None:
        raise OSError(5, "broken")

    ours.sync_output = refuse
    printed = AttemptRow(1, 1, 1, log=LogRange("launcher/x", 0, 5))
    ours.submit(batch(one, entry(1), attempts=(printed,)))
    theirs.submit(batch(two, entry(1)))
    wait_for_all(writer, {theirs: 1})
    with pytest.raises(StoreError, match="can't keep the output of steps"):
        ours.flush()
    assert [len(list(store.entries(run))) for run in (first, second)] == [0, 1]


def test_a_broken_database_stops_every_share(place: Place) -> None:
    """A batch that the database itself refuses stops the writer for good."""
    store = place.open()
    (_, one), (_, two) = new_run(store), new_run(store)
    writer = store.writer()
    ours, theirs = writer.share(), writer.share()
    ours.submit(batch(one, entry(1)))
    ours.flush()
    if isinstance(place, MemoryPlace):
        place.database.faults.before = break_down
    # The log has an entry with this number.
    ours.submit(batch(one, entry(1)))
    with pytest.raises(StoreError):
        ours.flush()
    theirs.submit(batch(two, entry(1)))
    with pytest.raises(StoreError):
        theirs.flush()


def break_down(_: str) -> None:
    """The fault of a database in memory."""
    raise StoreError("broken", "the disk is broken")
