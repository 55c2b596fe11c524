"""Workers of an engine that a newer one has replaced: they begin no call, and the newer one does not wait for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resile.executors.contract import Adopted, Lost, Returned, Withdrawn
from resile.executors.functions import pool
from tests.executors.local.driver import lives, wait_for

from .test_executor import hear, launch, opened

CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
# An engine with one thread or process that calls `read`, and a second call in its queue.
ENGINE = """
import sys
from pathlib import Path
from tests.api.test_executor import hear, launch, opened

folder, workers = sys.argv[1:]
executor = opened(Path(folder))
executor.start([launch(1, "read", workers, folder + "/pipe"), launch(2, "give", workers, 2)])
hear(executor, 1, starts=True)
print(flush=True)
hear(executor, 99)
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_call_whose_turn_comes_too_late_is_not_made(tmp_path: Path, pipe: Path, workers: Any) -> None:
    """The running call ends and is reported to the newer engine; the queued one never begins for the older."""
    older = opened(tmp_path)
    older.start([launch(1, "read", workers, str(pipe)), launch(2, "mark", workers, str(tmp_path / "made"), "x")])
    hear(older, 1, starts=True)
    newer = opened(tmp_path)
    newer.find({(1, 1): False, (2, 1): False})
    adopted, withdrawn = hear(newer, 2)
    assert (type(adopted), type(withdrawn)) == (Adopted, Withdrawn)
    pipe.write_text("text")
    (returned,) = hear(newer, 1)
    assert isinstance(returned, Returned)
    assert (returned.job, returned.value) == (1, b'"text"')
    newer.acknowledge()
    newer.close()
    older.close()
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("pipe")
def test_a_stopped_worker_of_a_former_engine_is_given_up(
    tmp_path: Path, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call of a worker that is stopped with its engine is lost; a stopped worker is killed, an engine is not."""
    assert pool.SILENT_SECONDS_MAX <= 60.0
    monkeypatch.setattr(pool, "SILENT_SECONDS_MAX", 0.5)
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(tmp_path), workers], stdout=subprocess.PIPE)
    assert engine.stdout is not None
    engine.stdout.readline()
    newer = opened(tmp_path)
    newer.find({(1, 1): False})
    (adopted,) = hear(newer, 1)
    assert isinstance(adopted, Adopted)
    assert (adopted.pid == engine.pid) is (workers == "threads")
    os.kill(engine.pid, signal.SIGSTOP)
    os.kill(adopted.pid, signal.SIGSTOP)
    (lost,) = hear(newer, 1)
    assert isinstance(lost, Lost)
    assert (lost.job, lost.attempt) == (1, 1)
    assert lives(engine.pid)
    if workers == "processes":
        wait_for(lambda: not lives(adopted.pid))
    engine.kill()
    engine.communicate()
    newer.acknowledge()
    newer.close()


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup whose processes can be frozen, where we may make one."""
    mount = next((path for path in CGROUPS if (path / "cgroup.procs").exists()), None)
    folder = (mount or Path("/nonexistent")) / f"resile-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup of version 2 can be made here: {error}")
    yield folder
    (folder / "cgroup.freeze").write_text("0")
    wait_for(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.mark.usefixtures("pipe")
def test_a_frozen_worker_of_a_former_engine_is_given_up(
    tmp_path: Path, freezer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call of a worker in a paused container is lost, and the worker is killed."""
    assert pool.SILENT_SECONDS_MAX <= 60.0
    monkeypatch.setattr(pool, "SILENT_SECONDS_MAX", 0.5)
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(tmp_path), "processes"], stdout=subprocess.PIPE)
    assert engine.stdout is not None
    engine.stdout.readline()
    newer = opened(tmp_path)
    newer.find({(1, 1): False})
    (adopted,) = hear(newer, 1)
    assert isinstance(adopted, Adopted)
    (freezer / "cgroup.procs").write_text(str(adopted.pid))
    (freezer / "cgroup.freeze").write_text("1")
    (lost,) = hear(newer, 1)
    assert isinstance(lost, Lost)
    assert (lost.job, lost.attempt) == (1, 1)
    wait_for(lambda: not lives(adopted.pid))
    engine.kill()
    engine.communicate()
    newer.acknowledge()
    newer.close()


def test_a_worker_that_is_not_stopped_is_waited_for(
    tmp_path: Path, pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a former engine whose call takes longer than the patience with stopped ones keeps its call."""
    monkeypatch.setattr(pool, "SILENT_SECONDS_MAX", 0.2)
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(tmp_path), "processes"], stdout=subprocess.PIPE)
    assert engine.stdout is not None
    engine.stdout.readline()
    engine.kill()
    engine.communicate()
    newer = opened(tmp_path)
    newer.find({(1, 1): False})
    (adopted,) = hear(newer, 1)
    assert isinstance(adopted, Adopted)
    until = time.monotonic() + 1.0
    wait_for(lambda: newer.reports() or time.monotonic() > until)
    pipe.write_text("text")
    (returned,) = hear(newer, 1)
    assert isinstance(returned, Returned)
    assert returned.value == b'"text"'
    newer.acknowledge()
    newer.close()
