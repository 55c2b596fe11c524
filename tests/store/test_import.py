"""A run of one store in another: every kind of store takes runs of every other."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from resile.core.actions import KeepLetter
from resile.model.items import KeptScope
from resile.store.contract import AttemptRow, Snapshot, Store
from resile.store.errors import StoreError

from .conftest import Place, SqlitePlace
from .samples import BROKEN, DEFINITION, EVENTS, FAILURE, batch, entry, job, letter, run_row


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """Another store, in SQLite."""
    return SqlitePlace(tmp_path / "other").open()


def fill(store: Store) -> int:
    """A run with everything that a run can have; two runs before it make its number 3."""
    for _ in range(2):
        store.create_run(run_row(), DEFINITION, ())
    labelled = replace(run_row("caf\udce9"), labels={"team": "x"}, key="k")
    run = store.create_run(labelled, DEFINITION, [job(1), job(2)])
    lease = store.acquire_lease(run, 100.0, 30.0)
    some = batch(lease, *(replace(entry(seq), event=event) for seq, event in enumerate(EVENTS, 1)))
    some.attempts = {(1, 1, 1): AttemptRow(1, 1, 1, 1.0, 2.0, 3, failure=FAILURE)}
    some.letters = (KeepLetter(letter(3, BROKEN)),)
    some.scopes = (KeptScope(4, 1, {"a": "\0"}), KeptScope(2, 0, {}))
    some.snapshot = Snapshot(3, 1, b"\x00state")
    writer = store.writer()
    writer.submit(some)
    writer.flush()
    store.release_lease(lease)
    return run


def content(store: Store, run: int) -> list[object]:
    """Everything that a store has of a run."""
    row = store.run(run)
    assert row is not None
    streams = (store.entries, store.jobs, store.attempts, store.letters, store.kept_scopes)
    rows = [list(stream(run)) for stream in streams]
    return [row, store.definition(row.definition), store.identity(run), store.latest_snapshot(run), *rows]


def test_a_run_comes_over_whole_with_its_number(place: Place, other: Store) -> None:
    """From any store to any store: all rows are equal, and the next run has the target's own name and next number."""
    here = place.open()
    run = fill(here)
    other.import_run(here, run)
    assert content(other, run) == content(here, run)
    assert run == 3
    name = other.identity()
    assert name not in (here.identity(run), "")
    fresh = other.create_run(run_row(), DEFINITION, ())
    assert (fresh, other.identity(fresh)) == (4, name)


def test_a_store_takes_the_run_of_another(place: Place, other: Store) -> None:
    """The target of any kind has what a SQLite store had; a second copy is refused and changes nothing."""
    here = place.open()
    run = fill(other)
    here.import_run(other, run)
    before = content(here, run)
    assert before == content(other, run)
    with pytest.raises(StoreError, match="run 3"):
        here.import_run(other, run)
    with pytest.raises(StoreError, match="no run 77"):
        here.import_run(other, 77)
    assert content(here, run) == before
    assert here.acquire_lease(run, 100.0, 30.0).run == run
    assert here.create_run(run_row(), DEFINITION, ()) == 4


def test_an_imported_run_has_the_name_of_its_database_and_no_other_run_has(place: Place, other: Store) -> None:
    """In whatever order runs come over, a number that is free has the target's own name."""
    here = place.open()
    own, foreign = here.identity(), other.identity()
    for _ in range(5):
        other.create_run(run_row(), DEFINITION, ())
    found = []
    for run in (4, 2, 5, 3):
        here.import_run(other, run)
        found.append("".join("own " if here.identity(number) == own else "not " for number in range(1, 8)))
    assert found == [
        "own own own not own own own ",
        "own not own not own own own ",
        "own not own not not own own ",
        "own not not not not own own ",
    ]
    assert {here.identity(run) for run in (2, 3, 4, 5)} == {foreign}
    assert here.create_run(run_row(), DEFINITION, ()) == 6
