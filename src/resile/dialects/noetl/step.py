"""One step of a playbook: its tool, its arguments, its loop and what follows it become a step of the model.

    tool -> action      loop -> a fan-out whose one step is the tool      case, next, retry, vars, sink -> what follows

Of a loop, what is about an item (its retries, its sinks, the values it keeps) belongs to the step that runs for each
item; where the path goes on, and what is said about `loop.done`, to the loop as a whole.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.noetl.admission import read_admission
from resile.dialects.noetl.arcs import END, all_of, none_of, read_next, read_set
from resile.dialects.noetl.event_cases import Follow, read_cases, read_sinks
from resile.dialects.noetl.keys import ASSERT, STEP, WORKBOOK_ENTRY
from resile.dialects.noetl.loops import Loop, iterated, read_loop
from resile.dialects.noetl.retry import is_about_failure, read_retry
from resile.dialects.noetl.tools.keys import TOOLS
from resile.dialects.noetl.tools.pipeline import is_pipeline, read_pipeline
from resile.dialects.noetl.tools.sink import in_order
from resile.dialects.noetl.tools.tool import Tool, action_of, around, keys_with_tool, read_tool
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.errors import shorten
from resile.model.builtin_actions import Effect, Transform
from resile.model.fanout import ErrorPolicy, FanOut
from resile.model.rules import Origin, Repair, Rule, SuccessActions
from resile.model.workflow import Action, Arc, Capture, Child, Condition, Noop, Python, Step

_ROUTERS = ("start", END)


def read_step(reading: NoetlReading, name: str, key: Scalar, node: Mapping) -> Step | None:
    """The step that a mapping describes; None where nothing can be made of it, after a report."""
    reading.owner = name
    node = _without_misplaced(reading, node)
    fields = read_keys(reading, node, keys_with_tool(STEP, node))
    follow, child = Follow(), None
    if is_pipeline(node):
        tool, child = None, read_pipeline(reading, node)
    else:
        tool = read_tool(reading, node)
    if tool is None and not {"tool", "type"} & node.entries.keys() and name.lower() not in _ROUTERS:
        message = f"the step `{shorten(name)}` needs `tool`"
        reading.report.error("value", message, key, hint=f"one of {', '.join(TOOLS)}; `noop` does nothing")
    loop = _loop_of(reading, fields, tool)
    is_iterator = tool is not None and tool.kind == "iterator"
    if tool is not None and is_iterator:
        loop, tool = iterated(reading, tool, loop, follow)
    args, tool = tool_arguments(reading, fields.get("args", {}), tool, follow)
    of_items = len(follow.sinks)
    read_follow(reading, fields, tool, node, name, follow)
    if is_iterator:
        follow.whole = {sink.name for sink in follow.sinks[of_items:] if sink.when is None}
    step, transform = tool_step(reading, name, tool, args, follow)
    if fields.get("pass"):
        step, transform = replace(step, action=Noop(), env={}, working_dir=""), None
    elif child is not None:
        step, transform = replace(step, action=child), None
    step = replace(
        step,
        when=read_admission(reading, fields["spec"], name) if "spec" in fields else None,
        timeout_seconds=fields.get("timeout", step.timeout_seconds),
        critical=fields.get("critical", False),
        origin=Origin(key.line, key.column),
    )
    return _looped(step, loop, transform, follow) if loop is not None else plain(step, transform, follow)


def tool_step(
    reading: NoetlReading, name: str, tool: Tool | None, args: dict[str, Any], follow: Follow
) -> tuple[Step, Transform | None]:
    """A step that runs a tool, without what follows it, and what is made of what it prints."""
    action, transform = action_of(reading, tool) if tool is not None else (Noop(), None)
    if isinstance(action, Noop) and (follow.effects or follow.attempts or follow.cases):
        # What follows from a step follows from an attempt of it, and so there is one.
        action, transform = Python(source="result = None"), Transform(parse="last")
    step = Step(
        name=name,
        action=action or Noop(),
        args=args,
        timeout_seconds=tool.fields.get("timeout") if tool is not None else None,
        env=_environment(tool),
        working_dir=tool.fields.get("cwd", "") if tool is not None else "",
    )
    return step, transform


def _loop_of(reading: NoetlReading, fields: dict[str, Any], tool: Tool | None) -> Loop | None:
    """The loop of a step, which may stand in its tool."""
    own: Node | None = fields.get("loop")
    inner: Node | None = tool.fields.get("loop") if tool is not None else None
    if own is not None and inner is not None:
        reading.report.error("conflict", "the step and its tool both have a `loop`", inner, hint="keep one of them")
    given = own or inner
    return read_loop(reading, given) if given is not None else None


def _without_misplaced(reading: NoetlReading, node: Mapping) -> Mapping:
    """The step without fields of its tool that stand beside it by mistake."""
    given = node.entries.get("tool")
    inner = given[1] if given is not None else None
    if not isinstance(inner, Mapping) or "kind" not in inner.entries:
        return node
    kind = inner.entries["kind"][1]
    known = TOOLS.get(kind.text.lower()) if isinstance(kind, Scalar) else None
    if known is None:
        return node
    kept = {}
    for word, entry in node.entries.items():
        if word in known.keys and word not in STEP.keys and known.keys[word].field != "args":
            hint = "indent it under `tool`"
            reading.report.error("misplaced", f"`{word}` belongs into `tool` of `{reading.owner}`", entry[0], hint=hint)
        else:
            kept[word] = entry
    return Mapping(kept, node.line, node.column)


def _environment(tool: Tool | None) -> dict[str, str]:
    """The variables of a shell tool."""
    given = tool.fields.get("env", {}) if tool is not None and tool.kind == "shell" else {}
    return {name: "" if value is None else str(value) for name, value in given.items()}


def tool_arguments(
    reading: NoetlReading, given: dict[str, Any], tool: Tool | None, follow: Follow
) -> tuple[dict[str, Any], Tool | None]:
    """The arguments of a step, its own before its tool's; and the tool, which may be one of the workbook."""
    args = dict(tool.fields.get("args", {})) if tool is not None else {}
    while tool is not None and tool.kind == "workbook":
        called = _from_workbook(reading, tool, follow)
        if called is None or called.kind == "workbook":
            if called is not None:
                reading.report.error("workbook", "an entry of the workbook can't call another one", called.kind_node)
            tool = None
        else:
            args = {**called.fields.get("args", {}), **args}
            tool = around(tool, called)
    return {**args, **given}, tool


