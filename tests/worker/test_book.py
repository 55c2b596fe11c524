"""The book of a worker: what it holds, in one journal that the next worker in the folder reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from resile.executors.worker import book as books
from resile.executors.worker.book import Book, Entry
from resile.executors.worker.messages import End, Start


def reopen(book: Book, folder: Path) -> Book:
    """The book of the next worker."""
    book.close()
    return Book(str(folder))


def test_the_next_worker_finds_what_was_held(tmp_path: Path) -> None:
    """The last word about each attempt counts, and what was dropped is gone."""
    book = Book(str(tmp_path))
    one, two, three = (Entry(token, 7, number) for number, token in enumerate(("a1", "b2", "c3"), 1))
    book.keep([one, two, three])
    two.start, two.end = Start("b2", 1.0, 55), End(token="b2", kind="ended", at=2.0)
    book.keep([two])
    book.drop(three)
    book.drop(three)
    book = reopen(book, tmp_path)
    assert book.entries == {"a1": one, "b2": two}
    book.drop(book.entries["a1"])
    book = reopen(book, tmp_path)
    assert list(book.entries) == ["b2"]
    book.close()


def test_a_line_that_was_cut_does_not_hide_others(tmp_path: Path) -> None:
    """A full disk may cut a line; those before and after it count."""
    book = Book(str(tmp_path))
    book.keep([Entry("a1", 7, 1)])
    with (tmp_path / "claims" / "journal").open("ab") as file:
        file.write(b'{"type":"kept","token":"cut')
    book.keep([Entry("b2", 7, 2)])
    book = reopen(book, tmp_path)
    assert list(book.entries) == ["a1", "b2"]
    book.close()


def test_a_long_journal_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not grow with what was done."""
    monkeypatch.setattr(books, "JOURNAL_BYTES_MAX", 4096)
    book = Book(str(tmp_path))
    kept = Entry("kept", 7, 1)
    book.keep([kept])
    for number in range(200):
        entry = Entry(f"t{number}", 7, number + 2)
        book.keep([entry])
        book.drop(entry)
    assert (tmp_path / "claims" / "journal").stat().st_size < 2 * 4096
    book = reopen(book, tmp_path)
    assert book.entries == {"kept": kept}
    book.close()
