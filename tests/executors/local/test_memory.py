"""`resources.memory` is enforced: an attempt that uses more is ended, by its own cgroup or by the launcher's watch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Launch
from resile.executors.local.launcher import memory
from resile.executors.local.launcher.slots import Slot
from resile.executors.local.oom import OomCounter
from resile.executors.local.processes import read_table

from .driver import driving, lives, wait_for

MIB = 1 << 20
HOG = "import time; x = bytearray({mib} << 20); time.sleep({seconds})"


def hog(job: int, mib: int, seconds: float, limit: int, shell: str = "exec {python} -c '{code}'") -> Launch:
    """An attempt that holds that much memory for a while, and may use `limit` MiB."""
    text = shell.format(python=sys.executable, code=HOG.format(mib=mib, seconds=seconds))
    return Launch(job, 1, (b"sh", b"-c", os.fsencode(text)), memory_bytes=limit * MIB)


def ends(folder: Path, *launches: Launch) -> dict[int, Ended]:
    """Run these attempts; how each ended."""
    with driving(folder) as driver:
        driver.run(*launches)
        return {report.job: report for report in driver.reports if isinstance(report, Ended)}


def test_an_attempt_that_uses_more_than_its_limit_is_killed(tmp_path: Path) -> None:
    """SIGKILL ends it at once, and its peak is kept; one below its limit and one without a limit end well."""
    found = ends(tmp_path, hog(1, 200, 60, 100), hog(2, 30, 0.6, 100), hog(3, 200, 0.6, 0))
    assert [(found[job].reason, found[job].wait_status) for job in (1, 2, 3)] == [("oom", 9), ("", 0), ("", 0)]
    assert found[1].rss_bytes_max > 100 * MIB


def test_the_memory_of_all_processes_counts(tmp_path: Path) -> None:
    """Three children below the limit are over it together, and none of them outlives the attempt."""
    three = "for n in 1 2 3; do {python} -c '{code}' & done; wait"
    found = ends(tmp_path, hog(1, 50, 61.5, 120, three))
    assert (found[1].reason, found[1].rss_bytes_max > 120 * MIB) == ("oom", True)
    words = [Path(f"/proc/{pid}/cmdline") for pid in read_table()]
    assert not [path for path in words if path.exists() and b"50 << 20); time.sleep(61.5)" in path.read_bytes()]


def test_pages_that_processes_share_count_once(tmp_path: Path) -> None:
    """Four forked children that only look at 60 MiB of their parent do not use 300 MiB."""
    code = "import os, time; x = bytearray(60 << 20); [os.fork() for _ in (1, 2)]; time.sleep(0.7)"
    found = ends(tmp_path, Launch(1, 1, (os.fsencode(sys.executable), b"-c", code.encode()), memory_bytes=150 * MIB))
    assert (found[1].reason, found[1].wait_status) == ("", 0)


def test_a_process_that_has_ended_uses_no_memory() -> None:
    """Neither one whose exit was not taken yet, nor one that is gone; another that runs counts as it is."""
    ended = os.posix_spawn("/bin/true", ["true"], {})
    wait_for(lambda: not lives(ended))
    assert memory.used_by([ended], -1) == 0
    own = memory.used_by([os.getpid()], -1)
    assert own > MIB
    assert memory.used_by([ended, os.getpid()], -1) == pytest.approx(own, rel=0.2)
    os.waitpid(ended, 0)
    assert memory.used_by([ended], -1) == 0


def test_where_a_cgroup_can_be_made(tmp_path: Path) -> None:
    """Below our own cgroup, or beside it, where the folder has the memory controller for its children; else nowhere."""
    own = tmp_path / "slice" / "own"
    own.mkdir(parents=True)
    place, counter = os.fsencode(own), os.fsencode(own / "memory.events")
    assert memory.parent_of(place, counter) == b""
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert memory.parent_of(place, counter) == os.fsencode(own.parent)
    (own / "cgroup.subtree_control").write_text("memory\n")
    assert memory.parent_of(place, counter) == place
    assert memory.parent_of(place, os.fsencode(own / "memory.oom_control")) == b""


def test_a_cgroup_that_takes_no_limit_is_removed(tmp_path: Path) -> None:
    """A folder in which the limit can't be written is no cgroup of ours, and does not stay."""
    assert memory.make_group(os.fsencode(tmp_path / "group"), MIB) == b""
    assert not (tmp_path / "group").exists()


def test_a_cgroup_of_its_own(tmp_path: Path) -> None:
    """Where cgroup v2 lets us, the kernel kills the whole attempt at its limit, and no cgroup is left."""
    path = OomCounter().path
    parent = memory.parent_of(path.removesuffix(b"/memory.events"), path)
    group = memory.make_group(parent + b"/resile-test", MIB) if parent else b""
    if not group:
        pytest.skip("no memory cgroup of version 2 can be made here")
    memory.remove(group)
    found = ends(tmp_path, hog(1, 200, 60, 100, "{python} -c '{code}'; echo on"))
    assert (found[1].reason, found[1].wait_status, found[1].log.out_length) == ("oom", 9, 0)
    assert not [name for name in os.listdir(parent) if name.startswith(b"resile-")]


def slot_in(folder: Path, cgroup: Path | None = None, status: int = 0) -> Slot:
    """A slot whose attempt has ended with this wait status, used 10 MiB, and has that folder for its cgroup."""
    slot = Slot(0, os.fsencode(folder), b"token")
    slot.pid, slot.started, slot.memory_max, slot.reason = os.getpid(), 100.0, 50 * MIB, b""
    slot.usage = (status, 1.5, 10 * MIB, 7)
    slot.cgroup = b"" if cgroup is None else os.fsencode(cgroup)
    return slot


