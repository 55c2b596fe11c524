"""The machine is started again, or the output folder is lost, while a run is open: what may have started is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.executors.local import recovery
from tests.cli.program import Program
from tests.executors.local.driver import wait_for, wait_until_gone

# The boot of the machine is what the environment says.
OTHER_BOOT = """
import os, sys
from resile.executors.local import processes
from resile.store import lease
lease.boot_id = lambda: os.environ["BOOT"]
processes.boot_id = lambda: os.environ["BOOT"].encode()
from resile.cli.main import main
sys.exit(main())
"""
FLOW = """
resile: 1
max_parallel: 1
steps:
  running: {shell: "echo running >> effects; echo here > here; read line < go", rerun_on_loss: %s}
  waiting: {shell: echo waiting >> effects, rerun_on_loss: %s}
"""


class Boots(Program):
    """The program on a machine that can be started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.argv = [sys.executable, "-c", OTHER_BOOT]
        self.env |= {"BOOT": "first", "RESILE_OUTPUT_DIR": str(folder / "out")}
        self.here, self.go = self.gate("here"), self.gate("go")

    def spool(self) -> Path:
        """The spool of the run's launcher."""
        return next((self.folder / "out").glob("runs/*/launcher/*.spool"))

    def cut(self, rerun_on_loss: str = "retry", before: str = "") -> None:
        """Start the run, and kill engine and launcher while one step runs and one is reserved.

        A step `before` them has ended, and the log knows it.
        """
        text = FLOW % (rerun_on_loss, rerun_on_loss)
        self.write(text.replace("steps:\n", f"steps:\n  {before}: {{shell: 'true'}}\n") if before else text)
        with self.start("run", "flow.yaml") as run:
            self.here.wait()
            wait_for(lambda: not before or self.attempts(self.json("status", "1"))[before][0] == "completed")
            author, _ = recovery.read_spool(str(self.spool()))
            assert author is not None
            run.send(signal.SIGKILL)
            run.process.wait()
            os.kill(author.pid, signal.SIGKILL)
            wait_until_gone(author.pid)

    def effects(self) -> list[str]:
        """What the steps did, in order."""
        return (self.folder / "effects").read_text().split()

    def attempts(self, document: dict[str, Any]) -> dict[str, tuple[str, int]]:
        """The status of each step and the number of its attempts."""
        return {job["step"]: (job["status"], job["attempts"]) for job in document["jobs"] if job["step"] != "end"}


@pytest.fixture
def boots(tmp_path: Path) -> Boots:
    """A folder on a machine in its first boot."""
    return Boots(tmp_path)


def reboot(boots: Boots) -> None:
    """The machine is started again, and its disk has all that was written."""
    boots.env["BOOT"] = "second"


def reboot_without_spool(boots: Boots) -> None:
    """The machine is started again, and its disk never saw the launcher's spool."""
    boots.spool().unlink()
    boots.env["BOOT"] = "second"


def lose_spool(boots: Boots) -> None:
    """The spool is gone, on the same boot."""
    boots.spool().unlink()


def lose_folder(boots: Boots) -> None:
    """The whole output folder is gone, on the same boot."""
    shutil.rmtree(boots.folder / "out")


LOSSES = [reboot, reboot_without_spool, lose_spool, lose_folder]


@pytest.mark.parametrize("lose", LOSSES)
def test_what_was_reserved_is_lost_and_tried_under_its_next_number(boots: Boots, lose: Callable[[Boots], None]) -> None:
    """No attempt is taken for not started, whatever the disk still has of the launcher's records."""
    boots.cut()
    lose(boots)
    boots.go.open(2)
    document = boots.json("resume", "1")
    assert boots.attempts(document) == {"running": ("completed", 2), "waiting": ("completed", 2)}
    assert boots.effects() == ["running", "running", "waiting"]
    lines = boots.call("events", "list", "1", "--type", "attempt_lost", "--json", code=0).stdout.splitlines()
    lost = [msgspec.json.decode(line) for line in lines]
    assert [(event["step"], event["attempt"]) for event in lost] == [("running", 1), ("waiting", 1)]


@pytest.mark.parametrize("lose", LOSSES)
def test_what_must_not_run_again_is_parked(boots: Boots, lose: Callable[[Boots], None]) -> None:
    """`rerun_on_loss: never` parks what ran and what was reserved, and a judgement runs it under the next number."""
    boots.cut("never")
    lose(boots)
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document) == {"running": ("pending_failed", 1), "waiting": ("pending_failed", 1)}
    assert boots.effects() == ["running"]
    boots.env["BOOT"] = "third"
    boots.json("judge", "1", "waiting", "retry")
    boots.json("judge", "1", "running", "skip")
    document = boots.json("resume", "1")
    assert boots.attempts(document) == {"running": ("skipped", 1), "waiting": ("completed", 2)}
    assert boots.effects() == ["running", "waiting"]


