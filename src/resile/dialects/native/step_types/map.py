"""`map`: steps that run once for each item."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import backoff, changed_fields, duration
from resile.model.fanout import ErrorPolicy, Source
from resile.model.workflow import FanOut

FILE_ENDINGS = (".json", ".jsonl", ".ndjson")
"""A single word with such an ending is a file of items."""


def _write(action: FanOut, writer: StepWriter, around: Inherited) -> dict[str, Any]:
    """Write the items, the limits, the error policy, and the steps for each item."""
    source = action.source
    selection = ("json_path", "filter", "filter_bare", "sort_by", "distinct", "offset")
    written = {
        "input": _input(source),
        **changed_fields(source, **{word: word for word in selection}, items_max="max_items"),
    }
    written |= changed_fields(
        action, max_parallel="max_parallel", isolation="isolation", scope="scope", item_name="item_name"
    )
    if action.item_timeout_seconds is not None:
        written["item_timeout"] = duration(action.item_timeout_seconds)
    if action.policy != ErrorPolicy():
        written["error_policy"] = _policy(action.policy)
    written["steps"] = writer.steps(action.steps, None, around)
    return {"map": written}


def _input(source: Source) -> Any:
    """Write the source of the items."""
    if source.values is not None:
        return list(source.values)
    if source.step:
        return {"step": source.step}
    if source.template:
        return {"template": source.template}
    if source.path:
        is_file = source.path.endswith(FILE_ENDINGS) and len(source.path.split()) == 1
        return source.path if is_file else {"path": source.path}
    is_command = len(source.command.split()) > 1 and not source.command.startswith("${")
    return source.command if is_command else {"command": source.command}


def _policy(policy: ErrorPolicy) -> dict[str, Any]:
    """Write the error policy."""
    written = changed_fields(
        policy,
        on_item_failure="on_item_failure",
        continue_on_failure="continue_on_failure",
        failures_max="max_failures",
        failure_threshold="failure_threshold",
        threshold_items_min="failure_threshold_min_items",
    )
    if policy.collection == "batched":
        written["error_collection"] = {"batched": policy.batch_size}
    elif policy.collection != "aggregate":
        written["error_collection"] = policy.collection
    if policy.breaker is not None:
        words = ("failure_threshold", "success_threshold", "half_open_requests")
        written["circuit_breaker"] = {
            **changed_fields(policy.breaker, **{word: word for word in words}),
            "timeout": duration(policy.breaker.timeout_seconds),
        }
    if policy.attempts_max != 1 or policy.backoff is not None or policy.on_item_failure == "retry":
        wait = backoff(policy.backoff) if policy.backoff is not None else None
        written["retry_config"] = {"max_attempts": policy.attempts_max, "backoff": wait}
    return written


MAP = StepType("map", FanOut, _write)
