"""What the threads of a launcher may do to an attempt while another of them is about to start it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.executors import descriptors
from resile.executors.local.launcher.attempts import KILLED, Attempts
from resile.executors.local.launcher.pool import NEVER
from resile.executors.local.launcher.slots import Slot
from resile.executors.local.launcher.system_calls import PR_SET_CHILD_SUBREAPER


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    """Attempts of a launcher that has nobody to talk to."""
    epoll = select.epoll()
    made = Attempts(epoll, lambda: None, lambda: None, lambda _: None, lambda: None)
    made.folder, made.token = os.fsencode(tmp_path), b"token"
    yield made
    epoll.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_an_attempt_that_is_killed_as_it_starts_gets_the_signal_when_it_runs(attempts: Attempts) -> None:
    """There is nobody to signal before the spawn; the wish is kept, and the grace begins with the signal."""
    slot = Slot(0, attempts.folder, attempts.token)
    slot.key = b"1 1"
    slot.grace_seconds = 60.0
    slot.deadline = NEVER
    attempts.running[slot.key] = slot
    attempts.kill(slot.key)
    assert (slot.reason, slot.deadline, attempts.check_at) == (b"killed", NEVER, NEVER)
    attempts.check()
    assert (slot.key in attempts.running, slot.deadline) == (True, NEVER)
    pid = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ, setsid=True)
    attempts.leader_started(slot, pid, 0.0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
    assert slot.deadline > slot.started
    slot.close()


def test_the_group_is_killed_even_where_the_process_table_is_older_than_its_members(attempts: Attempts) -> None:
    """When the grace is over SIGKILL goes to the group as well, so a child that no table shows yet is not missed."""
    slot = Slot(0, attempts.folder, attempts.token)
    slot.key = b"1 1"
    slot.pid = os.posix_spawnp("sleep", ["sleep", "10"], os.environ, setsid=True)
    slot.reason = KILLED
    slot.listened = True
    attempts.running[slot.key] = slot
    attempts.table = {}
    attempts.advance(slot, time.monotonic())
    assert os.WTERMSIG(os.waitpid(slot.pid, 0)[1]) == signal.SIGKILL
    slot.close()


@pytest.mark.parametrize(("wanted", "is_raised"), [(1, False), (4, False), (5, True), (100_000, True)])
def test_the_limit_of_open_files_is_raised_only_for_slots_that_need_it(
    attempts: Attempts, wanted: int, is_raised: bool
) -> None:
    """64 files are enough for four slots; attempts start with the limit that was there before."""
    before, hard = descriptors.open_files_max()
    descriptors.set_soft(64)
    try:
        attempts.set_slots(wanted)
        soft = descriptors.open_files_max()[0]
    finally:
        descriptors.set_soft(before)
    assert (soft, attempts.spawner.raised) == ((hard, (64, hard)) if is_raised else (64, None))
    assert attempts.pool.count_max == min(wanted, descriptors.slots_within(soft))
    assert attempts.orphans.expected_max == descriptors.leftovers_within(soft)
