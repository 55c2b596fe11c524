"""The launcher's slots and the processes it waits for: how many there may be, and what happens beyond that."""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.executors.local.launcher.orphans import Orphans
from resile.executors.local.launcher.pool import AGAIN_SECONDS, NEVER, SECONDS_MAX, SlotPool
from resile.executors.local.launcher.system_calls import PR_SET_CHILD_SUBREAPER


@pytest.fixture
def pool() -> SlotPool:
    """A pool of two slots at most, with threads that do nothing."""
    made = SlotPool(lambda _slot: None)
    made.count_max = 2
    return made


@pytest.fixture
def orphans() -> Iterator[Orphans]:
    """A launcher's view of processes, in this one."""
    with select.epoll() as epoll:
        made = Orphans(epoll)
        yield made
        os.close(made.children)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_slots_are_opened_up_to_their_number(pool: SlotPool, tmp_path: Path) -> None:
    """A closed one makes room; no two have the same number."""
    slots = []
    while pool.can_grow():
        slots.append(pool.open(os.fsencode(tmp_path), b"t"))
    assert (len(slots), pool.opened, pool.made, pool.refuse_at) == (2, 2, 2, NEVER)
    pool.close(slots.pop())
    assert (pool.can_grow(), pool.opened) == (True, 1)
    slots.append(pool.open(os.fsencode(tmp_path), b"t"))
    assert pool.made == 3
    for slot in slots:
        pool.close(slot)
    assert pool.opened == 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_files_for_another_slot_the_open_ones_do(pool: SlotPool, number: int) -> None:
    """No other is tried again; where there is none at all the attempts fail at once."""
    assert not pool.can_open_later(number, 100.0)
    pool.opened = 1
    assert pool.can_open_later(number, 100.0)
    assert (pool.count_max, pool.can_grow(), pool.refuse_at) == (1, False, NEVER)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_without_a_thread_attempts_wait_for_a_while(pool: SlotPool, number: int) -> None:
    """Another is tried again soon; if there is none at all by then the attempts fail, else they wait on."""
    assert pool.can_open_later(number, 100.0)
    assert (pool.open_at, pool.refuse_at) == (100.0 + AGAIN_SECONDS, 100.0 + SECONDS_MAX)
    assert pool.can_open_later(number, 101.0)
    assert (pool.open_at, pool.refuse_at) == (101.0 + AGAIN_SECONDS, 100.0 + SECONDS_MAX)
    assert not pool.can_open_later(number, 100.0 + SECONDS_MAX)
    pool.opened, pool.refuse_at = 1, NEVER
    assert pool.can_open_later(number, 1000.0)
    assert (pool.count_max, pool.refuse_at) == (2, NEVER)


def test_another_error_is_not_waited_out(pool: SlotPool) -> None:
    """The folder is gone, say."""
    pool.opened = 1
    assert not pool.can_open_later(errno.ENOENT, 100.0)
    assert (pool.count_max, pool.open_at, pool.refuse_at) == (2, 0.0, NEVER)


def test_so_many_exits_are_awaited_and_no_more(orphans: Orphans) -> None:
    """One that is awaited already takes no further place; a process that has ended is reaped and gives up its own."""
    first, second = (os.posix_spawnp("cat", ["cat"], os.environ, setpgroup=0) for _ in range(2))
    try:
        assert [orphans.expect_exit_of(pid) for pid in (first, first, second)] == [True, True, False]
        assert list(orphans.expected.values()) == [first]
    finally:
        for pid in (first, second):
            os.kill(pid, 9)
    ((descriptor, _),) = orphans.epoll.poll(30)
    orphans.take_exit_of(descriptor)
    assert orphans.expected == {}
    with pytest.raises(ChildProcessError):
        os.waitpid(first, 0)
    assert os.waitpid(second, 0)[0] == second
    assert not orphans.expect_exit_of(second)
    assert orphans.expected == {}