def _from_workbook(reading: NoetlReading, tool: Tool, follow: Follow) -> Tool | None:
    """The tool of the workbook that a step calls."""
    wanted = tool.fields.get("name")
    if wanted is None:
        reading.report.error("value", "a workbook tool needs `name`", tool.node)
        return None
    entry = reading.workbook.get(wanted)
    if entry is None:
        hint = did_you_mean(wanted, reading.workbook, "entries")
        reading.report.error("workbook", f"the workbook has no `{shorten(wanted)}`", tool.node, hint=hint)
        return None
    node = entry[1]
    fields = read_keys(reading, node, keys_with_tool(WORKBOOK_ENTRY, node))
    if "assert" in fields:
        _read_assert(reading, fields["assert"], follow)
    if "sink" in fields:
        read_sinks(reading, fields["sink"], follow)
    return read_tool(reading, node)


def read_follow(
    reading: NoetlReading, fields: dict[str, Any], tool: Tool | None, node: Mapping, name: str, follow: Follow
) -> None:
    """Everything that follows a step."""
    for word in ("vars", "set"):
        if word in fields:
            follow.effects += read_set(reading, node.entries[word][1])
    for given in (fields, tool.fields if tool is not None else {}):
        if "assert" in given:
            _read_assert(reading, given["assert"], follow)
    inner: dict[str, Any] = tool.fields if tool is not None else {}
    for word in ("retry", "timeout"):
        if word in fields and word in inner:
            message = f"the step and its tool both have a `{word}`"
            reading.report.error("conflict", message, node.entries[word][0], hint="keep one of them")
    retry: Node | None = fields.get("retry") or inner.get("retry")
    if retry is not None:
        found = read_retry(reading, retry)
        follow.rules += found.rules
        follow.attempts += found.effects
        follow.sinks += found.sinks
    if "case" in fields:
        read_cases(reading, fields["case"], follow)
    if "sink" in fields:
        read_sinks(reading, fields["sink"], follow)
    if "next" in fields:
        _read_ways(reading, fields["next"], follow)
    if name == END and follow.arcs:
        place = node.entries.get("next", node.entries.get("case", (node,)))[0]
        reading.report.error("end", "nothing follows `end`", place, hint="take the arcs of `end` out")
        follow.arcs.clear()


