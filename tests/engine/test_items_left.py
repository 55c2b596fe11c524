"""Which items of a failed fan-out a rerun runs: those with a letter, or those that the log knows."""

from __future__ import annotations

from pathlib import Path

from resile.core.actions import KeepLetter
from resile.core.events import ItemsRead
from resile.engine.items.left import kept_scopes, list_items_left
from resile.engine.items.listing import read_items
from resile.model.items import DeadLetter, Item, ItemFailure, KeptScope
from resile.model.status import Status
from resile.store.contract import Batch, Entry, JobRow
from tests.engine.test_value_lookup import TWO_ITEMS, Lookup

FAILURE = ItemFailure(1, 5.0, "work", "exit", "exit code 1", 1, scope=7)


class Left(Lookup):
    """A fan-out over two items, which run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(TWO_ITEMS, folder, stuck=("use", "work"))
        self.path = str(folder / "left")
        self.each = self.job("each")
        self.fan = self.state.fans[self.each.id]

    def keep(self, index: int, at: float) -> None:
        """Keep the letter of an item."""
        item = Item(index, f"v{index}", (FAILURE,))
        letter = DeadLetter("each", "each", "work", self.each.id, 0, item, "failed", at)
        self.writer.submit(Batch(self.lease.run, self.lease.token, [], {}, {}, letters=(KeepLetter(letter),)))

    def log(self, label: str, first: Status, second: Status) -> None:
        """Store the listing of the items, and what became of their jobs."""
        event = ItemsRead(0.0, self.each.id, label, (Item(0, "v0"), Item(1, "v1")), 2, True)
        jobs = [(self.job("work", index).id, status) for index, status in enumerate((first, second))]
        rows = {number: JobRow(number, "work", f"each[{at}]", status) for at, (number, status) in enumerate(jobs)}
        self.writer.submit(Batch(self.lease.run, self.lease.token, [Entry(1, event, ())], rows, {}))

    def listed(self) -> tuple[int | None, list[Item]]:
        """The number of items that are left, and what the file has."""
        count = list_items_left(self.store, self.lease.run, self.state, self.each, self.path)
        return count, list(read_items(self.path, 0, 10)[0])


def test_letters_are_the_items_that_are_left(tmp_path: Path) -> None:
    """With their failures; one that was kept at the moment of the listing belongs to it."""
    left = Left(tmp_path)
    for index in range(2):
        left.keep(index, left.fan.listed_at)
    assert left.listed() == (2, [Item(0, "v0", (FAILURE,)), Item(1, "v1", (FAILURE,))])


def test_without_a_letter_for_each_the_log_knows_the_items(tmp_path: Path) -> None:
    """All but those whose jobs ended well; a letter from before the listing counts for nothing."""
    left = Left(tmp_path)
    left.fan.listed_at = 9.0
    left.fan.successful = 1
    left.keep(0, 8.0)
    left.log(left.fan.listed, Status.completed, Status.failed)
    assert left.listed() == (1, [Item(1, "v1")])


def test_items_that_nothing_knows_are_said_to_be_unknown(tmp_path: Path) -> None:
    """The log has another listing, or one of another number of items."""
    left = Left(tmp_path)
    left.log("other", Status.failed, Status.failed)
    assert left.listed() == (None, [])
    left = Left(tmp_path)
    left.log(left.fan.listed, Status.completed, Status.failed)
    assert left.listed()[0] is None


def test_an_item_goes_on_with_the_scope_of_its_last_failure(tmp_path: Path) -> None:
    """Where that was stored."""
    left = Left(tmp_path)
    kept = KeptScope(7, 1, {"id": 7})
    left.writer.submit(Batch(left.lease.run, left.lease.token, [], {}, {}, scopes=(kept,)))
    other = ItemFailure(1, 5.0, "work", "exit", "exit code 1", 1, scope=8)
    items = [Item(0, "a", (other, FAILURE)), Item(1, "b", (FAILURE, other)), Item(2, "c")]
    assert kept_scopes(left.store, left.lease.run, items) == ({"id": 7},)
