"""A kill for want of memory is told from other SIGKILLs where the system lets us know."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.executors import outcome as evidence
from resile.executors.contract import Ended
from resile.executors.local import oom
from resile.executors.output import open_output

from .driver import Driver, sh, wait_for

ROOT = Path(__file__).parents[3]
MOUNTS_V1 = b"""\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
MOUNTS_V2 = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_the_counter_of_version_1() -> None:
    """The memory controller's own hierarchy is asked, also where version 2 is mounted beside it."""
    membership = b"5:devices:/\n4:memory:/jobs/a b\n3:cpuset:/\n0::/x\n"
    assert oom.counter_file(membership, MOUNTS_V1) == b"/sys/fs/cgroup/memory/jobs/a b/memory.oom_control"


def test_the_counter_of_version_2() -> None:
    """The one hierarchy is asked."""
    assert oom.counter_file(b"0::/user.slice/run\n", MOUNTS_V2) == b"/sys/fs/cgroup/user.slice/run/memory.events"
    assert oom.counter_file(b"0::/\n", MOUNTS_V2) == b"/sys/fs/cgroup/memory.events"


def test_a_mount_that_shows_a_part_of_the_hierarchy() -> None:
    """In a container the mount's root is the container's own group."""
    mounts = b"35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    assert (
        oom.counter_file(b"4:memory:/docker/abc/inner\n", mounts) == b"/sys/fs/cgroup/memory/inner/memory.oom_control"
    )


def test_no_cgroups_no_counter() -> None:
    """Without any there is nothing to ask."""
    assert oom.counter_file(b"", b"") == b""


def test_counters_are_parsed() -> None:
    """Both versions write `oom_kill N` among other lines; older kernels do not."""
    assert oom.parse_counter(b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3
    assert oom.parse_counter(b"low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n") == 2
    assert oom.parse_counter(b"oom_kill_disable 0\nunder_oom 0\n") == 0


def test_a_counter_that_rises_explains_each_of_several_kills(tmp_path: Path) -> None:
    """Two attempts killed at once share what the counter rose by; a later kill is not explained by it."""
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 5\n")
    watch = oom.OomCounter()
    watch.path = os.fsencode(counter)
    watch.seen = watch.read()
    counter.write_text("oom_kill 7\n")
    assert watch.kills(-1, 100.0, 99.0) == 2
    assert watch.kills(-1, 100.1, 99.0) == 1
    assert watch.kills(-1, 100.2, 99.0) == 0


def test_records_of_the_kernel() -> None:
    """A record counts when it names the victim, for want of memory, since the attempt started."""
    record = b"3,812,5000000,-;Memory cgroup out of memory: Killed process 4242 (hog) total-vm:1kB, anon-rss:1kB\n"
    assert oom.record_names(record, b"illed process 4242 ", 4.5)
    assert not oom.record_names(record, b"illed process 424 ", 4.5)
    assert not oom.record_names(record, b"illed process 4242 ", 60.0)
    assert not oom.record_names(b"garbage", b"illed process 4242 ", 0.0)


@contextlib.contextmanager
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 96 MB below our own, where we may make one."""
    membership = Path("/proc/self/cgroup").read_bytes()
    own = Path(os.fsdecode(oom.counter_file(membership, Path("/proc/self/mountinfo").read_bytes()))).parent
    folder = own / f"resile-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if (own / "memory.oom_control").exists() else "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(96 << 20))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield folder
    finally:
        wait_for(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def test_a_real_kill_for_want_of_memory(tmp_path: Path) -> None:
    """In a small memory cgroup a hog, bare and under a shell, is `oom`; a plain SIGKILL beside it is `signal`."""
    with small_cgroup() as cgroup:
        argv = [sys.executable, "-m", "tests.executors.local.test_oom", str(cgroup), str(tmp_path)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["oom", "oom", "signal"]


def hog(cgroup: str, folder: str) -> None:
    """Enter the cgroup, run three attempts one after the other, and say of which kind their failures are."""
    Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    driver = Driver(Path(folder), slots=1)
    eat = f"{sys.executable} -c 'x = bytearray(400 << 20)'"
    driver.run(sh(1, f"exec {eat}"), sh(2, f"{eat}; exit $?"), sh(3, "kill -KILL $$"))
    for report in driver.reports:
        if isinstance(report, Ended):
            failure = evidence.outcome_of(report, open_output(folder)).failure
            print(failure.kind if failure else "none")
    driver.executor.close()


if __name__ == "__main__":
    hog(*sys.argv[1:])
