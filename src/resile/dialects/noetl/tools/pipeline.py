"""Pipelines: a step whose tool is a list of tools that run in order, each with rules about the next one.

    tool: [{label: {kind, ..., spec: {policy: {rules: [{when, then: {do}}, ..., {else: {then: {do}}}]}}}}, ...]

    continue   the next tool            jump    the tool called `to`          fail    the step fails
    retry      this tool once more      break   the pipeline is over

The tools are the steps of an inline workflow that shares the scope of the step. Its value is the result of the last
tool other than `noop`. A failure that no rule answers fails the step. At most JUMPS_MAX jumps lead back, so every
pipeline ends.
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Sequence
from resile.dialects.native.nodes import Part, StepPart, WorkflowPart
from resile.dialects.noetl.arcs import END, arc_to
from resile.dialects.noetl.follow import NOWHERE, Follow, condition_of_case, make_effect, none_of, read_set
from resile.dialects.noetl.keys import TASK_POLICY, TASK_RULE, TASK_SPEC, TASK_THEN
from resile.dialects.noetl.retry import backoff_of, retries_of, rule_for_retry, rules_for_more
from resile.dialects.noetl.task import add_follow, build_action, read_follow, resolve_tool
from resile.dialects.noetl.tools.tool import label_of, read_tool
from resile.dialects.noetl.values import NoetlReading, read_rules
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten

JUMPS_MAX = 1_000
PREVIOUS = "iter._prev"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


def is_pipeline(step: Mapping) -> bool:
    """Does a step have several tools, or one with rules of its own?"""
    given = step.entries.get("tool")
    node = given[1] if given is not None else None
    if not isinstance(node, Sequence):
        return isinstance(node, Mapping) and "spec" in node.entries
    only = node.items[0] if len(node.items) == 1 else None
    if not isinstance(only, Mapping):
        return True
    inner = next(iter(only.entries.values()))[1] if len(only.entries) == 1 and "kind" not in only.entries else only
    return isinstance(inner, Mapping) and "spec" in inner.entries


def read_pipeline(reading: NoetlReading, step: Mapping) -> dict[str, Any] | None:
    """Build the workflow of a step's tools, as keys of a native step; None after a report."""
    key, node = step.entries["tool"]
    owner, before = reading.owner, len(reading.report.errors)
    tasks: dict[str, Node] = {}
    for number, item in enumerate(node.items if isinstance(node, Sequence) else [node], 1):
        label, tool = label_of(reading, item, number)
        if not _LABEL.fullmatch(label) or label.lower() == END or label in tasks:
            problem = "is here twice" if label in tasks else "is no name for a tool"
            reading.report.error("name", f"`{shorten(label)}` {problem}", item, hint="letters, digits, `_` and `-`")
        tasks[label] = tool
    if not tasks:
        reading.report.error("value", "there are no tools to run", key)
    if len(reading.report.errors) > before:
        return None
    known, reading.known = reading.known, reading.known | tasks.keys()
    labels = list(tasks)
    made = [_read_task(reading, label, tasks, [*labels, END][at + 1]) for at, label in enumerate(labels)]
    reading.owner, reading.known = owner, known
    steps = {label: task for label, task in zip(labels, made, strict=True) if task is not None}
    if len(reading.report.errors) > before or not steps:
        return None
    steps[END] = StepPart(NOWHERE, noop=True)
    workflow = WorkflowPart(key, name=owner, templates="jinja", routing={"max_loops": JUMPS_MAX}, steps=steps)
    return {"workflow": workflow, "shares": True}


