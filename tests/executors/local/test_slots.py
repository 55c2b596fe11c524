"""A slot of the launcher by itself, and the pipes that it reads: what attempts print goes to segments, once."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from errno import ENOTDIR
from pathlib import Path

import pytest

from resile.executors.local.launcher import slots
from resile.executors.local.launcher.output import Output
from resile.executors.local.launcher.slots import Slot
from resile.executors.redaction import Patterns

NOTHING = Patterns([])


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    """The slot 3 of a launcher that writes to a folder."""
    made = Slot(3, os.fsencode(tmp_path), b"ab")
    made.out.begin(NOTHING)
    made.err.begin(NOTHING)
    yield made
    made.close()


@pytest.fixture
def output() -> Iterator[Output]:
    """The pipes of a launcher."""
    with select.epoll() as epoll:
        made = Output(epoll)
        yield made
        made.discard_all()
        assert made.abandoned == {}


def say(slot: Slot, out: bytes = b"", err: bytes = b"") -> None:
    """Print as an attempt does."""
    for pipe, data in ((slot.out, out), (slot.err, err)):
        if data:
            os.write(pipe.writer, data)


def is_open(descriptor: int) -> bool:
    """Is this descriptor open?"""
    return os.path.exists(f"/proc/self/fd/{descriptor}")


def test_output_goes_to_the_segment_of_its_stream(slot: Slot, tmp_path: Path) -> None:
    """The files are there from the start; an attempt's output follows that of the one before it."""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ab-3-0.e", "ab-3-0.o"]
    assert not slot.has_output()
    say(slot, b"one", b"two!")
    assert slot.has_output()
    slot.drain()
    assert not slot.has_output()
    assert ((tmp_path / "ab-3-0.o").read_bytes(), (tmp_path / "ab-3-0.e").read_bytes()) == (b"one", b"two!")
    slot.out.begin(NOTHING)
    say(slot, b"more")
    slot.drain()
    assert (slot.out.start, slot.out.size, slot.err.start, slot.err.size) == (3, 7, 0, 4)
    assert (tmp_path / "ab-3-0.o").read_bytes() == b"onemore"


def test_secrets_are_redacted_before_they_are_written(slot: Slot, tmp_path: Path) -> None:
    """The half of a secret waits for the rest of it, and until then there is output to come."""
    slot.out.begin(Patterns([b"secret"]))
    say(slot, b"a sec")
    assert slot.out.pump()
    assert not slot.out.pump()
    assert slot.has_output()
    say(slot, b"ret b")
    slot.drain()
    assert (tmp_path / "ab-3-0.o").read_bytes() == b"a *** b"


def test_segments_of_a_profile_are_made_for_their_first_output(slot: Slot, tmp_path: Path) -> None:
    """So is their folder; the ranges of the next attempts begin at 0 there."""
    say(slot, b"one")
    slot.drain()
    slot.enter(os.fsencode(tmp_path / "own"))
    assert (slot.segment, slot.out.size, slot.out.start) == (b"ab-3-1", 0, 0)
    assert not (tmp_path / "own").exists()
    say(slot, b"two")
    slot.drain()
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["ab-3-1.o"]
    assert (tmp_path / "own" / "ab-3-1.o").read_bytes() == b"two"
    slot.roll()
    assert (slot.segment, slot.out.size) == (b"ab-3-2", 0)


def test_output_without_a_place_is_counted(slot: Slot, tmp_path: Path) -> None:
    """The attempt reports the error; the slot takes new segments, and the next attempt begins without an error."""
    (tmp_path / "file").touch()
    slot.enter(os.fsencode(tmp_path / "file" / "own"))
    assert not slot.is_full()
    say(slot, err=b"lost")
    slot.drain()
    say(slot, err=b"too")
    slot.drain()
    assert (slot.err.errno, slot.err.lost, slot.err.size) == (ENOTDIR, 7, 0)
    assert slot.is_full()
    slot.err.begin(NOTHING)
    assert (slot.err.errno, slot.err.lost, slot.is_full()) == (0, 0, False)
    say(slot, b"lost")
    slot.drain()
    assert slot.is_full()


