"""What a step does, as the native file writes it: one key, and those that only stand beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from resile.dialects.native.fanout import FILE_ENDINGS
from resile.dialects.native.writer.values import backoff, duration, given
from resile.model.builtin_actions import Ask, Collect, Log, Memory, Script
from resile.model.fanout import ErrorPolicy, FanOut, Source
from resile.model.workflow import (
    Action,
    Agent,
    Child,
    Function,
    Http,
    Noop,
    Python,
    Query,
    Shell,
    Validate,
    WriteFile,
)

if TYPE_CHECKING:
    from resile.dialects.native.writer.step import Around, Writer


def action_keys(action: Action, writer: Writer, around: Around) -> dict[str, Any]:
    """The keys that say what a step does."""
    match action:
        case Shell():
            return {"shell": action.command} | ({"stdin": action.stdin} if action.stdin else {})
        case Validate():
            return {"validate": action.command}
        case Noop():
            return {"noop": True}
        case Agent():
            more = given(action, prompt_by="prompt_by", cost_max="max_cost", tokens_max="max_tokens")
            if action.command != Agent("").command:
                more = {"command": list(action.command), **more}
            return {"agent": {"prompt": action.prompt, **more} if more else action.prompt}
        case WriteFile():
            mode = {"mode": f"{action.mode:o}"} if action.mode != WriteFile("", "").mode else {}
            return {"write_file": {"path": action.path, "content": action.content, **mode}}
        case Http():
            return {"http": _http(action)}
        case Python():
            more = given(action, names="names", places="places", status_fails="status_fails")
            code: Any = {"file": action.file} if action.file else action.source
            if more:
                code = {**({"file": action.file} if action.file else {"source": action.source}), **more}
            return {"python": code} | ({"inputs": action.inputs} if action.inputs else {})
        case Child():
            from resile.dialects.native.writer.document import part

            more = given(action, inputs="inputs", result="result", shares="shares")
            return {"workflow": part(action.workflow, writer), **more}
        case FanOut():
            return {"map": _map(action, writer, around)}
        case Query():
            return {"query": {key: value for key, value in msgspec.to_builtins(action).items() if key != "type"}}
        case Function():
            return {"function": {key: value for key, value in msgspec.to_builtins(action).items() if key != "type"}}
        case Script() | Log() | Memory() | Ask() | Collect():
            return _inside(action)
    assert_never(action)


def _inside(action: Script | Log | Memory | Ask | Collect) -> dict[str, Any]:
    """Actions that need no process."""
    match action:
        case Script():
            more = given(action, namespace="namespace")
            return {"script": {"code": action.code, **more} if more else action.code}
        case Log():
            more = given(action, level="level", with_outputs="with_outputs")
            return {"log": {"message": action.message, **more} if more else action.message}
        case Memory():
            words = ("key", "namespace", "value", "code")
            return {"memory": {"operation": action.operation, **given(action, **{word: word for word in words})}}
        case Ask():
            more = given(action, default="default")
            return {"ask": {"question": action.question, **more} if more else action.question}
        case Collect():
            return {
                "collect": {each.name: {"code": each.code} if each.code else each.template for each in action.values}
            }
    assert_never(action)


def _http(action: Http) -> Any:
    """A request; the url alone where there is no more to say."""
    written: dict[str, Any] = {"url": action.url}
    has_body = action.body is not None or action.json is not None or action.form is not None
    if action.method != ("POST" if has_body else "GET"):
        written["method"] = action.method
    if action.headers:
        written["headers"] = action.headers
    if action.body is not None:
        written["body"] = action.body
    if action.json is not None:
        written["json"] = action.json
    words = {"params": "params", "form": "form", "envelope": "envelope", "is_verified": "verify"}
    written |= given(action, **words)
    if action.expect_status:
        written["expect_status"] = list(action.expect_status)
    return written if len(written) > 1 else action.url


def _map(action: FanOut, writer: Writer, around: Around) -> dict[str, Any]:
    """A fan-out: its items, its limits, what failed ones mean, and what runs for each."""
    source = action.source
    words = ("json_path", "filter", "filter_bare", "sort_by", "distinct", "offset")
    written = {"input": _input(source), **given(source, **{word: word for word in words}, items_max="max_items")}
    written |= given(action, max_parallel="max_parallel", isolation="isolation", scope="scope", item_name="item_name")
    if action.item_timeout_seconds is not None:
        written["item_timeout"] = duration(action.item_timeout_seconds)
    if action.policy != ErrorPolicy():
        written["error_policy"] = _policy(action.policy)
    written["steps"] = writer.steps(action.steps, None, around)
    return written


def _input(source: Source) -> Any:
    """Where the items come from."""
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
    """What failed items mean."""
    written = given(
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
        breaker = policy.breaker
        words = ("failure_threshold", "success_threshold", "half_open_requests")
        written["circuit_breaker"] = {
            **given(breaker, **{word: word for word in words}),
            "timeout": duration(breaker.timeout_seconds),
        }
    if policy.attempts_max != 1 or policy.backoff is not None or policy.on_item_failure == "retry":
        wait = backoff(policy.backoff) if policy.backoff is not None else None
        written["retry_config"] = {"max_attempts": policy.attempts_max, "backoff": wait}
    return written
