"""Asks Slurm about allocations, and says how the end of an allocation counts for the attempts in it.

TIMEOUT                         timeout
OUT_OF_MEMORY                   oom      also FAILED by signal 9 with Slurm's message about memory
NODE_FAIL, BOOT_FAIL            lost     the node is named
PREEMPTED, CANCELLED            lost     `preempted`: costs no budget, up to a limit
anything else                   lost
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable

from msgspec import Struct

from resile.errors import ResileError

SECONDS_MAX = 30.0
END_SECONDS_MAX = 5.0
AGAIN_SECONDS = 0.1
OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT"
}  # fmt: skip
_FIELD = re.compile(r"(\w+(?:[:/]\w+)?)=(\S*)")
_MEMORY = re.compile(r"exceeded (?:job |step )?memory limit|oom.kill|out of memory", re.IGNORECASE)
# The error of Slurm's commands for an allocation that it no longer knows.
_FORGOTTEN = "Invalid job id"
STDERR_BYTES = 16384


class Allocation(Struct, frozen=True):
    """One job of Slurm."""

    id: str
    name: str
    state: str
    reason: str = ""
    node: str = ""
    seconds_left: float | None = None
    exit: str = ""
    stderr: str = ""
    comment: str = ""

    @property
    def is_over(self) -> bool:
        """Has it ended?"""
        return self.state in OVER

    def __str__(self) -> str:
        """The allocation in words, as evidence."""
        where = f" on {self.node}" if self.node else ""
        why = f" ({self.reason})" if self.reason not in ("", "None") else ""
        return f"Slurm's allocation {self.id} ({self.name}){where}: {self.state}{why}"


def is_there() -> bool:
    """Are Slurm's commands installed here?"""
    return shutil.which("squeue") is not None and shutil.which("scontrol") is not None


def ping() -> str:
    """The answer of `scontrol ping` about Slurm's controllers, in one line; empty if no cluster is configured here."""
    found = " ".join(call("scontrol", "ping", both=True)[1].split())
    return found if " is UP" in found or " is DOWN" in found else ""


def call(*words: str, both: bool = False) -> tuple[int, str]:
    """Run one of Slurm's commands; return its exit code, and its stdout or, after a failure, its stderr.

    With `both` always return stdout and stderr in one text.
    """
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    if both:
        return done.returncode, f"{done.stdout}{done.stderr}"
    return done.returncode, done.stdout if not done.returncode else done.stderr.strip()


def parse_allocation(text: str) -> Allocation | None:
    """The allocation in a line of `scontrol --oneliner show job`."""
    found = dict(_FIELD.findall(text))
    if "JobId" not in found:
        return None
    return Allocation(
        id=found["JobId"],
        name=found.get("JobName", ""),
        state=found.get("JobState", "").split("+")[0],
        reason=found.get("Reason", ""),
        node=found.get("NodeList", "").replace("(null)", ""),
        seconds_left=_seconds_left(found.get("RunTime", ""), found.get("TimeLimit", "")),
        exit=found.get("ExitCode", ""),
        stderr=found.get("StdErr", ""),
        comment=found.get("Comment", ""),
    )


def _seconds_left(run_time: str, limit: str) -> float | None:
    ran, allowed = _seconds(run_time), _seconds(limit)
    return None if ran is None or allowed is None else max(0.0, allowed - ran)


def _seconds(text: str) -> float | None:
    """Slurm's `days-hours:minutes:seconds` in seconds; None for UNLIMITED and the like."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts) or (dash and not days.isdigit()):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + 86400.0 * int(days or 0)


def look_up(ids: Iterable[str]) -> dict[str, Allocation]:
    """The allocations with these ids, without those that Slurm has forgotten. Raises ResileError if Slurm fails."""
    found = {}
    for number in ids:
        code, text = call("scontrol", "--oneliner", "show", "job", number)
        if code and _FORGOTTEN not in text:
            raise _failure("scontrol", text)
        allocation = parse_allocation(text) if not code else None
        if allocation is not None:
            found[number] = allocation
    return found


def _failure(command: str, text: str) -> ResileError:
    """The error of one of Slurm's commands that failed."""
    hint = "is the controller up? `scontrol ping` says so"
    return ResileError("slurm-failed", f"Slurm's `{command}` failed: {text or 'it says nothing'}", hint=hint)


def wait_for_end(number: str) -> Allocation | None:
    """Wait until an allocation is over, for END_SECONDS_MAX at most: its processes may end before Slurm says so.

    Return the allocation, or None if Slurm has forgotten it. Raises ResileError if Slurm fails.
    """
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        found = look_up([number]).get(number)
        if found is None or found.is_over or time.monotonic() > deadline:
            return found
        time.sleep(AGAIN_SECONDS)


def allocations_of(comment: str) -> list[Allocation]:
    """The allocations with this comment that Slurm still has, ended ones too."""
    return [one for one in all_allocations() if one.comment == comment]


def all_allocations() -> list[Allocation]:
    """All allocations that Slurm still has, ended ones too. Raises ResileError if Slurm fails."""
    code, text = call("scontrol", "--oneliner", "show", "job")
    if code:
        raise _failure("scontrol", text)
    found = [parse_allocation(line) for line in text.splitlines()]
    return [one for one in found if one is not None]


def cancel(ids: Iterable[str]) -> None:
    """Cancel these allocations. Raises ResileError if one of them goes on."""
    wanted = list(ids)
    if not wanted:
        return
    code, text = call("scancel", *wanted)
    # `scancel` also fails for an allocation that has ended meanwhile.
    if code and any(not one.is_over and one.state != "COMPLETING" for one in look_up(wanted).values()):
        raise _failure("scancel", text)


def kind_of(allocation: Allocation) -> str:
    """How the end of an allocation counts for its attempts: timeout, oom, preempted or lost."""
    if allocation.state == "TIMEOUT":
        return "timeout"
    if allocation.state == "OUT_OF_MEMORY" or (_was_killed(allocation) and _ran_out_of_memory(allocation)):
        return "oom"
    return "preempted" if allocation.state in ("PREEMPTED", "CANCELLED", "REVOKED") else "lost"


def _was_killed(allocation: Allocation) -> bool:
    """Did SIGKILL end the script of an allocation, or a process whose exit code the script passed on?"""
    return allocation.exit == "137:0" or allocation.exit.endswith(":9")


def _ran_out_of_memory(allocation: Allocation) -> bool:
    """Does Slurm say in the stderr file of an allocation that memory ran out?"""
    try:
        with open(allocation.stderr, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - STDERR_BYTES))
            return _MEMORY.search(file.read().decode("utf-8", "replace")) is not None
    except OSError:
        return False