@pytest.mark.parametrize("stream", ["out", "err"])
def test_large_segments_are_full(slot: Slot, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    """A slot takes new ones once one of them is larger than its limit."""
    monkeypatch.setattr(slots, "SEGMENT_BYTES_MAX", 4)
    say(slot, **{stream: b"1234"})
    slot.drain()
    assert not slot.is_full()
    say(slot, **{stream: b"5"})
    slot.drain()
    assert slot.is_full()


def test_a_pipe_that_an_attempt_made_non_blocking_blocks_again(slot: Slot) -> None:
    """The next attempt does not expect that."""
    os.set_blocking(slot.out.writer, False)
    slot.out.begin(NOTHING)
    assert os.get_blocking(slot.out.writer)
    assert not os.get_blocking(slot.out.reader)


def test_a_new_attempt_gets_new_pipes(slot: Slot, tmp_path: Path, output: Output) -> None:
    """What a process still writes to the old ones is discarded; they are closed when it has gone."""
    left = os.dup(slot.out.writer)
    old = slot.renew()
    output.abandon(old)
    assert list(output.abandoned) == list(old)
    os.write(left, b"late")
    say(slot, b"new")
    slot.drain()
    assert (tmp_path / "ab-3-0.o").read_bytes() == b"new"
    assert output.read(old[0])
    assert output.read(old[0])
    assert old[0] in output.abandoned
    os.close(left)
    for descriptor in old:
        assert output.read(descriptor)
        assert not is_open(descriptor)
    assert output.abandoned == {}
    assert not output.read(old[0])


def test_the_oldest_abandoned_pipes_are_closed(slot: Slot, output: Output) -> None:
    """Processes that stay for ever must not take all descriptors."""
    output.abandoned_max = 2
    held = [os.dup(pipe.writer) for pipe in (slot.out, slot.err)]
    old = slot.renew()
    output.abandon(old)
    assert all(is_open(descriptor) for descriptor in old)
    held += [os.dup(slot.out.writer)]
    newer = slot.renew()
    output.abandon(newer[:1])
    assert list(output.abandoned) == [old[1], newer[0]]
    assert not is_open(old[0])
    for descriptor in (*held, newer[1]):
        os.close(descriptor)


def test_pipes_are_read_while_an_attempt_is_listened_to(slot: Slot, tmp_path: Path, output: Output) -> None:
    """Each goes to its own segment; what nobody listens to is not read."""
    assert not output.read(slot.out.reader)
    output.unlisten(slot)
    output.listen(slot)
    assert slot.listened
    say(slot, b"one", b"two")
    ready = sorted(descriptor for descriptor, _ in output.epoll.poll(10.0))
    assert ready == sorted([slot.out.reader, slot.err.reader])
    assert all(output.read(descriptor) for descriptor in ready)
    assert ((tmp_path / "ab-3-0.o").read_bytes(), (tmp_path / "ab-3-0.e").read_bytes()) == (b"one", b"two")
    output.unlisten(slot)
    assert not slot.listened
    assert not output.read(slot.out.reader)


def test_turns_and_interrupts_are_given_once(slot: Slot) -> None:
    """Neither is lost when it is given twice; an attempt that begins is not interrupted."""
    assert not slot.is_interrupted()
    for _ in range(2):
        slot.interrupt()
        assert slot.is_interrupted()
    for _ in range(2):
        slot.reset()
        assert not slot.is_interrupted()
    slot.has_started.acquire()
    for _ in range(2):
        slot.release_turn()
        assert not slot.has_started.locked()


def test_a_closed_slot_wakes_its_thread(tmp_path: Path) -> None:
    """The thread finds that it is to exit, and every descriptor is closed; one that fails to begin leaves none open."""
    before = set(os.listdir("/proc/self/fd"))
    slot = Slot(0, os.fsencode(tmp_path), b"ab")
    assert (slot.closed, slot.has_work.locked(), slot.is_served) == (False, True, True)
    slot.close()
    assert (slot.closed, slot.has_work.locked()) == (True, False)
    with pytest.raises(FileExistsError):
        Slot(0, os.fsencode(tmp_path), b"ab")
    # The listing had a descriptor of its own, which the second one may have under another number.
    left = {name for name in os.listdir("/proc/self/fd") if is_open(int(name))} - before
    assert left == set()


def test_a_slot_begins_with_no_attempt(slot: Slot) -> None:
    """Nothing of an attempt before shows in the next one's report."""
    assert (slot.key, slot.line, slot.reason, slot.order, slot.profile, slot.pid) == (b"", b"", b"", None, None, 0)
    assert (slot.started, slot.deadline, slot.grace_seconds, slot.measured_at) == (0.0, 0.0, 0.0, 0.0)
    assert (slot.listened, slot.has_orphans, slot.reaped, slot.moved) == (False, False, False, False)
    assert (slot.usage, slot.memory_max, slot.memory_peak, slot.cgroup, slot.known) == ((0, 0.0, 0, 0), 0, 0, b"", {})
