"""Reading what came of the maps of a run."""

from __future__ import annotations

from typing import Any

import yaml

from tests.runs.ladder.flows import Flows, Ran

COUNTS = ("total_items", "successful", "failed", "skipped", "held")


_WORDS = ("stop", "fail", "carry_on", "skip")
_LIMITS = {"continue_on_failure", "max_failures", "failure_threshold"}


def mapped(policy: str, shell: str = "./step ${item}", items: str = "[a, b, c, d, e]") -> str:
    """A workflow of one map step and a step after it; failed items fail the map only if the policy says so."""
    keys = yaml.safe_load(policy)
    if not _LIMITS & keys.keys() and keys.get("on_item_failure") not in _WORDS:
        policy = policy.replace("{", "{continue_on_failure: true, ", 1)
    return (
        "name: mapped\nsteps:\n  process:\n    map:\n"
        f"      input: {items}\n      error_policy: {policy}\n      steps:\n      - {{id: work, shell: '{shell}'}}\n"
        "  after: {shell: ./step after, needs: [process]}\n"
    )


def counts(ran: Ran, step: str = "process") -> tuple[int, ...]:
    """Items in all, successful, failed, skipped and held."""
    numbers = ran.document["maps"][step]
    return tuple(numbers[word] for word in COUNTS)


def letters(flows: Flows, run: int = 1) -> list[tuple[str, str, int]]:
    """Id, reason and number of failures of each dead letter."""
    found = flows.program.json("dlq", "list", str(run))["dead_letters"]
    return [(letter["item_id"], letter["reason"], letter["failure_count"]) for letter in found]


def waits(ran: Ran) -> list[tuple[str, float]]:
    """Which item waited how long before it ran again, in order."""
    return [
        (event["data"]["item"], event["data"]["delay_seconds"])
        for event in ran.of("retry_scheduled")
        if "item" in event["data"]
    ]


def types(ran: Ran, *wanted: str) -> list[str]:
    """The types of events among these, in order."""
    return [event["type"] for event in ran.events if event["type"] in wanted]


def reported(ran: Ran) -> list[list[Any]]:
    """The items of each report."""
    return [[item["item"] for item in event["data"]["items"]] for event in ran.of("errors_reported")]
