"""`resources.memory` is enforced: an attempt that uses more is ended, by its own cgroup or by the launcher's watch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Launch
from resile.executors.local.launcher import memory
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