def _read_task(reading: NoetlReading, label: str, tasks: dict[str, Node], after: str) -> Part | None:
    """Build the step of one tool with its rules; `after` is the tool after it."""
    node = tasks[label]
    if not isinstance(node, Mapping) or "kind" not in node.entries:
        reading.report.error("value", f"the tool `{shorten(label)}` needs `kind`", node)
        return None
    reading.owner = label
    entries = {word: entry for word, entry in node.entries.items() if word != "spec"}
    bare = Mapping(entries, node.line, node.column)
    tool = read_tool(reading, Mapping({"tool": (node.entries["kind"][0], bare)}, node.line, node.column))
    if tool is None:
        return None
    if tool.kind == "iterator" or "loop" in tool.fields:
        hint = "write `loop` on the step"
        reading.report.error("not-run", "a loop stands on the step, not in one of its tools", tool.kind_node, hint=hint)
        return None
    # A `noop` only decides where to go, so it keeps the last result.
    follow = Follow(effects=[] if tool.kind == "noop" else [make_effect("set", name=PREVIOUS, value=label)])
    ways: list[Part] = []
    if "spec" in node.entries:
        _read_spec(reading, node.entries["spec"][1], tasks, after, follow, ways)
    follow.arcs.append(arc_to(after, none_of(ways) if ways else None))
    args, tool = resolve_tool(reading, {}, tool, follow)
    read_follow(reading, {}, tool, bare, label, follow)
    action, transform = build_action(reading, tool, follow)
    timeout = tool.fields.get("timeout") if tool is not None else None
    return add_follow(StepPart(node, **action, args=args or None, timeout=timeout), label, transform, follow)


def _read_spec(
    reading: NoetlReading, node: Node, tasks: dict[str, Node], after: str, follow: Follow, ways: list[Part]
) -> None:
    """Read the rules of a tool; `ways` collects the conditions under which a rule names the next tool."""
    spec = read_keys(reading, node, TASK_SPEC)
    policy = read_keys(reading, spec["policy"], TASK_POLICY) if "policy" in spec else {}
    rules: Node | None = policy.get("rules")
    if "policy" in spec and not isinstance(rules, Sequence):
        wrong(reading, rules or spec["policy"], "a mapping with a list of `rules`")
    for _, rule in read_rules(reading, rules, TASK_RULE) if isinstance(rules, Sequence) else ():
        follow.cases.append({"when": rule["when"], "on_failure": True})
        _read_then(reading, rule["then"], tasks, after, follow, ways)
    if policy.get("on_unmatched") == "continue":
        follow.rules.append(Part(node, then="tolerate", text="on_unmatched", limit=JUMPS_MAX))


def _read_then(
    reading: NoetlReading, node: Node, tasks: dict[str, Node], after: str, follow: Follow, ways: list[Part]
) -> None:
    """Read the `then` of the rule whose case was added last."""
    fields: dict[str, Any] = read_keys(reading, node, TASK_THEN)
    if not isinstance(node, Mapping):
        return
    number = len(follow.cases) - 1
    asked = condition_of_case(number, node)
    do = fields.get("do", "continue")
    for word, wanted in (("to", "jump"), ("max_attempts", "retry"), ("backoff", "retry"), ("initial_delay", "retry")):
        if word in fields and do != wanted:
            reading.report.error("conflict", f"this is for `do: {wanted}`, not for `{do}`", node)
    if "set_ctx" in fields:
        follow.effects += read_set(reading, fields["set_ctx"], number)
    if "set_iter" in fields:
        follow.effects += read_set(reading, fields["set_iter"], number, place="iter.")
    text = f"rule {number + 1}: {do}"
    if do == "fail":
        follow.effects.append(make_effect("fail", number, value=f"{text} of `{reading.owner}`"))
    elif do == "retry":
        wait = backoff_of(reading, fields)
        follow.effects.append(make_effect("again", number, value={}))
        follow.rules += rules_for_more(fields, str(number), node, wait)
        if limit := retries_of(fields):
            follow.rules.append(rule_for_retry(node, text, asked, limit, wait))
    else:
        target = END if do == "break" else after
        if do == "jump":
            target = str(fields.get("to", ""))
            if target not in tasks:
                hint = did_you_mean(target, tasks, "tools")
                reading.report.error("unknown-step", f"there is no tool `{shorten(target)}` here", node, hint=hint)
                return
        ways.append(asked)
        follow.arcs.append(arc_to(target, asked))
        follow.rules.append(Part(node, then="tolerate", text=text, when=asked, limit=JUMPS_MAX))
