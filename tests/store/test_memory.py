"""The faults of the store in memory, by which simulations make any operation fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from resile.store.errors import LeaseHeld, StoreError, StoreFull
from resile.store.memory import Faults, MemoryDatabase, MemoryStore
from tests.store.samples import batch, entry, is_readable, new_run


def test_the_nth_commit_fails() -> None:
    """A hook that raises at the third commit leaves two, and stops the writer."""
    calls: Counter[str] = Counter()

    def before(operation: str) -> None:
        calls[operation] += 1
        if calls["commit"] == 3:
            raise StoreFull("store-full", "no room")

    database = MemoryDatabase(Faults(before))
    store = MemoryStore(database)
    run, lease = new_run(store)
    writer = store.writer()
    for seq in (1, 3):
        writer.submit(batch(lease, entry(seq)))
    assert writer.durable() == 2
    writer.submit(batch(lease, entry(5)))
    assert is_readable(writer)
    with pytest.raises(StoreFull):
        writer.durable()
    assert [kept.seq for kept in store.entries(run)] == [1, 3]
    assert calls == {"create_run": 1, "acquire_lease": 1, "commit": 3}


def test_held_batches_are_lost_in_a_crash() -> None:
    """What was not committed when a store is dropped is not in the database."""
    database = MemoryDatabase()
    store = MemoryStore(database)
    run, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(lease, entry(1)))
    database.faults.hold = True
    assert writer.submit(batch(lease, entry(3))) == 2
    assert writer.durable() == 1
    assert [kept.seq for kept in MemoryStore(database).entries(run)] == [1]


def test_held_batches_are_committed_when_told() -> None:
    """They go in one transaction, in order."""
    database = MemoryDatabase()
    database.faults.hold = True
    store = MemoryStore(database)
    run, lease = new_run(store)
    writer = store.writer()
    for seq in (1, 3):
        writer.submit(batch(lease, entry(seq)))
    assert (writer.durable(), is_readable(writer)) == (0, False)
    before = database.version
    writer.commit()
    assert (writer.durable(), database.version - before) == (2, 1)
    assert [kept.seq for kept in store.entries(run)] == [1, 3]


def test_a_lease_can_be_lost_between_two_commits() -> None:
    """An engine that is taken over while it works is refused at its next commit."""
    database = MemoryDatabase()
    store = MemoryStore(database)
    run, lease = new_run(store)
    writer = store.writer()
    writer.submit(batch(lease, entry(1)))
    MemoryStore(database).acquire_lease(run, now=lease.expires_boot_seconds, seconds=60.0)
    writer.submit(batch(lease, entry(3)))
    with pytest.raises(LeaseHeld):
        writer.durable()
    assert [kept.seq for kept in store.entries(run)] == [1]


OPERATIONS = ["create_run", "acquire_lease", "renew_lease", "release_lease", "request", "purge_letters"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_operation_can_fail(operation: str) -> None:
    """The hook is asked before each operation, which then does not happen."""
    database = MemoryDatabase()
    store = MemoryStore(database)
    run, lease = new_run(store)

    def before(name: str) -> None:
        if name == operation:
            raise StoreError("store-failed", "as planned")

    database.faults.before = before
    version = database.version
    acts: dict[str, Callable[[], object]] = {
        "create_run": lambda: new_run(store),
        "acquire_lease": lambda: store.acquire_lease(run, 0.0, 1.0),
        "renew_lease": lambda: store.renew_lease(lease, 0.0, 1.0),
        "release_lease": lambda: store.release_lease(lease),
        "purge_letters": lambda: store.purge_letters(lease),
        "request": lambda: store.request(run, 0.0, "cancel", {}),
    }
    with pytest.raises(StoreError, match="as planned"):
        acts[operation]()
    assert database.version == version
