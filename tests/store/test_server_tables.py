"""The tables that servers share: one suite for all stores."""

from __future__ import annotations

from threading import Thread

import pytest
from msgspec.structs import replace

from resile.core.actions import Note
from resile.model.status import Status
from resile.store.contract import Entry, JobRow, Lease, Store
from resile.store.errors import KeyInUse, LeaseHeld, StoreError
from resile.store.lease import boot_seconds
from resile.store.server_tables import Call, Census, Claim, ServerTables, SharedStore, Submission, Token

from .conftest import Place
from .samples import DEFINITION, EVENTS, batch, run_row

SECONDS = 30.0


@pytest.fixture
def shared(place: Place) -> SharedStore:
    """An open store."""
    return _open(place)


def _open(place: Place) -> SharedStore:
    store = place.open()
    assert hasattr(store, "server_tables")
    return store


def _run(store: Store, priority: int | None = None, key: str = "") -> int:
    return store.create_run(replace(run_row(), key=key), DEFINITION, (), priority)


def _due(tables: ServerTables, at: float, now: float = 100.0) -> list[int]:
    return [one.run for one in tables.due_runs(at, now)]


def test_a_run_that_is_submitted_is_due_at_once(shared: SharedStore) -> None:
    """A run with a priority is handed to servers as it is created; one without is not."""
    tables = shared.server_tables()
    first, second = _run(shared, priority=3), _run(shared)
    assert tables.submission(first) == Submission(first, 3, 100.5, 100.5)
    assert tables.submission(second) is None
    assert (_due(tables, 100.0), _due(tables, 100.5), tables.next_due()) == ([], [first], 100.5)


def test_due_runs_come_by_priority_then_by_time(shared: SharedStore) -> None:
    """High priority first, then what was due first; `limit` bounds the list."""
    tables = shared.server_tables()
    runs = [_run(shared) for _ in range(4)]
    for run, at, priority in zip(runs, (30.0, 20.0, 10.0, 90.0), (0, 0, 5, 0), strict=True):
        tables.enqueue(run, at, priority)
    assert _due(tables, 50.0) == [runs[2], runs[1], runs[0]]
    assert [one.run for one in tables.due_runs(50.0, 100.0, limit=2)] == [runs[2], runs[1]]


def test_another_enqueue_makes_a_run_due_earlier_and_never_later(shared: SharedStore) -> None:
    """A wake-up keeps the earlier time, and the priority if it names none."""
    tables = shared.server_tables()
    run = _run(shared)
    tables.enqueue(run, 20.0, 7)
    tables.enqueue(run, 30.0)
    assert tables.submission(run) == Submission(run, 7, 20.0, 20.0)
    tables.enqueue(run, 10.0, 1)
    assert tables.submission(run) == Submission(run, 1, 10.0, 20.0)
    with pytest.raises(StoreError, match="no run 77"):
        tables.enqueue(77, 1.0)


def test_a_driven_run_is_not_due_until_its_lease_is_free(shared: SharedStore) -> None:
    """The holder of a lease hides its run from other servers for as long as it renews it."""
    tables = shared.server_tables()
    run = _run(shared, priority=0)
    lease = shared.acquire_lease(run, 100.0, SECONDS)
    assert _due(tables, 200.0, 120.0) == []
    assert tables.renew_leases([lease], 120.0, SECONDS) == []
    assert _due(tables, 200.0, 140.0) == []
    assert _due(tables, 200.0, 151.0) == [run]


def test_a_run_that_waits_is_handed_back(shared: SharedStore) -> None:
    """It is due at the time that the server names, or never; the lease is free at once."""
    tables = shared.server_tables()
    run = _run(shared, priority=0)
    tables.hand_back(shared.acquire_lease(run, 100.0, SECONDS), 500.0)
    assert (_due(tables, 499.0), _due(tables, 500.0)) == ([], [run])
    lease = shared.acquire_lease(run, 100.0, SECONDS)
    tables.hand_back(lease, None)
    assert (_due(tables, 1e12), tables.next_due()) == ([], None)
    with pytest.raises(LeaseHeld):
        tables.hand_back(lease, 1.0)


def test_a_request_makes_a_submitted_run_due(shared: SharedStore) -> None:
    """A run that waits for nothing else is due with its first request, even if the request came before it was handed
    back.
    """
    tables = shared.server_tables()
    run, other = _run(shared, priority=0), _run(shared)
    tables.hand_back(shared.acquire_lease(run, 100.0, SECONDS), None)
    shared.request(run, 300.0, "cancel", {})
    shared.request(other, 300.0, "cancel", {})
    assert (_due(tables, 299.0), _due(tables, 300.0)) == ([], [run])
    tables.hand_back(shared.acquire_lease(run, 100.0, SECONDS), 900.0)
    assert _due(tables, 1.0) == [run]
    tables.dequeue(shared.acquire_lease(run, 100.0, SECONDS))
    assert _due(tables, 1.0) == [run]


