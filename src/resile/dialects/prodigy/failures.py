"""Translates the failure keys of a Prodigy step to native ones.

on_failure            true, a command, a list of commands or steps, or a mapping: the keys of a handler, and those
                      of a step, which the handler then runs
retry, retry_config   native `retry`; with `retry_on` a failure handler whose rule matches the text of failures
on_exit_code          native, except for 0, whose steps run after a success
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, plain
from resile.dialects.native import nodes
from resile.dialects.prodigy.keys import HANDLER, RETRY
from resile.dialects.prodigy.variables import StepDraft, Translation, Where, add_defaults
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import wrong

ATTEMPTS_DEFAULT = 3
JITTER_DEFAULT = 0.3
_BACKOFFS = ("fixed", "linear", "exponential", "fibonacci")
_SPEAKS_OF = {
    "network": r"network|connection|connect|resolve|dns|unreachable",
    "timeout": r"timeout|timed out|took longer",
    "server_error": r"\b5\d\d\b|server error",
    "rate_limit": r"\b429\b|rate.?limit|too many requests",
}


def add_failure_keys(step: StepDraft, allowed: Scalar | None) -> None:
    """Add the keys about failures to the native step; the key `allowed`, if any, makes it tolerate its failure."""
    t, fields, out = step.t, step.fields, step.out
    step.copy("max_attempts", "max_retries", "fail_workflow", "handler_failure_fatal")
    _rename_count(t, out)
    if step.where.in_handler:
        step.copy("continue_on_error")
    if "on_failure" in fields:
        step.put("on_failure", translate_handler(t, fields["on_failure"], step.where))
    retries = fields.get("retry", fields.get("retry_config", t.retries))
    if "retry" in fields and "retry_config" in fields:
        t.report.error("conflict", "`retry_config` and `retry` say the same thing", step.key("retry_config"))
    if retries is not None:
        _add_retry(t, retries, step.where, out)
    elif "retries" in step.metadata:
        nodes.put(out, "retry", step.metadata["retries"])
    if allowed is None:
        _add_tolerance(step)
    elif nodes.is_null(nodes.value_of(out, "on_failure")):
        nodes.put(out, "on_failure", nodes.node_of(True, allowed), allowed)
    elif "fail_workflow" not in out.entries:
        nodes.put(out, "fail_workflow", nodes.node_of(False, allowed), allowed)


def _add_tolerance(step: StepDraft) -> None:
    """Add that a step with a handler tolerates its failure, as in Prodigy; in handlers and items its failure counts."""
    answer = nodes.value_of(step.out, "on_failure")
    inside = answer.entries if isinstance(answer, Mapping) else {}
    has_commands = "commands" in inside or isinstance(answer, Sequence)
    is_said = "fail_workflow" in inside or "fail_workflow" in step.out.entries
    if not has_commands or is_said or step.where.in_handler or step.where.item:
        return
    at = step.node.entries["on_failure"][0] if "on_failure" in step.node.entries else step.node
    message = "as in Prodigy, a step that stays failed after its handler does not fail the workflow"
    step.t.report.notice("tolerated", message, at, hint="`fail_workflow: true` makes it fail")
    nodes.put(step.out, "fail_workflow", nodes.node_of(False, at), at)


def _rename_count(t: Translation, out: Mapping) -> None:
    """Write the native `max_attempts` for `max_retries`, which is another name of it in Prodigy."""
    entry = out.entries.pop("max_retries", None)
    if entry is None:
        return
    if "max_attempts" in out.entries:
        t.report.error("conflict", "`max_retries` and `max_attempts` say the same thing", entry[0])
    out.entries["max_attempts"] = entry


def translate_handler(t: Translation, node: Node, where: Where) -> Node:
    """Translate `on_failure` in each of its forms."""
    if isinstance(node, Scalar) and not isinstance(node.value, str):
        return node
    inner = where.inner("on_failure", in_handler=True)
    if not isinstance(node, Mapping):
        return nodes.sequence(t.translate_steps(nodes.items_of(node), inner), node)
    own = {key: entry for key, entry in node.entries.items() if key in HANDLER.keys}
    rest = {key: entry for key, entry in node.entries.items() if key not in HANDLER.keys}
    fields = read_mapping(t, Mapping(own, node.line, node.column), HANDLER)
    out = Mapping({key: entry for key, entry in own.items() if key != "commands"}, node.line, node.column)
    _rename_count(t, out)
    if "commands" in fields:
        shared = {key: entry for key, entry in rest.items() if key not in ("shell", "claude")}
        commands = nodes.items_of(fields["commands"])
        commands = add_defaults([as_mapping(item) for item in commands], shared) if shared else commands
        nodes.put(
            out, "commands", nodes.sequence(t.translate_steps(commands, inner), fields["commands"]), own["commands"][0]
        )
        doubled = next((key for key in rest if key in ("shell", "claude")), "")
        if doubled:
            message = f"`commands` and `{doubled}` both say what the handler runs"
            t.report.error("conflict", message, rest[doubled][0])
    elif rest:
        made = t.translate_steps([Mapping(rest, node.line, node.column)], inner)
        nodes.put(out, "commands", nodes.sequence(made, node), next(iter(rest.values()))[0])
    return out


def as_mapping(item: Node) -> Node:
    """A command that is written as a text, as a step."""
    if not isinstance(item, Scalar):
        return item
    return nodes.mapping(item, {"claude" if item.text.startswith("/") else "shell": item})


def add_exit_codes(step: StepDraft, inner: Where) -> list[Node]:
    """Add the steps by exit code; return those for 0, which follow a success."""
    t, node = step.t, step.fields.get("on_exit_code")
    success: list[Node] = []
    if node is None:
        return success
    if not isinstance(node, Mapping):
        wrong(t, node, "a mapping of exit codes to steps")
        return success
    others = nodes.mapping(node)
    for code, (key, value) in node.entries.items():
        t.report.withdraw(key)
        if code == "0":
            success += t.translate_steps(nodes.items_of(value), inner)
        else:
            made = t.translate_steps(nodes.items_of(value), inner.inner("on_failure", in_handler=True))
            others.entries[code] = (key, nodes.sequence(made, value))
    if others.entries:
        nodes.put_in_step(step.out, "on_exit_code", others, step.key("on_exit_code"))
    return success


def _add_retry(t: Translation, node: Node, where: Where, out: Mapping) -> None:
    """Add retries with their waits, for all failures or for those that `retry_on` lists."""
    fields = read_mapping(t, node, RETRY)
    if not isinstance(node, Mapping):
        return
    given = fields.get("attempts", fields.get("max_attempts"))
    attempts = plain(given) if isinstance(given, Scalar) else ATTEMPTS_DEFAULT
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        wrong(t, given or node, "a whole number of attempts from 1 on")
        return
    backoff = _translate_backoff(t, fields, node)
    limit = nodes.node_of(attempts - 1, given or node)
    if "retry_on" in fields:
        _add_retry_handler(t, fields["retry_on"], limit, backoff, out)
    elif attempts > 1:
        nodes.put(out, "retry", nodes.mapping(node, {"max": limit, "backoff": backoff}), node)
    _add_last_answer(t, fields, where, out)


def _add_last_answer(t: Translation, fields: dict[str, Node], where: Where, out: Mapping) -> None:
    """Add the action for when all attempts are used up."""
    said = fields.get("on_failure")
    if said is None or nodes.text_in(said) == "stop":
        return
    if "on_failure" in out.entries:
        t.report.error("conflict", "`on_failure` stands in `retry` and beside it", said, hint="keep one of them")
    elif nodes.text_in(said) == "continue":
        nodes.put(out, "on_failure", nodes.node_of(True, said), said)
    else:
        fallback = nodes.value_of(said, "fallback") if isinstance(said, Mapping) else None
        command = nodes.value_of(fallback, "command") if isinstance(fallback, Mapping) else None
        if command is None:
            wrong(t, said, "stop, continue, or {fallback: {command: …}}")
            return
        made = t.translate_steps([command], where.inner("on_failure", in_handler=True))
        nodes.put(
            out,
            "on_failure",
            nodes.node_of({"strategy": "fallback", "commands": nodes.sequence(made, command)}, said),
            said,
        )


def _translate_backoff(t: Translation, fields: dict[str, Node], node: Mapping) -> Node:
    """Translate the growth of the waits: a word, `{type: word, …}` or `{word: {…}}`."""
    said = fields.get("backoff")
    entries: dict[str, Any] = {"type": "exponential", "initial": "1s", "max_delay": "30s"}
    for key, name in (("initial", "initial_delay"), ("max_delay", "max_delay")):
        entries |= {key: fields[name]} if name in fields else {}
    if isinstance(said, Mapping):
        inside = dict(said.entries)
        named = next((key for key in inside if key in _BACKOFFS), "")
        if named:
            place, parts = inside.pop(named)
            entries["type"] = nodes.word(named, place)
            inside |= parts.entries if isinstance(parts, Mapping) else {}
        names = {"base": "multiplier", "delay": "initial"}
        entries |= {names.get(key, key): value for key, (_, value) in inside.items()}
    elif said is not None:
        entries["type"] = said
    jitter = fields.get("jitter")
    if jitter is not None and plain(jitter) is True:
        entries["jitter"] = fields.get("jitter_factor", nodes.node_of(JITTER_DEFAULT, jitter))
    elif jitter is not None and plain(jitter) is not False:
        wrong(t, jitter, "true or false")
    elif "jitter_factor" in fields:
        t.report.error("conflict", "`jitter_factor` has no meaning without `jitter: true`", fields["jitter_factor"])
    return nodes.node_of(entries, node)


def _add_retry_handler(t: Translation, node: Node, limit: Node, backoff: Node, out: Mapping) -> None:
    """Add retries of the failures that `retry_on` lists, as a failure handler for this step."""
    patterns: list[str] = []
    for item in nodes.items_of(node):
        pattern = nodes.value_of(item, "pattern") if isinstance(item, Mapping) else None
        if pattern is not None and nodes.text_in(pattern):
            patterns.append(nodes.text_in(pattern))
        elif nodes.text_in(item) in _SPEAKS_OF:
            patterns.append(_SPEAKS_OF[nodes.text_in(item)])
        elif isinstance(item, Scalar) and isinstance(item.value, str):
            patterns.append(re.escape(item.text))
        else:
            wrong(t, item, "network, timeout, server_error, rate_limit, a text, or {pattern: …}")
    if not patterns:
        t.report.error("value", f"`retry_on` lists nothing: {describe(node)}", node)
        return
    name = f"retry_on_{node.line}_{node.column}"
    text = "(?i)" + "|".join(f"(?:{part})" for part in patterns)
    t.handlers[name] = nodes.node_of({"rules": [{"pattern": text, "max_retries": limit, "backoff": backoff}]}, node)
    nodes.put(out, "failure_handler", nodes.word(name, node), node)
