"""The circuit breaker of a fan-out: it counts how items end, and holds items back while a dependency is down.

    closed --failure_threshold failures in a row--> open --timeout--> half_open --success_threshold successes--> closed
                                                     ^                    |
                                                     +----- any failure --+

Items that are held back wait and use no attempt. While the circuit is open no item starts, and running items finish.
The half-open circuit lets at most `half_open_requests` items through as a test.
"""

from __future__ import annotations

from resile.core.actions import SetTimer
from resile.core.fanout.progress import Fan
from resile.core.reaction import Reaction
from resile.core.state import Job
from resile.model.fanout import Breaker, ErrorPolicy

# The `item` of the timer that ends an open circuit; items count from 0, and -1 is none.
CIRCUIT = -2


def holds_back(policy: ErrorPolicy) -> bool:
    """Can failures of items keep other items from starting?"""
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


def count_success(reaction: Reaction, job: Job, fan: Fan, breaker: Breaker, began: float) -> None:
    """Count an item that succeeded; an item that began before the half-open test does not affect the circuit."""
    fan.streak = 0
    if fan.circuit != "half_open" or began < fan.tested_since:
        return
    fan.passed += 1
    # With fewer tests than successes asked for, all tests must pass.
    if fan.passed >= min(breaker.success_threshold, breaker.half_open_requests):
        fan.circuit = "closed"
        reaction.note("circuit_closed", job, {"successes": fan.passed})


def count_failure(reaction: Reaction, job: Job, fan: Fan, breaker: Breaker, began: float) -> None:
    """Count an item that failed and open the circuit if needed; items that began before the test do not affect it."""
    fan.streak += 1
    test_failed = fan.circuit == "half_open" and began >= fan.tested_since
    if test_failed or (fan.circuit == "closed" and fan.streak >= breaker.failure_threshold):
        fan.circuit = "open"
        fan.due = reaction.at + breaker.timeout_seconds
        data = {"failures": fan.streak, "until": fan.due}
        seq = reaction.note("circuit_opened", job, data)
        reaction.order(SetTimer(job.id, job.attempt, fan.due, seq, item=CIRCUIT))


def half_open(reaction: Reaction, job: Job, fan: Fan) -> None:
    """The timeout of the open circuit is over: let some items through."""
    fan.circuit = "half_open"
    fan.passed = fan.probes = 0
    fan.due = 0.0
    fan.tested_since = reaction.at
    reaction.note("circuit_half_opened", job, {})
