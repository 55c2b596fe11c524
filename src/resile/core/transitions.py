"""Every allowed change of a job's status, and the one function that changes it.

docs/reference/state-machine.md is generated from the table. In tests, and in engines under `RESILE_CHECK=1`,
`set_status` refuses transitions that the table lacks; otherwise a run does not pay for the check.
"""

from __future__ import annotations

from resile.core.state import Job
from resile.model.status import (
    BLOCKED,
    CANCELED,
    COMPLETED,
    DISABLED,
    FAILED,
    PENDING,
    PENDING_FAILED,
    READY,
    RECOVERING,
    RUNNING,
    SKIPPED,
    TERMINATED,
    Status,
)

_STOPPED = "its run or scope stops before it starts"
_JUMP = "a `goto` leads back to it or to a step before it"

# (from, to): the reason for the transition.
TRANSITIONS: dict[tuple[Status, Status], str] = {
    (BLOCKED, READY): "its needs hold, an arc was taken to it, and its `when` is true",
    (BLOCKED, PENDING): "reserved early: all it still needs is in flight",
    (BLOCKED, CANCELED): "a need failed, or its run or scope stops",
    (BLOCKED, SKIPPED): "its `when` is false, a need was skipped, no arc was taken to it, or the run leaves it out",
    (BLOCKED, COMPLETED): "the run takes it over from an earlier run in which it completed",
    (BLOCKED, DISABLED): "it runs only when a rule calls it",
    (READY, PENDING): "there is room: its attempt is reserved",
    (READY, BLOCKED): "the circuit of its fan-out opens, or a `goto` leads back",
    (READY, CANCELED): _STOPPED,
    (PENDING, RUNNING): "its attempt starts",
    (PENDING, READY): "its attempt is withdrawn and costs nothing",
    (PENDING, BLOCKED): "its early attempt is withdrawn, or lost",
    (PENDING, CANCELED): _STOPPED,
    (PENDING, TERMINATED): "its attempt is killed before its start was reported",
    (RUNNING, COMPLETED): "its attempt, items or child workflow succeed",
    (RUNNING, FAILED): "it fails and no rule answers",
    (RUNNING, RECOVERING): "a rule answers its failure, or `on_success` runs steps",
    (RUNNING, TERMINATED): "its attempt is killed",
    (RUNNING, CANCELED): "its run or scope stops while a question about it is open",
    (RUNNING, READY): "its attempt is interrupted by the engine and costs nothing",
    (RUNNING, BLOCKED): _JUMP,
    (RECOVERING, READY): "its rule tries it again",
    (RECOVERING, COMPLETED): "its rule counts it as recovered, or its `on_success` is done",
    (RECOVERING, FAILED): "its repair fails and no rule below answers, or its failure is tolerated",
    (RECOVERING, PENDING_FAILED): "its rule parks the failure",
    (RECOVERING, CANCELED): "its run or scope stops",
    (RECOVERING, BLOCKED): _JUMP,
    (PENDING_FAILED, READY): "judged: retry",
    (PENDING_FAILED, SKIPPED): "judged: skip",
    (PENDING_FAILED, FAILED): "judged: fail",
    (PENDING_FAILED, CANCELED): "its run or scope stops",
    (PENDING_FAILED, BLOCKED): "judged: retry, but its needs are not over; or " + _JUMP,
    (COMPLETED, BLOCKED): "an arc, a `goto` or a call runs it once more",
    (COMPLETED, FAILED): "an arc leads back to it and the loop budget is spent",
    (COMPLETED, DISABLED): "the next epoch begins, and it runs only when a rule calls it",
    (FAILED, COMPLETED): "a redrive leaves none of its items failed",
    (FAILED, BLOCKED): "an arc, a `goto` or a call runs it once more",
    (SKIPPED, BLOCKED): "an arc, a `goto` or a call runs it once more",
    (SKIPPED, FAILED): "an arc leads back to it and the loop budget is spent",
    (CANCELED, BLOCKED): "a `goto` or a call runs it once more",
    (TERMINATED, BLOCKED): "a `goto` or a call runs it once more",
    (DISABLED, BLOCKED): "a rule calls it",
}

_refuses_unlisted = False


def refuse_unlisted_transitions(refuse: bool = True) -> None:
    """Make `set_status` refuse transitions that the table lacks; for tests and for engines that check themselves."""
    global _refuses_unlisted
    _refuses_unlisted = refuse


def set_status(job: Job, status: Status) -> None:
    """Change the status of a job; nothing else assigns it."""
    if _refuses_unlisted and job.status is not status and (job.status, status) not in TRANSITIONS:
        raise AssertionError(f"job {job.id}: no transition leads from {job.status.name} to {status.name}")
    job.status = status