def test_records_that_are_shorter_than_the_log_knows_prove_nothing(boots: Boots) -> None:
    """On the same boot, with a spool that lacks the end of a completed step, what was reserved is lost."""
    boots.cut("never", before="first")
    data = boots.spool().read_bytes()
    boots.spool().write_bytes(data[: data.index(b"E 1 1 ")])
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document) == {
        "first": ("completed", 1),
        "running": ("pending_failed", 1),
        "waiting": ("pending_failed", 1),
    }
    assert boots.effects() == ["running"]


def test_records_that_are_shorter_than_the_launcher_knew_prove_nothing(boots: Boots) -> None:
    """On the same boot, with a spool that was cut before any engine knew what was in it, what was reserved is lost."""
    boots.write(FLOW % ("never", "never"))
    with boots.start("run", "flow.yaml") as run:
        boots.here.wait()
        run.send(signal.SIGKILL)
        run.process.wait()
    boots.go.open()
    wait_for(lambda: b"\nE 1 1 " in boots.spool().read_bytes())
    author, _ = recovery.read_spool(str(boots.spool()))
    assert author is not None
    wait_until_gone(author.pid)
    os.truncate(boots.spool(), boots.spool().read_bytes().index(b"\n") + 1)
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document) == {"running": ("pending_failed", 1), "waiting": ("pending_failed", 1)}
    assert boots.effects() == ["running"]


def test_an_engine_that_dies_before_it_recorded_the_loss_is_followed_by_one_that_knows_it(boots: Boots) -> None:
    """A second resume on the new boot finds the fresh records of the first, and does not trust them about the past."""
    boots.cut("never")
    reboot_without_spool(boots)
    boots.env["RESILE_TEST_DIE_BEFORE_FIND"] = "1"
    boots.argv[2] = OTHER_BOOT.replace(
        "from resile.cli.main",
        "from resile.executors.local.executor import LocalExecutor\n"
        "if 'RESILE_TEST_DIE_BEFORE_FIND' in os.environ: LocalExecutor.find = lambda *_: os._exit(9)\n"
        "from resile.cli.main",
    )
    assert boots.call("resume", "1").returncode == 9
    del boots.env["RESILE_TEST_DIE_BEFORE_FIND"]
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document) == {"running": ("pending_failed", 1), "waiting": ("pending_failed", 1)}


def test_a_result_on_disk_counts_after_another_boot(boots: Boots) -> None:
    """A step that ended, and whose end is in the spool, does not run again."""
    boots.write(FLOW % ("never", "never"))
    with boots.start("run", "flow.yaml") as run:
        boots.here.wait()
        run.send(signal.SIGKILL)
        run.process.wait()
    boots.go.open()
    wait_for(lambda: b"\nE 1 1 " in boots.spool().read_bytes())
    author, _ = recovery.read_spool(str(boots.spool()))
    assert author is not None
    wait_until_gone(author.pid)
    boots.env["BOOT"] = "second"
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document) == {"running": ("completed", 1), "waiting": ("pending_failed", 1)}
    assert boots.effects() == ["running"]


def test_a_result_whose_output_the_disk_lacks_counts_without_it(boots: Boots) -> None:
    """The end reached the disk and the output did not: the step is completed and says that its output is lost."""
    boots.write(FLOW.replace("read line < go", "echo printed; read line < go") % ("never", "never"))
    with boots.start("run", "flow.yaml") as run:
        boots.here.wait()
        run.send(signal.SIGKILL)
        run.process.wait()
    boots.go.open()
    wait_for(lambda: b"\nE 1 1 " in boots.spool().read_bytes())
    author, _ = recovery.read_spool(str(boots.spool()))
    assert author is not None
    wait_until_gone(author.pid)
    for segment in boots.spool().parent.glob("*.o"):
        os.truncate(segment, 0)
    boots.env["BOOT"] = "second"
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document)["running"] == ("completed", 1)
    assert [job["output_lost"] for job in document["jobs"] if job["step"] == "running"] == [True]
    assert boots.effects() == ["running"]


def test_a_launcher_killed_in_the_same_boot_leaves_records_that_are_whole(boots: Boots) -> None:
    """What only waited never started: it keeps its number, and what ran is lost."""
    boots.cut("never")
    document = boots.json("resume", "1", code=4)
    assert boots.attempts(document) == {"running": ("pending_failed", 1), "waiting": ("completed", 1)}
    assert boots.effects() == ["running", "waiting"]
