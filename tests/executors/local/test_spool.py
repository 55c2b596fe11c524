"""The launcher's spool: what an acknowledgement lets go of, and what it must not."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.executors.fence import OPEN
from resile.executors.local import spool as spool_module
from resile.executors.local import wire
from resile.executors.local.launcher.main import Launcher
from resile.executors.local.launcher.slots import Slot
from resile.executors.local.launcher.system_calls import PR_SET_CHILD_SUBREAPER
from resile.executors.local.recovery import Author, header_line, is_cut
from resile.executors.local.spool import SUFFIX, Spool

AUTHOR = Author("t", 5, 6, "boot", "wf1_r1")
HEADER = header_line(AUTHOR)
RUNNING = wire.started_line(b"1 1", 5.0, 71, 1.0, b"t-0-0", 0, 0)
OVER = wire.withdrawn_line(b"2 1", 6.0)
FRESH = wire.withdrawn_line(b"3 1", 7.0)


def spool_of(*lines: bytes) -> bytes:
    """A whole spool, whose first line has its length."""
    return header_line(AUTHOR, sum(map(len, lines))) + b"".join(lines)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    """A launcher with a spool that it compacts at every acknowledgement, and one running attempt."""
    monkeypatch.setattr(spool_module, "COMPACT_BYTES", 1)
    (tmp_path / f"t{SUFFIX}").write_bytes(HEADER)
    ours, theirs = socket.socketpair()
    made = Launcher(theirs.detach())
    made.spool = Spool(os.fsencode(tmp_path), b"t")
    slot = Slot(0, os.fsencode(tmp_path), b"t")
    slot.line = RUNNING
    made.attempts.running[b"1 1"] = slot
    yield made
    slot.close()
    made.detach()
    made.epoll.close()
    os.close(made.wakeup_fd)
    ours.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_compaction_keeps_the_attempts_that_run(launcher: Launcher, tmp_path: Path) -> None:
    """Of what is acknowledged only the lines of running attempts stay, behind the header and before what is new."""
    assert launcher.spool is not None
    launcher.spool.append(RUNNING + OVER + FRESH)
    (fields,) = wire.take_frames(bytearray(wire.acknowledge_frame(len(RUNNING + OVER))))
    launcher.obey(fields)
    assert (tmp_path / f"t{SUFFIX}").read_bytes() == spool_of(b"C\n", RUNNING, FRESH)
    assert launcher.spool.greet() == spool_of(b"C\n", RUNNING, FRESH)


def test_what_is_written_after_a_compaction_follows_it(launcher: Launcher, tmp_path: Path) -> None:
    """A second acknowledgement counts from the same connection, and lets go of what came since."""
    assert launcher.spool is not None
    launcher.spool.append(RUNNING + OVER)
    launcher.spool.acknowledge(len(RUNNING + OVER), [RUNNING])
    launcher.spool.append(FRESH + OVER)
    assert (tmp_path / f"t{SUFFIX}").read_bytes() == spool_of(RUNNING, FRESH, OVER)
    launcher.spool.acknowledge(len(RUNNING + OVER + FRESH), [RUNNING])
    assert (tmp_path / f"t{SUFFIX}").read_bytes() == spool_of(RUNNING, OVER)


def test_the_length_is_noted_after_each_write(launcher: Launcher, tmp_path: Path) -> None:
    """A spool knows its length; one that lost its end is cut, and one that has more than was noted is not."""
    path = tmp_path / f"t{SUFFIX}"
    assert launcher.spool is not None
    launcher.spool.append(RUNNING)
    launcher.spool.append(OVER)
    assert path.read_bytes() == spool_of(RUNNING, OVER)
    assert not is_cut(str(path))
    path.write_bytes(spool_of(RUNNING) + OVER)
    assert not is_cut(str(path))
    path.write_bytes(spool_of(RUNNING, OVER)[:-1])
    assert is_cut(str(path))
    path.write_bytes(b"H 1 t 5 6 boot wf1_r1\n")
    assert not is_cut(str(path))


def test_a_spool_that_cannot_be_opened_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher reports the system's own number with every start that it refuses, not a guess."""
    # The launcher changes to the directory of its run; the tests after this one need theirs.
    monkeypatch.chdir(tmp_path)
    fence = tmp_path / "fence"
    fence.write_bytes(OPEN)
    ours, theirs = socket.socketpair()
    with ours:
        made = Launcher(theirs.detach())
        folder = os.fsencode(tmp_path)
        frame = wire.configure_frame(1, os.fsencode(fence), b"t", folder, 1, 0.0, folder, [], [])
        made.obey_all(wire.take_frames(bytearray(frame)))
        assert (made.spool, made.attempts.blocked_errno) == (None, errno.ENOENT)
        made.attempts.fence.close()
        made.detach()
        made.epoll.close()
        os.close(made.wakeup_fd)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