def _read_ways(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """The arcs of the step itself, which are taken where no case led anywhere."""
    cases = tuple(dict.fromkeys(arc.when for arc in follow.arcs if arc.when is not None))
    asked = tuple(Condition(when.source, "case", when.origin) for when in cases if when.language == "case")
    found = read_next(reading, node, (none_of(asked),) if asked else ())
    if asked and found.effects:
        message = "variables that an arc sets can't be told apart from what a case leads to"
        reading.report.error("conflict", message, node, hint="write `set` in the case, or on the step")
    answers = tuple(condition for condition in found.asked if is_about_failure(condition.source))
    # A failure that an arc speaks of is dealt with where that arc is taken, and then no other one is.
    follow.rules += [
        Rule(then="tolerate", text="next", when=answer, limit=1_000, origin=answer.origin) for answer in answers
    ]
    follow.arcs += [_unless(arc, answers) if answers else arc for arc in found.arcs]
    follow.effects += found.effects


def _unless(arc: Arc, answers: tuple[Condition, ...]) -> Arc:
    """An arc that is not taken where one of those is that answer a failure; those are as they are."""
    conditions = (arc.when, *arc.when.besides) if arc.when is not None else ()
    if {condition.source for condition in conditions} & {answer.source for answer in answers}:
        return arc
    return Arc(arc.step, all_of((*((arc.when,) if arc.when is not None else ()), none_of(answers))), arc.args)


def _read_assert(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """What must be among the arguments and in the result."""
    fields = read_keys(reading, node, ASSERT)
    for word, asked, what in (("expects", "{name!r} not in args", "argument"), ("returns", None, "result")):
        for name, _ in fields.get(word, ()):
            text = asked.format(name=name) if asked else f"result is not mapping or {name!r} not in result"
            said = (
                f"assert: there is no {name!r} in the {what}s"
                if word == "expects"
                else f"assert: no {name!r} in the result"
            )
            follow.effects.append(Effect(kind="fail", when=text, value=said))


def plain(step: Step, transform: Transform | None, follow: Follow) -> Step:
    """A step without a loop."""
    capture = (Capture(step.name, "value"),) if transform is not None else ()
    if isinstance(step.action, Child) and (follow.effects or follow.cases):
        # What follows from a playbook follows from its value, which is looked at once it is there.
        transform = Transform()
    return replace(
        step,
        capture=capture,
        transform=transform,
        cases=tuple(follow.cases),
        effects=(*follow.effects, *follow.attempts),
        rules=tuple(_with_sinks(rule, follow.sinks) for rule in follow.rules),
        arcs=tuple(follow.arcs),
        on_success=SuccessActions(steps=in_order(follow.sinks)) if follow.sinks else None,
    )


def _with_sinks(rule: Rule, sinks: list[Step]) -> Rule:
    """A rule that takes an attempt as it is, with the sinks that a success has."""
    if rule.then != "recovered" or not sinks:
        return rule
    steps = {step.name: step for step in (*(rule.repair.steps if rule.repair is not None else ()), *sinks)}
    return replace(rule, repair=Repair(steps=in_order(steps.values()), on_failure="fail"))


def _asked_arcs(arcs: tuple[Arc, ...], name: str) -> tuple[Arc, ...]:
    """The arcs of a step where something else hangs on the question which of them hold: then it is asked."""
    if any(arc.when is not None or arc.args for arc in arcs) or name == END:
        return arcs
    always = Condition("true", "jinja")
    return tuple(replace(arc, when=always) for arc in arcs) or (Arc(END, always),)


def _looped(step: Step, loop: Loop, transform: Transform | None, follow: Follow) -> Step:
    """A step that runs for each item of a list."""
    own = set(range(len(follow.cases))) - follow.of_loop
    inner_effects = [effect for effect in follow.effects if effect.case in own or effect.kind == "fail"]
    outer_effects = [effect for effect in follow.effects if effect not in inner_effects]
    of_loop = [sink for sink in follow.sinks if sink.name in follow.whole or _is_of(sink.when, follow.of_loop)]
    of_items = [sink for sink in follow.sinks if sink not in of_loop]
    inner = plain(
        replace(step, name=f"{step.name}_item", critical=False),
        transform,
        Follow(
            cases=follow.cases,
            effects=inner_effects,
            attempts=follow.attempts,
            rules=[rule for rule in follow.rules if rule.then != "tolerate"],
            sinks=of_items,
        ),
    )
    action: Action = FanOut(
        loop.source,
        (inner,),
        policy=ErrorPolicy(on_item_failure="fail"),
        max_parallel=loop.parallel or None,
        item_name=loop.item,
    )
    outer = replace(step, action=action, args={}, timeout_seconds=None, env={}, working_dir="")
    outer = plain(
        outer,
        None,
        Follow(
            cases=follow.cases,
            effects=outer_effects,
            rules=[rule for rule in follow.rules if rule.then == "tolerate"],
            arcs=follow.arcs,
            sinks=of_loop,
        ),
    )
    return replace(outer, arcs=_asked_arcs(outer.arcs, step.name)) if outer_effects else outer


def _is_of(when: Condition | None, cases: set[int]) -> bool:
    """Does a condition ask for one of these cases?"""
    return when is not None and when.language == "case" and int(when.source) in cases
