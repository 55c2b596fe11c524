"""What nodes write, as the executor reads it: in any order, while they write, and by several nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resile.commands.cluster.allocations import work_in
from resile.executors.contract import Adopted, Ended, Started, Withdrawn
from resile.executors.parsl.former import Former
from resile.executors.parsl.node.files import Tail
from resile.executors.parsl.nodes import Node
from tests.parsl.hand_nodes import HandNode, executor_in, submitted


def test_an_end_is_never_read_before_its_taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that takes, starts and ends an attempt between two reads is read in that order."""
    hand = HandNode(tmp_path, "aa")
    node = Node(str(tmp_path), "aa")
    read, reads = Tail.read, []

    def read_and_write(tail: Tail) -> list[bytes]:
        found = read(tail)
        reads.append(tail)
        if len(reads) == 1:
            hand.take(b"T 1 1 5.1")
            hand.begin(1)
            hand.end(1)
        return found

    monkeypatch.setattr(Tail, "read", read_and_write)
    seen = node.read() + node.read()
    assert [one.taken or type(one.report).__name__ for one in seen] == ["5.1", "NoneType", "Started", "Ended"]


def test_while_attempts_are_submitted_again_nothing_is_read_twice_or_lost(tmp_path: Path) -> None:
    """What is written while a dropped attempt is submitted again comes after what was read before."""
    with executor_in(tmp_path) as executor:
        with executor._lock:
            for job in (1, 2):
                submitted(executor, job, f"5.{job}")
            hand = HandNode(tmp_path, "aa")
            # The end of job 2 is in the spool before its taking is looked at.
            hand.take(b"T 1 1 5.1", b"X 1 1 5.1", b"T 2 1 5.2")
            hand.begin(2)
            hand.end(2)
            executor._collect()
            assert (2, 1) not in executor._items
            assert [key for keys in executor._waiting.values() for key in keys] == [(1, 1)]
            executor.kill(1, 1)
        assert [type(one) for one in executor.reports()] == [Started, Ended, Withdrawn]


@pytest.mark.parametrize("order", [("aa", "bb"), ("bb", "aa")])
def test_the_newest_submission_counts(tmp_path: Path, order: tuple[str, ...]) -> None:
    """After a resume the record of an older node hides no newer one, in whatever order nodes are read."""
    older, newer = HandNode(tmp_path, "aa"), HandNode(tmp_path, "bb")
    older.take(b"T 1 1 5.9")
    newer.take(b"T 1 1 5.10", b"T 1 1 5.11", b"X 1 1 5.11")
    newer.begin(1)
    former = Former()
    for token in order:
        for happening in Node(str(tmp_path), token).read():
            former.remember(happening)
    assert former.busy_nodes() == {"bb"}
    taken, last = former.forget((1, 1))
    assert taken is not None
    assert last is not None
    assert (taken.taken, taken.node.token, last.node.token) == ("5.10", "bb", "bb")
    assert isinstance(last.report, Started)
    assert former.get((1, 1)) == (None, None)


def test_an_allocation_counts_what_ended_in_it(tmp_path: Path) -> None:
    """`slurm status` counts each attempt that ended there once, and knows whether another one runs."""
    hand, other = HandNode(tmp_path, "aa", allocation="7"), HandNode(tmp_path, "bb", allocation="8")
    for job in (1, 2):
        hand.take(b"T %d 1 5.%d" % (job, job))
        hand.begin(job)
    hand.end(1)
    other.take(b"T 3 1 5.3")
    other.begin(3)
    other.end(3)
    assert work_in("7", str(tmp_path)) == (1, True)
    assert work_in("8", str(tmp_path)) == (1, False)


def test_a_resume_finds_what_the_newest_node_runs(tmp_path: Path) -> None:
    """The attempt is adopted from there, and later lines of the older node are not about it."""
    older, newer = HandNode(tmp_path, "aa"), HandNode(tmp_path, "bb")
    older.take(b"T 1 1 5.9")
    newer.take(b"T 1 1 5.10")
    newer.begin(1)
    with executor_in(tmp_path, 6) as executor:
        executor.find({(1, 1): True})
        older.begin(1)
        older.end(1)
        assert [type(one) for one in executor.reports()] == [Adopted]
        newer.end(1)
        assert [type(one) for one in executor.reports()] == [Ended]


def test_a_resume_asks_nodes_that_no_listing_shows_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of the earlier engine has announced itself: what it runs is adopted and not lost."""
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [] if str(path).endswith("launcher") else listdir(path))
    hand = HandNode(tmp_path, "aa")
    hand.announce()
    hand.take(b"T 1 1 5.1")
    hand.begin(1)
    with executor_in(tmp_path, 6) as executor:
        executor.find({(1, 1): True})
        assert [type(one) for one in executor.reports()] == [Adopted]