def test_a_run_that_has_ended_is_dequeued(shared: SharedStore) -> None:
    """Servers drive it no more until it is enqueued again."""
    tables = shared.server_tables()
    run = _run(shared, priority=4)
    tables.dequeue(shared.acquire_lease(run, 100.0, SECONDS))
    assert (tables.submission(run), shared.lease(run, 100.0)) == (None, None)
    tables.enqueue(run, 9.0)
    assert tables.submission(run) == Submission(run, 0, 9.0, 9.0)


def test_renewing_many_leases_names_those_that_are_lost(shared: SharedStore) -> None:
    """One statement renews all; a lease that another engine has taken over is returned."""
    tables = shared.server_tables()
    runs = [_run(shared, priority=0) for _ in range(3)]
    leases = [shared.acquire_lease(run, 100.0, SECONDS) for run in runs]
    shared.acquire_lease(runs[1], 131.0, SECONDS)
    assert tables.renew_leases(leases, 120.0, SECONDS) == [leases[1]]
    assert tables.renew_leases([], 120.0, SECONDS) == []


def test_a_key_belongs_to_one_run(shared: SharedStore) -> None:
    """The second run with a key is refused, and the first is found by it; no key is no key."""
    run = _run(shared, key="nightly-7")
    with pytest.raises(KeyInUse, match="nightly-7"):
        _run(shared, key="nightly-7")
    assert [_run(shared), _run(shared)] == [row.id for row in reversed(shared.runs(2))]
    found = shared.run_with_key("nightly-7")
    assert found is not None
    assert (found.id, found.key) == (run, "nightly-7")
    assert (shared.run_with_key("other"), shared.run_with_key("")) == (None, None)


def test_announcements_of_all_runs_have_one_order(place: Place) -> None:
    """Starts, ends, parked and judged failures are announced; events of attempts are not."""
    store = _open(place)
    tables = store.server_tables()
    first, second = _run(store), _run(store)
    leases = [store.acquire_lease(run, 100.0, SECONDS) for run in (first, second)]
    writer = store.writer()
    kinds = ["playbook_started", "step_started", "step_parked", "step_judged", "workflow_completed"]
    for seq, kind in enumerate(kinds, 1):
        for lease in leases:
            writer.submit(batch(lease, Entry(seq, EVENTS[2], (Note(seq, 1.0, kind, job=int("step" in kind)),))))
        writer.flush()
    heard = [(one.position, one.run, one.note.type) for one in _open(place).server_tables().announcements(0)]
    told = ["playbook_started", "step_parked", "step_judged", "workflow_completed"]
    assert heard == [(2 * n + r, run, kind) for n, kind in enumerate(told) for r, run in ((1, first), (2, second))]
    assert tables.last_position() == 8
    assert [one.position for one in tables.announcements(3, limit=2)] == [4, 5]
    assert tables.announcements(8) == []


def test_tokens_are_kept_by_name(shared: SharedStore) -> None:
    """A name is used once; a revoked token is gone."""
    tables = shared.server_tables()
    ann, bob = Token("ann", "viewer", "aa", 1.0), Token("bob", "admin", "bb", 2.0, 9.0)
    tables.add_token(bob)
    tables.add_token(ann)
    assert tables.tokens() == [ann, bob]
    with pytest.raises(StoreError, match="bob"):
        tables.add_token(bob)
    assert (tables.revoke_token("bob"), tables.revoke_token("bob")) == (True, False)
    assert tables.tokens() == [ann]


def test_of_calls_with_one_key_one_is_at_work(place: Place) -> None:
    """Of ten callers that race with one key exactly one may work; all others see its digest, later its answer."""
    places = [_open(place).server_tables() for _ in range(10)]
    now, heard = boot_seconds(), list[Call | None]()
    threads = [Thread(target=lambda one=one: heard.append(one.begin_call("k", "d", 10.0, now))) for one in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, heard)) == sorted(map(str, [None] + [Call("d", None, 10.0)] * 9))
    places[0].finish_call("k", b"\x00answer")
    assert places[1].begin_call("k", "other", 11.0, now) == Call("d", b"\x00answer", 10.0)
    assert places[1].begin_call("k", "other", 10.0 + 24 * 3600 + 1, now) is None
    places[2].forget_call("k")
    assert places[1].begin_call("k", "d", 12.0, now) is None


def test_a_call_without_an_answer_is_carried_out_by_the_next(shared: SharedStore) -> None:
    """One that was released is the next caller's, if that asks for the same, and no third one's; it keeps its time."""
    tables, now = shared.server_tables(), boot_seconds()
    assert tables.begin_call("k", "d", 10.0, now) is None
    tables.release_call("k")
    assert tables.begin_call("k", "other", 11.0, now) == Call("d", None, 10.0, is_orphaned=True)
    assert tables.begin_call("k", "d", 12.0, now) == Call("d", None, 10.0, is_orphaned=True)
    tables.renew_call("k", now)
    assert tables.begin_call("k", "d", 13.0, now) == Call("d", None, 10.0)
    tables.finish_call("k", b"answer")
    tables.release_call("k")
    found = tables.begin_call("k", "d", 14.0, now)
    assert found is not None
    assert found.answer == b"answer"


