"""What a machine has for the steps of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resile.core.events import Capacity
from resile.engine import resources
from resile.engine.resources import measure, refuse_labels, refuse_misfits, visible_gpus
from resile.errors import ResileError
from resile.model.rules import Origin
from resile.model.workflow import Resources, Shell, Step
from tests.core.world import flow


@pytest.fixture
def one_processor() -> Iterator[None]:
    """Let this process run on one processor only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_processor")
def test_one_processor_runs_one_step_at_a_time() -> None:
    """Unless the caller says otherwise."""
    assert resources.measure(None, None, None, None).parallel == 1
    assert resources.measure(3, None, None, None).parallel == 3


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that the test describes: its folder stands for that of the cgroup and the devices."""
    monkeypatch.setattr(resources, "_CGROUP", str(tmp_path))
    monkeypatch.setattr(resources, "_DEVICES", str(tmp_path / "dev"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def describe(machine: Path, **files: str) -> None:
    """Write system files; two underscores stand for a slash, one for a dot where there is no other."""
    for name, text in files.items():
        path = machine / name.replace("__", "/").replace("_", ".", 1)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu_max": "150000 100000\n"}, 1.5),
        ({"cpu_max": "25000 100000\n"}, 0.25),
        ({"cpu_max": "900000000 100000\n"}, None),
        ({"cpu_max": "max 100000\n"}, None),
        ({"cpu__cpu_cfs_quota_us": "50000\n", "cpu__cpu_cfs_period_us": "100000\n"}, 0.5),
        ({"cpu__cpu_cfs_quota_us": "-1\n", "cpu__cpu_cfs_period_us": "100000\n"}, None),
        ({"cpu__cpu_cfs_quota_us": "50000\n"}, None),
    ],
)
def test_the_quota_of_the_cgroup_limits_processors(machine: Path, files: dict[str, str], quota: float | None) -> None:
    """In either version of cgroups; at least one step runs at a time."""
    describe(machine, **files)
    allowed = float(len(os.sched_getaffinity(0)))
    cpus = allowed if quota is None else min(allowed, quota)
    found = measure(None, None, 1, 0)
    assert (found.cpus, found.parallel) == (cpus, max(1, int(cpus)))
    assert (measure(None, 0.5, 1, 0).cpus, measure(None, 0.5, 1, 0).parallel) == (0.5, max(1, int(cpus)))
    assert (measure(7, 0.5, 1, 0).cpus, measure(7, 0.5, 1, 0).parallel) == (0.5, 7)
    assert measure(7, None, 1, 0).cpus == cpus


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"memory_max": "1048576\n"}, 1 << 20),
        ({"memory_max": "max\n"}, None),
        ({"memory_max": f"{1 << 60}\n"}, None),
        ({"memory__memory_limit_in_bytes": "2097152\n"}, 2 << 20),
        ({"memory__memory_limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_the_cgroup_limits_the_memory(machine: Path, files: dict[str, str], limit: int | None) -> None:
    """In either version of cgroups; a number that no machine has is no limit."""
    describe(machine, **files)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert measure(1, 1.0, None, 0).memory_bytes == (whole if limit is None else limit)
    assert measure(1, 1.0, 5, 0).memory_bytes == 5


def test_gpus_are_counted_by_their_devices_or_by_the_variable(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable comes first; devices of the driver itself are none."""
    assert measure(1, 1.0, 1, None).gpus == 0
    describe(machine, dev__nvidia0="", dev__nvidia11="", dev__nvidiactl="", dev__sda1="")
    assert (measure(1, 1.0, 1, None).gpus, measure(1, 1.0, 1, 1).gpus) == (2, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, 3,,GPU-7 ")
    assert (measure(1, 1.0, 1, None).gpus, visible_gpus(os.environ)) == (3, ["0", "3", "GPU-7"])


@pytest.mark.parametrize(
    ("wants", "said"),
    [
        ({"cpus": 3.5}, "CPUs: 3.5, there are 2"),
        ({"memory_bytes": 3 << 29}, "1.5 GiB of memory, there is 1 GiB"),
        ({"gpus": 2}, "GPUs: 2, there are 1"),
    ],
)
def test_a_step_that_can_never_run_here_is_refused(wants: dict[str, Any], said: str) -> None:
    """What is there exactly is enough."""
    capacity = Capacity(2, cpus=2.0, memory_bytes=1 << 30, gpus=1)
    fits = Step(name="fits", action=Shell("x"), resources=Resources(cpus=2.0, memory_bytes=1 << 30, gpus=1))
    refuse_misfits(flow(fits, Step(name="plain", action=Shell("x"))), capacity)
    large = Step(name="large", action=Shell("x"), resources=Resources(**wants), origin=Origin(3, 5))
    with pytest.raises(ResileError) as refused:
        refuse_misfits(flow(fits, large), capacity)
    assert (refused.value.code, refused.value.where.endswith(":3:5")) == ("does-not-fit", True)
    assert refused.value.message == f"step 'large' can never run here: it asks for {said}"


def test_a_step_for_a_worker_is_refused_where_there_is_none() -> None:
    """The message has the first of its labels."""
    refuse_labels(flow(Step(name="a", action=Shell("x"))))
    with pytest.raises(ResileError) as refused:
        refuse_labels(flow(Step(name="a", action=Shell("x"), runs_on=("gpu", "big"))))
    assert refused.value.message == "step 'a' runs on a worker with the label 'gpu', and here is none"