def test_a_file_of_the_kernel_takes_a_text_or_does_not(tmp_path: Path) -> None:
    """It is never made, and a refusal is no error."""
    file = tmp_path / "memory.max"
    file.touch()
    assert memory.write(os.fsencode(file), b"123")
    assert file.read_bytes() == b"123"
    assert [memory.write(os.fsencode(path), b"1") for path in (tmp_path / "none", tmp_path, "/dev/full")] == [False] * 3
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_leader_enters_its_cgroup_or_is_measured(tmp_path: Path) -> None:
    """In a cgroup the kernel watches; one that takes no process is removed, and the attempt is measured soon."""
    group, limits = tmp_path / "group", memory.MemoryLimits()
    group.mkdir()
    slot = slot_in(tmp_path, group)
    assert limits.enter(slot) == 100.0 + memory.WATCH_SECONDS
    assert (slot.cgroup, slot.measured_at, group.exists(), limits.undeleted) == (b"", 100.0, False, [])
    assert limits.enter(slot) == 100.0 + memory.WATCH_SECONDS
    group.mkdir()
    (group / "cgroup.procs").touch()
    slot.cgroup = os.fsencode(group)
    # Without the descriptor a shell gives /dev/null to what it runs beside itself.
    script = "exec 3<&0; cat <&3 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
        assert leader.stdin is not None
        assert leader.stdout is not None
        child, slot.pid = int(leader.stdout.readline()), leader.pid
        assert limits.enter(slot) == memory.NEVER
        # A plain file keeps the last number; the kernel takes each.
        assert int((group / "cgroup.procs").read_text()[: len(str(child))]) == child
        assert limits.watch(slot, 1e9, lambda _: [child]) == memory.NEVER
        (group / "cgroup.procs").write_text("")
        slot.pid = child
        assert limits.enter(slot) == memory.NEVER
        assert int((group / "cgroup.procs").read_text()) == child
        leader.stdin.close()
    slot.close()


def test_an_attempt_without_a_cgroup_is_measured_when_it_is_due(tmp_path: Path) -> None:
    """At its limit it goes on, above it ends at once; its peak is the largest that was measured."""
    slot, limits = slot_in(tmp_path), memory.MemoryLimits()
    slot.measured_at, slot.memory_peak, slot.grace_seconds, step = 100.0, 7, 10.0, memory.WATCH_SECONDS
    measured: list[float] = []

    def members(_: Slot) -> list[int]:
        """This process; note that it was measured."""
        measured.append(now)
        return [os.getpid()]

    slot.memory_max = 1 << 50
    now = 100.0 + step - 0.01
    assert limits.watch(slot, now, members) == 100.0 + step
    assert (measured, slot.memory_peak) == ([], 7)
    now = 100.0 + step
    assert limits.watch(slot, now, members) == 100.0 + 2 * step
    assert (measured, slot.grace_seconds) == ([100.0 + step], 10.0)
    assert slot.memory_peak > MIB
    slot.memory_max = 0
    assert limits.watch(slot, 200.0, members) == 0.0
    assert slot.grace_seconds == 0.0
    slot.close()


@pytest.mark.parametrize(
    ("status", "reason", "events", "peak", "expected"),
    [
        (9, b"", "oom_kill 1", "20971520\n", (b"oom", 20 * MIB)),
        (9, b"", "oom_kill 0", "20971520\n", (b"", 20 * MIB)),
        (0, b"", "oom_kill 1", "20971520\n", (b"", 20 * MIB)),
        (9, b"timeout", "oom_kill 1", "1048576", (b"timeout", 10 * MIB)),
        (9, b"", "oom_kill 2", "max", (b"oom", 10 * MIB)),
    ],
)
def test_what_a_cgroup_tells_of_an_attempt_that_ended(
    tmp_path: Path, status: int, reason: bytes, events: str, peak: str, expected: tuple[bytes, int]
) -> None:
    """A kill by the kernel is the reason of an end by SIGKILL that has no other; the larger peak counts."""
    group, limits = tmp_path / "group", memory.MemoryLimits()
    group.mkdir()
    (group / "memory.events").write_text(f"max 4\n{events}\n")
    (group / "memory.peak").write_text(peak)
    slot = slot_in(tmp_path, group, status)
    slot.reason = reason
    limits.close(slot)
    assert (slot.reason, slot.usage) == (expected[0], (status, 1.5, expected[1], 7))
    assert (slot.cgroup, limits.undeleted) == (b"", [os.fsencode(group)])
    for file in group.iterdir():
        file.unlink()
    limits.leave(slot)
    assert (limits.undeleted, group.exists()) == ([], False)
    slot.close()


def test_a_cgroup_is_tried_once(tmp_path: Path) -> None:
    """Where the first one can't be made, no attempt gets one, and each has its limit all the same."""
    slot, limits = slot_in(tmp_path), memory.MemoryLimits()
    limits.parent = os.fsencode(tmp_path)
    limits.prepare(slot, 5 * MIB)
    assert (slot.cgroup, slot.memory_max, limits.parent) == (b"", 5 * MIB, b"")
    limits.prepare(slot, 6 * MIB)
    assert (slot.cgroup, slot.memory_max, limits.parent) == (b"", 6 * MIB, b"")
    slot.close()


def test_where_cgroups_can_be_made_is_found_out_by_the_first_attempt(tmp_path: Path) -> None:
    """A launcher without a limit does not look; after the first attempt with one it knows that there is no place."""
    slot, limits = slot_in(tmp_path), memory.MemoryLimits()
    limits.oom.path = os.fsencode(tmp_path / "memory.events")
    assert limits.parent is None
    limits.prepare(slot, 5 * MIB)
    assert (slot.cgroup, limits.parent) == (b"", b"")
    slot.close()
