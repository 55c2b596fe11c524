"""One step of a playbook: its tool, its arguments, its loop and what follows it become a step of the model.

    tool -> action      loop -> a fan-out whose one step is the tool      case, next, retry, vars, sink -> what follows

Of a loop, what is about an item (its retries, its sinks, the values it keeps) belongs to the step that runs for each
item; where the path goes on, and what is said about `loop.done`, to the loop as a whole.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.base import INVALID, did_you_mean
from resile.dialects.noetl_arcs import END, all_of, none_of, read_next, read_set
from resile.dialects.noetl_case import Follow, read_cases
from resile.dialects.noetl_jinja import condition_text, is_template, problem
from resile.dialects.noetl_keys import ASSERT, LOOP, LOOP_SPEC, STEP, TOOLS, WORKBOOK_ENTRY
from resile.dialects.noetl_retry import read_retry
from resile.dialects.noetl_sink import read_sink
from resile.dialects.noetl_tools import Tool, action_of, keys_with_tool, read_tool
from resile.dialects.noetl_values import NoetlReading, data, items
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, shorten
from resile.dialects.visor_values import read_keys
from resile.model.fanout import ErrorPolicy, FanOut, Source
from resile.model.inside import Effect, Transform
from resile.model.rules import Origin, SuccessActions
from resile.model.workflow import Action, Arc, Capture, Child, Condition, Noop, Python, Step

_ROUTERS = ("start", END)


class Loop(Struct, frozen=True):
    """What a step runs for: the list, the name of an item, and how many at a time (0: as many as there is room for)."""

    source: Source
    item: str
    parallel: int


def read_step(reading: NoetlReading, name: str, key: Scalar, node: Mapping) -> Step | None:
    """The step that a mapping describes; None where nothing can be made of it, after a report."""
    reading.owner = name
    node = _without_misplaced(reading, node)
    fields = read_keys(reading, node, keys_with_tool(STEP, node))
    tool = read_tool(reading, node)
    before = len(reading.report.errors)
    if tool is None and not {"tool", "type"} & node.entries.keys() and name.lower() not in _ROUTERS:
        message = f"the step `{shorten(name)}` needs `tool`"
        reading.report.error("value", message, key, hint=f"one of {', '.join(TOOLS)}; `noop` does nothing")
    follow = Follow()
    loop_node: Node | None = fields.get("loop") or (tool.fields.get("loop") if tool is not None else None)
    loop = _read_loop(reading, loop_node) if loop_node is not None else None
    if tool is not None and tool.kind == "iterator":
        loop, tool = _iterated(reading, tool, loop)
    args, tool = _arguments(reading, fields, tool, follow)
    action, transform = action_of(reading, tool) if tool is not None else (Noop(), None)
    _follow(reading, fields, tool, node, name, follow)
    if action is None or len(reading.report.errors) > before:
        action = action or Noop()
    if fields.get("pass"):
        action, transform = Noop(), None
    if isinstance(action, Noop) and (follow.effects or follow.cases):
        # What follows from a step follows from an attempt of it, and so there is one.
        action, transform = Python(source="result = None"), Transform(parse="last")
    timeout = fields.get("timeout", tool.fields.get("timeout") if tool is not None else None)
    step = Step(
        name=name,
        action=action,
        args=args,
        timeout_seconds=timeout,
        env=_environment(tool),
        working_dir=tool.fields.get("cwd", "") if tool is not None else "",
        critical=fields.get("critical", False),
        origin=Origin(key.line, key.column),
    )
    return _looped(step, loop, transform, follow, fields) if loop is not None else _plain(step, transform, follow)


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
        if word in known.keys and word not in STEP.keys:
            hint = "indent it under `tool`"
            reading.report.error("misplaced", f"`{word}` belongs into `tool` of `{reading.owner}`", entry[0], hint=hint)
        else:
            kept[word] = entry
    return Mapping(kept, node.line, node.column)


def _environment(tool: Tool | None) -> dict[str, str]:
    """The variables of a shell tool."""
    given = tool.fields.get("env", {}) if tool is not None and tool.kind == "shell" else {}
    return {name: "" if value is None else str(value) for name, value in given.items()}


def _arguments(
    reading: NoetlReading, fields: dict[str, Any], tool: Tool | None, follow: Follow
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
            tool = _around(tool, called)
    return {**args, **fields.get("args", {})}, tool


def _around(outer: Tool, inner: Tool) -> Tool:
    """A tool that another one calls: what that one says about it comes before its own."""
    kept: dict[str, Any] = {
        word: outer.fields[word] for word in ("retry", "timeout", "assert", "args") if word in outer.fields
    }
    if "args" in kept:
        kept["args"] = {**inner.fields.get("args", {}), **kept["args"]}
    return Tool(inner.kind, {**inner.fields, **kept}, inner.node, inner.kind_node)


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
        _read_sinks(reading, fields["sink"], follow)
    return read_tool(reading, node)


def _follow(
    reading: NoetlReading, fields: dict[str, Any], tool: Tool | None, node: Mapping, name: str, follow: Follow
) -> None:
    """Everything that follows a step."""
    for word in ("vars", "set"):
        if word in fields:
            follow.effects += read_set(reading, node.entries[word][1])
    for given in (fields, tool.fields if tool is not None else {}):
        if "assert" in given:
            _read_assert(reading, given["assert"], follow)
    retries = [fields["retry"]] if "retry" in fields else []
    retries += [tool.fields["retry"]] if tool is not None and "retry" in tool.fields else []
    for retry in retries:
        found = read_retry(reading, retry)
        follow.rules += found.rules
        follow.effects += found.effects
    if "case" in fields:
        read_cases(reading, fields["case"], follow)
    if "sink" in fields:
        _read_sinks(reading, fields["sink"], follow)
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
    arcs = found.arcs
    if found.is_exclusive:
        arcs = _exclusive(arcs)
    follow.arcs += arcs
    follow.effects += found.effects


def _exclusive(arcs: list[Arc]) -> list[Arc]:
    """Arcs of which only the first that holds is taken: each holds only where those before it do not."""
    found: list[Arc] = []
    before: list[Condition] = []
    for arc in arcs:
        when = all_of((*((arc.when,) if arc.when is not None else ()), *((none_of(tuple(before)),) if before else ())))
        found.append(Arc(arc.step, when, arc.args))
        if arc.when is None:
            # Nothing is left for those behind it; they are kept, because they say what the file says.
            before = [Condition("true", "jinja")]
        else:
            before.append(arc.when)
    return found


def _read_sinks(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """The sinks of the step itself."""
    for item in items(node):
        sink = read_sink(reading, item, f"{reading.owner}_sink{len(follow.sinks) + 1}", None)
        follow.sinks += [sink] if sink is not None else []


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


def _plain(step: Step, transform: Transform | None, follow: Follow) -> Step:
    """A step without a loop."""
    is_host = isinstance(step.action, Child)
    return replace(
        step,
        capture=(Capture(step.name, "value"),) if transform is not None else (),
        transform=transform,
        cases=tuple(follow.cases),
        effects=tuple(follow.effects),
        rules=tuple(follow.rules),
        arcs=_asked_arcs(follow.arcs, step.name, is_host and bool(follow.effects)),
        on_success=SuccessActions(steps=tuple(follow.sinks)) if follow.sinks else None,
    )


def _asked_arcs(arcs: list[Arc], name: str, must_ask: bool) -> tuple[Arc, ...]:
    """The arcs of a step; where something else hangs on the question which of them hold, the question is asked."""
    asks = any(arc.when is not None or arc.args for arc in arcs)
    if not must_ask or asks or name == END:
        return tuple(arcs)
    always = Condition("true", "jinja")
    return tuple(replace(arc, when=always) for arc in arcs) or (Arc(END, always),)


def _looped(step: Step, loop: Loop, transform: Transform | None, follow: Follow, fields: dict[str, Any]) -> Step:
    """A step that runs for each item of a list."""
    own = set(range(len(follow.cases))) - follow.of_loop
    inner_effects = [effect for effect in follow.effects if effect.case in own or effect.kind in ("again", "fail")]
    if "case" not in fields:
        inner_effects = [effect for effect in follow.effects if effect.kind in ("again", "fail", "result")]
    outer_effects = [effect for effect in follow.effects if effect not in inner_effects]
    of_items = [sink for sink in follow.sinks if not _is_of(sink.when, follow.of_loop)]
    of_loop = [sink for sink in follow.sinks if sink not in of_items]
    inner = _plain(
        replace(step, name=f"{step.name}_item", critical=False),
        transform,
        Follow(
            cases=follow.cases,
            effects=inner_effects,
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
    outer = _plain(
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
    return replace(outer, arcs=_asked_arcs(list(outer.arcs), step.name, bool(outer_effects)))


def _is_of(when: Condition | None, cases: set[int]) -> bool:
    """Does a condition ask for one of these cases?"""
    return when is not None and when.language == "case" and int(when.source) in cases


def _read_loop(reading: NoetlReading, node: Node) -> Loop | None:
    """The loop of a step."""
    fields = read_keys(reading, node, LOOP)
    if not isinstance(node, Mapping):
        return None
    spec: Node | None = fields.get("spec")
    about = read_keys(reading, spec, LOOP_SPEC) if spec is not None else {}
    merged = {**fields, **({"mode": about["mode"]} if "mode" in about else {})}
    if "max_in_flight" in about:
        merged["concurrency"] = about["max_in_flight"]
    return _loop(reading, merged, node)


def _loop(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> Loop | None:
    """A loop from its fields, however these were written."""
    for word, known in (("in", {"in", "collection"}), ("iterator", {"iterator", "element"})):
        if word not in fields:
            if not known & node.entries.keys():
                reading.report.error("value", f"a loop needs `{word}`", node)
            return None
    source = _source(reading, fields["in"], fields.get("limit", 0))
    if source is None:
        return None
    in_turn = fields.get("mode", "sequential") == "sequential"
    if in_turn and "concurrency" in fields and fields["concurrency"] > 1:
        reading.report.error("conflict", "a sequential loop runs one item at a time", node, hint="mode: async")
    return Loop(source, fields["iterator"], 1 if in_turn else fields.get("concurrency", 0))


def _source(reading: NoetlReading, node: Node, limit: int) -> Source | None:
    """Where the items come from: a template that comes to a list, or the list itself."""
    if isinstance(node, Sequence):
        values = data(reading, node)
        if values is INVALID:
            return None
        if any(is_template(text) for text in _texts(values)):
            reading.report.error("value", "a list of templates must be one: `{{ [a, b] }}`", node)
            return None
        return Source(values=tuple(values), items_max=limit)
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.text.strip():
        reading.report.error("type", "the items of a loop are a list, or a template that comes to one", node)
        return None
    reason = problem(condition_text(node.text))
    if reason:
        reading.report.error("template", f"this is no template that can be rendered: {reason}", node)
        return None
    return Source(template=condition_text(node.text), items_max=limit)


def _texts(value: Any) -> list[str]:
    """Every text in some data."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _texts(part)]


def _iterated(reading: NoetlReading, tool: Tool, loop: Loop | None) -> tuple[Loop | None, Tool | None]:
    """A tool that runs another one for each item."""
    if loop is not None:
        reading.report.error("conflict", "an iterator is a loop: it has none of its own", tool.kind_node)
        return None, None
    found = _loop(reading, tool.fields, tool.node)
    task: Node | None = tool.fields.get("task")
    if not isinstance(task, Mapping):
        reading.report.error("value", "an iterator needs `task`, a mapping with the tool", tool.node)
        return found, None
    if "kind" in task.entries:
        kind = task.entries["kind"]
        task = Mapping({"tool": (kind[0], task)}, task.line, task.column)
    inner = read_tool(reading, task)
    if inner is None and not {"tool", "type"} & task.entries.keys():
        reading.report.error("value", "the task of an iterator needs `tool`", task)
    return found, None if inner is None else _around(tool, inner)
