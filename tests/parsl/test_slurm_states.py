"""What Slurm says of an allocation that is over, and what that means for the attempts in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from resile.executors.parsl.slurm import Allocation, kind_of, parse_allocation

LINE = (
    "JobId=12 JobName=resile-3-1 UserId=root(0) GroupId=root(0) Priority=1 JobState=RUNNING Reason=None "
    "Requeue=0 Restarts=0 ExitCode=0:0 RunTime=00:01:30 TimeLimit=1-00:02:00 StdErr=/x/a.stderr NodeList=n[1-2] "
    "NumNodes=2 Comment=ab12_wf3_r1 "
)


def test_a_line_of_scontrol() -> None:
    """The fields of an allocation, with the time that it has left."""
    assert parse_allocation(LINE) == Allocation(
        id="12",
        name="resile-3-1",
        state="RUNNING",
        reason="None",
        node="n[1-2]",
        seconds_left=86400.0 + 30.0,
        exit="0:0",
        stderr="/x/a.stderr",
        comment="ab12_wf3_r1",
    )
    assert parse_allocation("slurm_load_jobs error: Invalid job id specified") is None
    unlimited = parse_allocation(LINE.replace("1-00:02:00", "UNLIMITED"))
    assert unlimited is not None
    assert unlimited.seconds_left is None


@pytest.mark.parametrize(
    ("state", "exit_", "stderr", "kind"),
    [
        ("TIMEOUT", "0:15", "", "timeout"),
        ("OUT_OF_MEMORY", "0:125", "", "oom"),
        ("FAILED", "0:9", "slurmstepd: error: Exceeded job memory limit at some point.", "oom"),
        ("FAILED", "0:9", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4.batch.", "oom"),
        ("FAILED", "137:0", "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0.", "oom"),
        ("FAILED", "0:9", "killed by hand", "lost"),
        ("FAILED", "137:0", "killed by hand", "lost"),
        ("NODE_FAIL", "0:0", "", "lost"),
        ("BOOT_FAIL", "0:0", "", "lost"),
        ("PREEMPTED", "0:15", "", "preempted"),
        ("CANCELLED", "0:15", "", "preempted"),
        ("FAILED", "1:0", "", "lost"),
    ],
)
def test_states_become_kinds(tmp_path: Path, state: str, exit_: str, stderr: str, kind: str) -> None:
    """The state decides; without cgroups Slurm reports a memory kill as a failure with a message of its own."""
    path = tmp_path / "stderr"
    path.write_text(stderr)
    assert kind_of(Allocation("1", "resile-1-1", state, exit=exit_, stderr=str(path))) == kind
