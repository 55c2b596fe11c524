"""Decides how attempts ended if no launcher saw it: from their node's files and the batch system's answers."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from errno import EINVAL, ETIMEDOUT

from msgspec.structs import replace

from resile.errors import ResileError
from resile.executors.contract import MEASURED, Ended, Launch, Lost, Report, Withdrawn
from resile.executors.parsl import slurm
from resile.executors.parsl.node import files
from resile.executors.parsl.nodes import Key, Node
from resile.model.failure import LogRange
from resile.model.limits import size

SIGKILL = 9
# The number of times that a job's attempts may be preempted without a cost to its budget.
PREEMPTIONS_MAX = 10
# If Slurm was still ending an allocation, ask again after this time.
ASK_AGAIN_SECONDS = 10.0
# If a node gave no sign of life for this time, ask Slurm about its allocation.
QUIET_SECONDS = 6.0
_WORDS = {"timeout": "the allocation's time is over", "oom": "out of memory"}


class Verdicts:
    """Decides how attempts ended, and counts how often the attempts of each job were preempted.

    It writes preemptions to a file in the folder, so that the next engine of the run goes on counting.
    """

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, files.PREEMPTED)
        # The preempted allocations of each job.
        self._preemptions: dict[int, set[str]] = {}
        for line in files.Tail(self._file).read():
            job, allocation = line.split()
            self._preemptions.setdefault(int(job), set()).add(allocation.decode())
        self._looked: dict[str, slurm.Allocation | None] = {}
        # When Slurm was asked how an allocation ended, and its answer or error.
        self._said: dict[str, tuple[float, slurm.Allocation | ResileError | None]] = {}

    def begin_round(self) -> None:
        """Begin a round over all nodes, in which Slurm is asked about each allocation at most once."""
        self._looked.clear()

    def is_over(self, node: Node) -> bool:
        """Have all attempts of a node ended? For a silent node that is sure once Slurm has ended its allocation."""
        identity = node.identity
        if node.is_dead() or identity is None or not identity.allocation:
            return node.is_gone()
        is_quiet = identity.agent() is None if identity.is_here() else node.is_silent(QUIET_SECONDS)
        if not is_quiet:
            return False
        try:
            if identity.allocation not in self._looked:
                self._looked[identity.allocation] = slurm.look_up([identity.allocation]).get(identity.allocation)
            found = self._looked[identity.allocation]
            if found is None:
                return node.is_silent()
            if not found.is_over and node.is_silent():
                slurm.cancel([identity.allocation])
        except ResileError:
            # The next round asks again.
            return False
        return found.is_over

    def ask(self, node: Node) -> None:
        """Ask Slurm how the allocation of a node ended, so that `of` need not wait for the answer."""
        if node.identity is not None and node.identity.allocation:
            with suppress(ResileError):
                self._end_of(node.identity.allocation)

    def of_ended(self, ended: Ended, node: Node) -> Report:
        """The report of an attempt that its node ended.

        If the node ended it because the allocation was about to end, the report is a timeout, or if the attempt ended
        with exit 0 a withdrawal, which costs no budget.
        """
        key = ended.job, ended.attempt
        if node.fate() != files.EXPIRES:
            return self.of(key, node, ended.started_at, ended.at, ended.log)
        if ended.wait_status == 0:
            why = f"terminated: {files.EXPIRES}, and it ended with exit 0"
            return Withdrawn(*key, ended.at, started=True, why=why)
        return replace(ended, reason="timeout", evidence=f"{_WORDS['timeout']}: {name_of(node)}, {files.EXPIRES}")

    def of(self, key: Key, node: Node, started_at: float, at: float, log: LogRange | None) -> Report:
        """The report of an attempt that ended because its node did."""
        identity = node.identity
        if identity is None or not identity.allocation:
            fate = node.fate() or "its block died while it ran"
            return Lost(*key, at, f"{name_of(node)}: {fate}", log)
        try:
            found = self._end_of(identity.allocation)
        except ResileError as error:
            return Lost(*key, at, f"the allocation {identity.allocation} in which it ran is gone: {error.message}", log)
        if found is None:
            return Lost(*key, at, f"Slurm no longer knows the allocation {identity.allocation} in which it ran", log)
        kind = slurm.kind_of(found)
        if kind in _WORDS:
            place, began = log or LogRange(""), started_at or at
            return Ended(*key, began, at, SIGKILL, 0.0, 0, place, kind, evidence=f"{_WORDS[kind]}: {found}")
        if kind == "preempted":
            times = self._count_preemption(key[0], identity.allocation)
            if times <= PREEMPTIONS_MAX:
                return Withdrawn(*key, at, started=True, why=f"preempted: {found}")
            return Lost(*key, at, f"preempted {times} times: {found}", log)
        return Lost(*key, at, str(found), log)

    def _count_preemption(self, job: int, allocation: str) -> int:
        """Count a preemption of a job; return how many there are now."""
        known = self._preemptions.setdefault(job, set())
        if allocation not in known:
            known.add(allocation)
            files.append(self._file, [b"%d %s" % (job, allocation.encode())])
        return len(known)

    def _end_of(self, allocation: str) -> slurm.Allocation | None:
        """The ended allocation; None if Slurm has forgotten it. Asks Slurm once for all attempts that end with it."""
        at, found = self._said.get(allocation, (0.0, None))
        is_known = allocation in self._said and (
            found is None or (isinstance(found, slurm.Allocation) and found.is_over)
        )
        if not is_known and (not at or time.monotonic() - at > ASK_AGAIN_SECONDS):
            try:
                found = slurm.wait_for_end(allocation)
            except ResileError as error:
                found = error
            self._said[allocation] = time.monotonic(), found
        if isinstance(found, ResileError):
            raise found
        return found


def name_of(node: Node) -> str:
    """The name of a node, for people."""
    identity = node.identity
    return identity.node if identity is not None else "a node"


def missing(key: Key, at: float, in_doubt: bool) -> Report:
    """The report of an attempt if no node has a record of it."""
    return Lost(*key, at, "the records of its node are gone") if in_doubt else Withdrawn(*key, at)


def refusal_of(launch: Launch, at: float) -> Ended:
    """The end of an attempt with a NUL in an argument: no process can get one."""
    return Ended(launch.job, launch.attempt, at, at, 0, 0.0, 0, LogRange(""), "", EINVAL, "exec")


def with_memory(ended: Ended, limit_bytes: int) -> Ended:
    """Add the used memory and the limit to the end of an attempt that used too much."""
    if ended.reason != "oom" or limit_bytes in (0, MEASURED):
        return ended
    used = size(max(ended.rss_bytes_max, limit_bytes))
    return replace(ended, evidence=f"out of memory: it used {used}, `resources.memory` is {size(limit_bytes)}")


def never_started(key: Key, at: float, why: str) -> Ended:
    """The end of an attempt for which no block came."""
    return Ended(*key, at, at, 0, 0.0, 0, LogRange(""), "", ETIMEDOUT, "exec", evidence=why)


def explain(problem: BaseException) -> BaseException:
    """The error of a run whose blocks can't be tended."""
    if isinstance(problem, ResileError):
        return problem
    return ResileError("executor-failed", f"Parsl failed: {problem}", hint="see the folder `cluster` of the run")
