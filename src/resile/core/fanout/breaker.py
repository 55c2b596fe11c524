"""The circuit breaker of a fan-out: it counts what items come to, and holds them while a dependency is down.

    closed --failure_threshold failures in a row--> open --timeout--> half_open --success_threshold successes--> closed
                                                     ^                    |
                                                     +----- any failure --+

Held items wait; they are not burnt. While the circuit is open nothing starts and what runs finishes. At most
`half_open_requests` items are let through as a test.
"""

from __future__ import annotations

from resile.core.actions import Action, SetTimer
from resile.core.event_log import note_job
from resile.core.fanout.progress import Fan
from resile.core.state import Job, State
from resile.model.fanout import Breaker, ErrorPolicy

# The `item` of the timer that ends an open circuit; items count from 0, and -1 is none.
CIRCUIT = -2


def holds_back(policy: ErrorPolicy) -> bool:
    """Can failures of items keep others from starting?"""
    return (
        policy.on_item_failure == "stop"
        or not policy.continue_on_failure
        or bool(policy.failures_max)
        or policy.failure_threshold < 1.0
        or policy.breaker is not None
    )


def may_start(fan: Fan, breaker: Breaker | None) -> bool:
    """Does the circuit let one more item through?"""
    if breaker is None or fan.circuit == "closed":
        return True
    return fan.circuit == "half_open" and fan.probes < breaker.half_open_requests


def started(fan: Fan) -> None:
    """An item was let through."""
    if fan.circuit == "half_open":
        fan.probes += 1


def passed(state: State, out: list[Action], at: float, job: Job, fan: Fan, breaker: Breaker, began: float) -> None:
    """An item that began then has succeeded; one from before the test says nothing about it."""
    fan.streak = 0
    if fan.circuit != "half_open" or began < fan.tested_since:
        return
    fan.passed += 1
    # With fewer tests than successes asked for, all tests must pass.
    if fan.passed >= min(breaker.success_threshold, breaker.half_open_requests):
        fan.circuit = "closed"
        note_job(state, out, at, "circuit_closed", job, {"successes": fan.passed})


def tripped(state: State, out: list[Action], at: float, job: Job, fan: Fan, breaker: Breaker, began: float) -> None:
    """An item that began then has failed; one from before the test says nothing about it."""
    fan.streak += 1
    test_failed = fan.circuit == "half_open" and began >= fan.tested_since
    if test_failed or (fan.circuit == "closed" and fan.streak >= breaker.failure_threshold):
        fan.circuit = "open"
        fan.due = at + breaker.timeout_seconds
        data = {"failures": fan.streak, "until": fan.due}
        seq = note_job(state, out, at, "circuit_opened", job, data)
        out.append(SetTimer(job.id, job.attempt, fan.due, seq, item=CIRCUIT))


def half_open(state: State, out: list[Action], at: float, job: Job, fan: Fan) -> None:
    """The circuit was open long enough: let some items through."""
    fan.circuit = "half_open"
    fan.passed = fan.probes = 0
    fan.due = 0.0
    fan.tested_since = at
    note_job(state, out, at, "circuit_half_opened", job, {})
