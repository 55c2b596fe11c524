"""Deleting runs, in every store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from resile.model.codec import content_hash
from resile.store.contract import Store
from resile.store.errors import LeaseHeld, StoreError
from tests.store.conftest import Place
from tests.store.samples import DEFINITION, batch, entry, job, new_run, run_row, wait_for


def test_a_deleted_run_leaves_nothing(store: Store) -> None:
    """Its rows and its lease are gone, another run keeps its own, and the next run has a number of its own."""
    (run, lease), (other, theirs) = new_run(store), new_run(store)
    store.request(run, 1.0, "cancel", {})
    writer = store.writer()
    for held in (lease, theirs):
        wait_for(writer, writer.submit(batch(held, entry(1), jobs=(job(1),))))
    assert store.run_bytes(run) > 0
    store.delete_run(lease)
    assert (store.run(run), list(store.entries(run)), list(store.jobs(run)), store.requests(run)) == (None, [], [], [])
    assert (store.lease(run, now=0.0), store.run_bytes(run)) == (None, 0)
    assert [row.id for row in store.runs()] == [other]
    assert len(list(store.entries(other))) == 1
    assert store.definition(content_hash(DEFINITION)) == DEFINITION
    assert new_run(store)[0] == other + 1


def test_the_last_run_takes_its_definition_along(store: Store) -> None:
    """A definition is deleted with the last run that has it, unless a compiled file has it too."""
    second = b'{"name":"other","steps":[]}'
    store.cache_definition("key", second)
    run, lease = new_run(store)
    store.delete_run(lease)
    number = store.create_run(replace(run_row(), definition=content_hash(second)), second, [])
    store.delete_run(store.acquire_lease(number, now=0.0, seconds=60.0))
    with pytest.raises(StoreError) as missing:
        store.definition(content_hash(DEFINITION))
    assert missing.value.code == "no-such-definition"
    assert store.cached_definition("key") == second
    assert run < number


def test_runs_of_a_directory_are_counted(store: Store) -> None:
    """Whatever its name is made of."""
    for directory in ("/a", "/a", "/b\udcff"):
        store.create_run(replace(run_row(), directory=directory), DEFINITION, [])
    assert [store.count_runs_in(directory) for directory in ("/a", "/b\udcff", "/c")] == [2, 1, 0]


def test_deleting_needs_the_lease(place: Place) -> None:
    """A process that lost the run to another one deletes nothing."""
    store, engine = place.open(), place.open()
    run, lease = new_run(store)
    engine.acquire_lease(run, now=lease.expires_boot_seconds, seconds=60.0)
    with pytest.raises(LeaseHeld) as refused:
        store.delete_run(lease)
    assert refused.value.code == "lease-lost"
    assert store.run(run) is not None


def test_the_witness_of_a_deleted_run_is_gone(place: Place) -> None:
    """After a kill a deleted run is not taken for one that was lost."""
    store = place.open()
    _, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1), jobs=(job(1),))))
    store.delete_run(lease)
    again = place.open()
    assert (again.runs(), again.find_damage()) == ([], [])


def test_space_is_given_back_when_nothing_is_driven(store: Store) -> None:
    """While a run is driven nothing happens, and the answer names it; afterwards the database is no larger."""
    jobs = [replace(job(number), step="x" * 500) for number in range(1, 400)]
    big = store.create_run(run_row(), DEFINITION, jobs)
    store.delete_run(store.acquire_lease(big, now=0.0, seconds=60.0))
    run, lease = new_run(store)
    assert store.compact(now=0.0) == f"run {run} is being driven"
    before = store.size_bytes()
    store.release_lease(lease)
    assert store.compact(now=0.0) == ""
    assert store.size_bytes() <= before
    assert [row.id for row in store.runs()] == [run]
