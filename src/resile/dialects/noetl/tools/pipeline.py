"""Pipelines: a step whose tool is a list of tools, one after the other, with rules for what follows from each.

    tool: [{label: {kind, ..., spec: {policy: {rules: [{when, then: {do}}, ..., {else: {then: {do}}}]}}}}, ...]

    continue   the next tool            jump    the tool called `to`          fail    the step fails
    retry      this tool once more      break   the pipeline is over

The tools are the steps of a workflow of their own that is a part of the step: they see what it sees. What the last of
them gave that is no `noop` is what the step gives. A failure that no rule speaks of fails the step, and a jump back
takes one of JUMPS_MAX, so that every pipeline ends.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Sequence
from resile.dialects.noetl.arcs import END, none_of, read_set
from resile.dialects.noetl.event_cases import Follow
from resile.dialects.noetl.keys import TASK_ELSE, TASK_POLICY, TASK_RULE, TASK_SPEC, TASK_THEN
from resile.dialects.noetl.retry import ATTEMPTS_DEFAULT, again_rules, backoff_of
from resile.dialects.noetl.tools.tool import labelled, read_tool
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.model.builtin_actions import Case, Effect
from resile.model.rules import Origin, Rule
from resile.model.workflow import Arc, Child, Condition, Noop, Step, Workflow

JUMPS_MAX = 1_000
PREVIOUS = "iter._prev"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


def is_pipeline(step: Mapping) -> bool:
    """Is the tool of a step several, or one with rules of its own?"""
    given = step.entries.get("tool")
    node = given[1] if given is not None else None
    if not isinstance(node, Sequence):
        return isinstance(node, Mapping) and "spec" in node.entries
    only = node.items[0] if len(node.items) == 1 else None
    if not isinstance(only, Mapping):
        return True
    inner = next(iter(only.entries.values()))[1] if len(only.entries) == 1 and "kind" not in only.entries else only
    return isinstance(inner, Mapping) and "spec" in inner.entries


def read_pipeline(reading: NoetlReading, step: Mapping) -> Child | None:
    """The tools of a step, as a part of it; None after a report."""
    key, node = step.entries["tool"]
    owner, before = reading.owner, len(reading.report.errors)
    tasks: dict[str, Node] = {}
    for number, item in enumerate(node.items if isinstance(node, Sequence) else [node], 1):
        label, tool = labelled(reading, item, number)
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
    steps = tuple(task for task in made if task is not None)
    if len(reading.report.errors) > before or not steps:
        return None
    workflow = Workflow(
        name=owner,
        dialect="noetl",
        file=reading.source.file,
        folder=reading.source.folder,
        steps=steps,
        end=Step(name=END, action=Noop()),
        templates="jinja",
        loops_max=JUMPS_MAX,
    )
    return Child("", workflow, shares=True)


def _read_task(reading: NoetlReading, label: str, tasks: dict[str, Node], after: str) -> Step | None:
    """One tool with its rules; `after` is the one that it leads to."""
    from resile.dialects.noetl.step import plain, read_follow, tool_arguments, tool_step

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
    # What only decides where to go gives nothing itself.
    follow = Follow(effects=[] if tool.kind == "noop" else [Effect(kind="set", name=PREVIOUS, value=label)])
    ways: list[Condition] = []
    if "spec" in node.entries:
        _read_spec(reading, node.entries["spec"][1], tasks, after, follow, ways)
    follow.arcs.append(Arc(after, none_of(tuple(ways)) if ways else None))
    args, tool = tool_arguments(reading, {}, tool, follow)
    read_follow(reading, {}, tool, bare, label, follow)
    step, transform = tool_step(reading, label, tool, args, follow)
    return plain(replace(step, origin=Origin(node.line, node.column)), transform, follow)


def _read_spec(
    reading: NoetlReading, node: Node, tasks: dict[str, Node], after: str, follow: Follow, ways: list[Condition]
) -> None:
    """The rules of a tool; `ways` are the conditions under which one of them says where to go."""
    spec = read_keys(reading, node, TASK_SPEC)
    policy = read_keys(reading, spec["policy"], TASK_POLICY) if "policy" in spec else {}
    rules: Node | None = policy.get("rules")
    if "policy" in spec and not isinstance(rules, Sequence):
        wrong(reading, rules or spec["policy"], "a mapping with a list of `rules`")
    for item in rules.items if isinstance(rules, Sequence) else []:
        fields = read_keys(reading, item, TASK_RULE)
        if "else" in fields:
            if "when" in fields or "then" in fields or not isinstance(rules, Sequence) or item is not rules.items[-1]:
                reading.report.error("conflict", "`else` stands alone, and last", item)
            fields = {**read_keys(reading, fields["else"], TASK_ELSE), "when": "true"}
        if "when" not in fields or "then" not in fields:
            if isinstance(item, Mapping) and not ({"when", "then"} <= item.entries.keys() or "else" in item.entries):
                reading.report.error("value", "a rule needs `when` and `then`, or `else`", item)
            continue
        follow.cases.append(Case(fields["when"], True))
        _read_then(reading, fields["then"], tasks, after, follow, ways)
    if policy.get("on_unmatched") == "continue":
        place = Origin(node.line, node.column)
        follow.rules.append(Rule(then="tolerate", text="on_unmatched", limit=JUMPS_MAX, origin=place))


def _read_then(
    reading: NoetlReading, node: Node, tasks: dict[str, Node], after: str, follow: Follow, ways: list[Condition]
) -> None:
    """What follows where the last of the cases holds."""
    fields: dict[str, Any] = read_keys(reading, node, TASK_THEN)
    if not isinstance(node, Mapping):
        return
    number, origin = len(follow.cases) - 1, Origin(node.line, node.column)
    asked = Condition(str(number), "case", origin)
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
        follow.effects.append(Effect(kind="fail", value=f"{text} of `{reading.owner}`", case=number))
    elif do == "retry":
        wait = backoff_of(reading, fields)
        follow.effects.append(Effect(kind="again", value={}, case=number))
        follow.rules += again_rules(fields, str(number), origin, wait)
        limit = int(fields.get("max_attempts", ATTEMPTS_DEFAULT)) - 1
        if limit:
            follow.rules.append(Rule(then="retry", text=text, when=asked, limit=limit, wait=wait, routing=True,
                                     retries_anyway=True, origin=origin))  # fmt: skip
    else:
        target = END if do == "break" else after
        if do == "jump":
            target = str(fields.get("to", ""))
            if target not in tasks:
                hint = did_you_mean(target, tasks, "tools")
                reading.report.error("unknown-step", f"there is no tool `{shorten(target)}` here", node, hint=hint)
                return
        ways.append(asked)
        follow.arcs.append(Arc(target, asked))
        follow.rules.append(Rule(then="tolerate", text=text, when=asked, limit=JUMPS_MAX, origin=origin))
