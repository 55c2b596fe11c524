"""The step types that run other steps: `map` for each item, `workflow` as one step.

`native/step.py` builds their actions, because the steps inside are read by it in turn.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.native.keys.fanout import ERROR_POLICY, FILE_ENDINGS, RETRY_CONFIG
from resile.dialects.native.keys.fanout import MAP as MAP_KEYS
from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.reading.key_tables import Key
from resile.model.fanout import ErrorPolicy, Source
from resile.model.workflow import Child, FanOut

_DEFAULT = ErrorPolicy(on_item_failure="fail")


def _write_map(action: FanOut, writer: StepWriter, around: Inherited) -> dict[str, Any]:
    """Write the items, the limits, the error policy, and the steps for each item."""
    written = {"input": _write_input(action.source)}
    written |= writer.fields(action.source, MAP_KEYS)
    written |= writer.fields(
        action, MAP_KEYS, "max_parallel", "redrive_parallel", "isolation", "branch", "merge", "scope", "item_name",
        "item_timeout_seconds",
    )  # fmt: skip
    if action.policy != _DEFAULT:
        written["error_policy"] = _write_policy(action.policy, writer)
    written["steps"] = writer.steps(action.steps, None, around)
    return {"map": written}


def _write_input(source: Source) -> Any:
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


def _write_policy(policy: ErrorPolicy, writer: StepWriter) -> dict[str, Any]:
    """Write the error policy."""
    written = writer.fields(policy, ERROR_POLICY)
    is_lenient = policy.on_item_failure in ("dlq", "retry") and not policy.failures_max
    if is_lenient and policy.continue_on_failure and policy.failure_threshold == 1.0:
        written["continue_on_failure"] = True
    if policy.collection != "aggregate":
        is_batched = policy.collection == "batched"
        written["error_collection"] = {"batched": policy.batch_size} if is_batched else policy.collection
    if policy.attempts_max != 1 or policy.backoff is not None or policy.on_item_failure == "retry":
        wait = {"backoff": None, **writer.fields(policy, RETRY_CONFIG, "backoff")}
        written["retry_config"] = {"max_attempts": policy.attempts_max, **wait}
    return written


def _write_workflow(action: Child, writer: StepWriter, _: Inherited) -> dict[str, Any]:
    more = {word: value for word in ("inputs", "result", "shares") if (value := getattr(action, word))}
    return {"workflow": writer.workflow(action.workflow), **more}


WORKFLOW = StepType(
    Key("workflow", "path", "Action: another workflow file, relative to this one; its verdict is the step's."),
    Child,
    write=_write_workflow,
    beside=("inputs", "result", "shares", "called", "given"),
)  # fmt: skip
MAP = StepType(
    Key("map", "mapping", "Action: steps that run once for each item."),
    FanOut,
    write=_write_map,
    beside=("shell_program", "errexit"),
)