def test_a_call_is_free_when_its_server_was_silent_for_too_long(place: Place) -> None:
    """A process of another machine, or one that is frozen, holds a key for as long as its lease lasts."""
    tables, now = _open(place).server_tables(), boot_seconds()
    tables.begin_call("k", "d", 10.0, now - 15.1)
    found = tables.begin_call("k", "d", 11.0, now)
    assert found is not None
    assert found.is_orphaned


def test_a_request_is_found_by_its_call(shared: SharedStore) -> None:
    """A request that a call left is found by the name of the call, until and after it is answered."""
    tables, run = shared.server_tables(), _run(shared)
    shared.request(run, 1.0, "cancel", {"by": "ann"})
    number = shared.request(run, 2.0, "retry", {"by": "ann", "call": "call-1"})
    assert tables.request_of_call(run, "call-1") == number
    assert tables.request_of_call(run, "call-2") is None


def test_claims_say_which_worker_has_which_attempt(shared: SharedStore) -> None:
    """Claims are found by run and by worker; a later claim of an attempt replaces the earlier one."""
    tables = shared.server_tables()
    first, second = _run(shared), _run(shared)
    claims = [Claim(first, 1, job, 1, f"w{job}", "t", 1.0, 1 << 33) for job in (1, 2)] + [
        Claim(second, 1, 1, 2, "w1", "t", 2.0)
    ]
    tables.add_claims(claims)
    assert tables.claims() == claims
    assert (tables.claims(run=second), tables.claims(worker="w2")) == (claims[2:], claims[1:2])
    taken = replace(claims[0], worker="w9", token="u")
    tables.add_claims([taken])
    tables.drop_claims([(second, 1, 1, 2), (second, 9, 9, 9)])
    assert tables.claims() == [taken, claims[1]]
    lease: Lease = shared.acquire_lease(first, 100.0, SECONDS)
    shared.delete_run(lease)
    assert tables.claims() == []


def test_the_census_counts_runs_parked_failures_and_due_runs(shared: SharedStore) -> None:
    """By status over all runs; a parked job of a run that has ended waits for no one."""
    tables = shared.server_tables()
    assert tables.census(100.0) == Census({}, 0, 0, 0)
    parked = JobRow(1, "a", "root", Status.pending_failed)
    first = shared.create_run(run_row(), DEFINITION, (parked, JobRow(2, "b", "root", Status.blocked)), 0)
    second = shared.create_run(run_row(), DEFINITION, (parked,))
    shared.create_run(replace(run_row(), status="failed"), DEFINITION, (parked,))
    status = run_row().status
    assert tables.census(100.5) == Census({status: 2, "failed": 1}, 2, 0, 1)
    assert tables.parked_jobs() == [(second, 1), (first, 1)]


def test_a_server_takes_what_is_due_and_lets_go_of_it_together(place: Place) -> None:
    """In the order in which runs are due, at most so many, each under a lease whose number rises."""
    shared, other = _open(place), _open(place)
    tables = shared.server_tables()
    assert tables.take_due(50.0, 100.0, SECONDS, 5) == []
    runs = [_run(shared) for _ in range(5)]
    for run, at, priority in zip(runs, (30.0, 20.0, 10.0, 90.0, 40.0), (0, 0, 5, 0, 0), strict=True):
        tables.enqueue(run, at, priority)
    held = other.acquire_lease(runs[4], 100.0, SECONDS)
    first = tables.take_due(50.0, 100.0, SECONDS, 2)
    assert [(one.run, one.due_at, lease.run) for one, lease in first] == [
        (runs[2], 10.0, runs[2]),
        (runs[1], 20.0, runs[1]),
    ]
    assert [one.run for one, _ in other.server_tables().take_due(50.0, 100.0, SECONDS, 5)] == [runs[0]]
    assert tables.take_due(50.0, 100.0, SECONDS, 5) == []
    third, second = (lease for _, lease in first)
    assert shared.lease(runs[1], 100.0) == second
    assert shared.lease(runs[1], 100.0 + SECONDS - 1) == second
    # The second is lost to another process, so only the third is let go of; what others hold stays theirs.
    taken_over = other.acquire_lease(runs[1], 100.0 + SECONDS + 1, SECONDS)
    assert taken_over.number > second.number
    tables.release_all([second], [(third, 70.0), (replace(held, token="stale"), 1.0)])
    assert tables.submission(runs[1]) is not None
    assert other.lease(runs[1], 100.0 + SECONDS + 1) == taken_over
    assert other.lease(runs[4], 100.0) == held
    submission = tables.submission(runs[2])
    assert submission is not None
    assert (submission.due_at, shared.lease(runs[2], 100.0)) == (70.0, None)
    ((_, again),) = tables.take_due(70.0, 100.0, SECONDS, 1)
    assert again.run == runs[2]
    assert again.number > third.number
    tables.release_all([again, held], [])
    assert [tables.submission(run) for run in (runs[2], runs[4])] == [None, None]
    assert [shared.lease(run, 100.0) for run in (runs[2], runs[4])] == [None, None]
