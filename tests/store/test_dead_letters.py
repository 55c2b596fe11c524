"""Dead letters in every store: added and removed with their events, read as a stream, purged with the lease."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from resile.core.actions import DropLetter, KeepLetter
from resile.model.items import DeadLetter, KeptScope
from resile.store.contract import Batch, Lease, LetterCount, LetterRow, Store, Writer
from resile.store.errors import LeaseHeld
from tests.store.conftest import Place
from tests.store.samples import BROKEN, batch, entry, job, letter, new_run

ODD = b"caf\xe9 \xff".decode("utf-8", "surrogateescape")


def holding(lease: Lease, *letters: DeadLetter, gone: Iterable[tuple[str, int]] = (), goes_on: bool = False) -> Batch:
    """A batch that adds some letters and removes others."""
    some = batch(lease)
    keep = [KeepLetter(one, goes_on) for one in letters]
    some.letters = (*keep, *(DropLetter(name, index, None) for name, index in gone))
    return some


def write(writer: Writer, *batches: Batch) -> None:
    """Wait until these are on disk."""
    for one in batches:
        writer.submit(one)
    writer.flush()


def kept(store: Store, run: int) -> list[str]:
    """The ids of all letters of a run."""
    return [row.item_id for row in store.letters(run)]


def test_a_letter_comes_back_with_all_that_is_known(store: Store) -> None:
    """Item, history, first and last failure, signature and correlation id are what the engine gave."""
    run, lease = new_run(store)
    later = replace(BROKEN, number=2, at=55.5, kind="timeout", exit_code=None, signature="0ddba11", stderr=ODD)
    value = {"path": f"a/{ODD}", "n": [1, None, 2.5], "big": 1 << 70}
    write(store.writer(), holding(lease, letter(7, BROKEN, later, value=value)))
    expected = LetterRow(
        run=run,
        name="map",
        index=7,
        map="map",
        step="map",
        job=2,
        scope=1,
        reason="failed",
        signature="0ddba11",
        failure_count=2,
        first_at=50.25,
        last_at=55.5,
        eligible=True,
        value=value,
        history=(BROKEN, later),
    )
    assert store.letter(run, "map", 7) == expected
    assert list(store.letters(run)) == [expected]
    assert (expected.item_id, expected.correlation_id) == ("map[7]", f"{run}:map[7]")


def test_an_item_that_never_started(store: Store) -> None:
    """It has no failures: its times are when it was kept, and its reason stands for a signature."""
    run, lease = new_run(store)
    write(store.writer(), holding(lease, letter(0, reason="not_started", value="x")))
    row = store.letter(run, "map", 0)
    assert row is not None
    assert (row.reason, row.signature, row.failure_count, row.history) == ("not_started", "not_started", 0, ())
    assert (row.first_at, row.last_at, row.eligible) == (60.0, 60.0, True)


@pytest.mark.parametrize(
    ("last", "signature", "eligible"),
    [
        (replace(BROKEN, kind="lost"), "5ca1ab1e", False),
        (replace(BROKEN, kind="contract", signature=""), "contract: test", True),
        (replace(BROKEN, kind="oom"), "5ca1ab1e", True),
    ],
)
def test_what_is_not_eligible(store: Store, last: object, signature: str, eligible: bool) -> None:
    """Only an item whose last attempt was lost is not tried again unasked; a failure without a signature gets one."""
    run, lease = new_run(store)
    write(store.writer(), holding(lease, letter(1, replace(BROKEN, kind="lost"), last)))  # type: ignore[arg-type]
    row = store.letter(run, "map", 1)
    assert row is not None
    assert (row.signature, row.eligible) == (signature, eligible)


def test_letters_are_a_stream_by_name_and_index(store: Store) -> None:
    """However they were written, of one fan-out or from some index on; other runs have their own."""
    run, lease = new_run(store)
    _, other = new_run(store)
    write(
        store.writer(),
        holding(lease, letter(10), letter(9, job=5), letter(2)),
        holding(other, letter(4)),
        holding(lease, letter(0)),
    )
    assert kept(store, run) == ["map[0]", "map[2]", "map[10]", "map-5[9]"]
    assert [row.index for row in store.letters(run, "map")] == [0, 2, 10]
    assert [row.index for row in store.letters(run, "map", after_index=2)] == [10]
    assert [row.item_id for row in store.letters(run, after_index=9)] == ["map[10]"]
    assert store.letter_counts(run) == [
        LetterCount("map", "map", "map", 2, 1, 3),
        LetterCount("map-5", "map-5", "map-5", 5, 1, 1),
    ]
    assert store.letter(run, "map-5", 2) is None


def test_succeeded_items_leave_and_failed_ones_stay_with_a_longer_history(store: Store) -> None:
    """A later letter of the same item replaces it; one that is gone, or never was, is not there."""
    run, lease = new_run(store)
    writer = store.writer()
    write(writer, holding(lease, *(letter(index, BROKEN) for index in range(5))))
    again = replace(BROKEN, number=2, at=70.0)
    write(writer, holding(lease, letter(3, BROKEN, again), gone=[("map", 0), ("map", 4), ("map", 77), ("no", 1)]))
    assert [(row.index, row.failure_count) for row in store.letters(run)] == [(1, 1), (2, 1), (3, 2)]
    assert store.letter_counts(run) == [LetterCount("map", "map", "map", 2, 1, 3)]


def test_many_letters_in_one_batch(store: Store) -> None:
    """None is lost and none doubled, whatever the size of a statement."""
    run, lease = new_run(store)
    write(store.writer(), holding(lease, *(letter(index, BROKEN, value=index) for index in range(131))))
    assert [row.value for row in store.letters(run)] == list(range(131))


def test_letters_belong_to_the_transaction_of_their_events(store: Store) -> None:
    """A refused batch leaves neither its entries nor its letters, and removes none."""
    run, lease = new_run(store)
    writer = store.writer()
    write(writer, holding(lease, letter(1)))
    stale = holding(replace(lease, token="stale"), letter(2), gone=[("map", 1)])
    stale.entries.append(entry(1))
    stale.jobs[1] = job(1, 5)
    writer.submit(stale)
    with pytest.raises(LeaseHeld):
        writer.flush()
    assert (kept(store, run), list(store.entries(run))) == (["map[1]"], [])


def test_purging_all_or_some(store: Store) -> None:
    """The letters that are named leave, or all of the run; those of other runs stay."""
    run, lease = new_run(store)
    other, theirs = new_run(store)
    write(store.writer(), holding(lease, letter(1), letter(2), letter(1, job=5), letter(3)), holding(theirs, letter(1)))
    assert store.purge_letters(lease, [("map", 1), ("map", 2), ("map", 99)]) == 2
    assert kept(store, run) == ["map[3]", "map-5[1]"]
    assert store.purge_letters(lease, []) == 0
    assert store.purge_letters(lease) == 2
    assert (kept(store, run), kept(store, other)) == ([], ["map[1]"])


def test_purging_needs_the_lease(place: Place) -> None:
    """Whoever lost the run to another engine, or gave it back, removes nothing."""
    store, engine = place.open(), place.open()
    run, lease = new_run(store)
    write(store.writer(), holding(lease, letter(1)))
    theirs = engine.acquire_lease(run, now=lease.expires_boot_seconds, seconds=60.0)
    for _ in range(2):
        with pytest.raises(LeaseHeld) as refused:
            store.purge_letters(lease)
        assert refused.value.code == "lease-lost"
        engine.release_lease(theirs)
    assert kept(store, run) == ["map[1]"]


def test_a_stream_of_letters_is_in_nobodys_way(place: Place) -> None:
    """Letters may be purged while they are read; the stream goes on as it began."""
    store = place.open()
    run, lease = new_run(store)
    write(store.writer(), holding(lease, *(letter(index) for index in range(300))))
    stream = store.letters(run)
    assert next(stream).index == 0
    assert store.purge_letters(lease, [("map", index) for index in range(300)]) == 300
    assert [row.index for row in stream] == list(range(1, 300))
    assert kept(store, run) == []


def test_a_run_without_letters(store: Store) -> None:
    """There is nothing to read, of a run that is there and of one that is not."""
    run, _ = new_run(store)
    for number in (run, run + 1):
        assert (kept(store, number), store.letter_counts(number), store.letter(number, "map", 0)) == ([], [], None)


def test_letters_of_one_fan_out_and_two_jobs(store: Store) -> None:
    """What is around it was tried again: its letters are counted for each job, and one item has one letter."""
    run, lease = new_run(store)
    first = replace(letter(1), name="out[3]/map", map="out/map", scope=4)
    again = replace(first, job=9, scope=8)
    write(store.writer(), holding(lease, first, replace(first, item=letter(2).item)), holding(lease, again))
    assert store.letter_counts(run) == [
        LetterCount("out[3]/map", "out/map", "map", 2, 4, 1),
        LetterCount("out[3]/map", "out/map", "map", 9, 8, 1),
    ]
    assert [(row.item_id, row.job) for row in store.letters(run)] == [("out[3]/map[1]", 9), ("out[3]/map[2]", 2)]


def test_scopes_are_kept_when_no_letter_is_left(store: Store) -> None:
    """The last that was written is there, also when all letters are purged: a rerun goes on with it."""
    run, lease = new_run(store)
    other, theirs = new_run(store)
    body = {"scope": {"id": 4, "values": {"x": ODD}}, "jobs": [], "fans": {}}
    some, more = holding(lease, letter(1), letter(2)), holding(lease)
    some.scopes = (KeptScope(4, 1, {}), KeptScope(5, 4, {"a": 1}))
    more.scopes = (KeptScope(4, 1, body),)
    elsewhere = holding(theirs, letter(1))
    elsewhere.scopes = (KeptScope(4, 1, {}),)
    write(store.writer(), some, more, elsewhere)
    store.purge_letters(lease, [("map", 1)])
    assert [store.kept_scope(run, number) for number in (4, 5, 6)] == [
        KeptScope(4, 1, body),
        KeptScope(5, 4, {"a": 1}),
        None,
    ]
    assert store.purge_letters(lease) == 1
    assert (store.kept_scope(run, 4), store.kept_scope(other, 4)) == (KeptScope(4, 1, body), KeptScope(4, 1, {}))


def test_what_the_same_item_left_before_goes_on_and_another_item_leaves_it_alone(store: Store) -> None:
    """A list may be made again: an item is known by its place and by what it is."""
    run, lease = new_run(store)
    writer = store.writer()
    again = replace(BROKEN, number=1, at=90.0)
    write(writer, holding(lease, letter(0, BROKEN), letter(1, BROKEN, value="old"), letter(2, BROKEN, value="old")))
    write(writer, holding(lease, letter(0, again), letter(1, again, value="new"), goes_on=True))
    rows = {row.index: row for row in store.letters(run)}
    assert [len(rows[index].history) for index in range(3)] == [2, 1, 1]
    assert (rows[0].first_at, rows[0].last_at, rows[0].failure_count, rows[1].value) == (50.25, 90.0, 2, "new")
    write(writer, holding(lease, gone=[("map", 0), ("map", 2)]))
    assert kept(store, run) == ["map[1]", "map[2]"]
