"""One step of a native file: its mapping becomes a model Step, its failure keys become rules."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.base import INVALID, Reading, Text, read_mapping
from resile.dialects.native_keys import ACTIONS, ACTIONS_NOT_YET, ARC, ARCS, STEP
from resile.dialects.native_values import text, wrong
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, shorten
from resile.model.rules import Origin, Rule
from resile.model.workflow import Action, Arc, Need, Noop, Shell, Step

_PASSED_ON = (
    "timeout_seconds", "grace_seconds", "env", "working_dir", "capture", "resources", "when"
)  # fmt: skip
_NOTHING_TO_ADD: dict[str, Any] = {}
_NOT_FOR_END = {
    "needs": "`end` runs after every other step by itself",
    "next": "nothing runs after `end`",
    "when": "`end` runs in every case",
    "park": "`end` is the way out and can't wait for a judgement",
}


class Drafted(Struct, gc=False):
    """A step on its way: names it refers to keep their nodes until all steps are known."""

    step: Step
    node: Mapping
    key: Scalar | Mapping
    needs: tuple[tuple[Need, Scalar], ...] = ()
    arcs: tuple[tuple[Arc, Scalar], ...] = ()


def read_step(reading: Reading, name: str, node: Mapping, key: Scalar | Mapping, program: str) -> Drafted:
    """The step that a mapping describes; what is wrong with it is reported."""
    reading.owner = name
    fields = read_mapping(reading, node, STEP)
    if name == "end":
        _check_end(reading, node)
    action = _action(reading, name, node, key, fields, program)
    origin = Origin(key.line, key.column)
    if len(fields) == 1 and type(action) is Shell:
        return Drafted(Step(name=name, action=action, origin=origin), node, key)
    needs = _needs(reading, fields.get("needs", ()))
    mode: Any = "all"
    arcs: tuple[tuple[Arc, Scalar], ...] = ()
    if "next" in fields:
        mode, arcs = _arcs(reading, fields["next"])
    step = Step(
        name=name,
        action=action,
        arcs_mode=mode,
        rules=_rules(reading, node, fields),
        on_loss="park" if fields.get("on_loss") == "never" else "retry",
        outputs=tuple(path for path, _ in fields.get("outputs", ())),
        origin=origin,
        **{field: fields[field] for field in _PASSED_ON if field in fields},
    )
    return Drafted(step, node, key, needs, arcs)


def _check_end(reading: Reading, node: Mapping) -> None:
    """`end` has no place among the others, so some keys mean nothing there."""
    for name, reason in _NOT_FOR_END.items():
        if name in node.entries:
            reading.report.error("reserved", f"`end` takes no `{name}`: {reason}", node.entries[name][0])


def _action(
    reading: Reading, name: str, node: Mapping, key: Scalar | Mapping, fields: dict[str, Any], program: str
) -> Action:
    """The one thing that a step does."""
    given = [word for word in ACTIONS if word in node.entries]
    if len(given) > 1:
        second = node.entries[given[1]][0]
        reading.report.error("action", f"a step does one thing: `{given[0]}` or `{given[1]}`", second)
    elif not given and not any(word in node.entries for word in ACTIONS_NOT_YET):
        hint = f"give it one of: {', '.join(f'`{word}`' for word in ACTIONS)}"
        reading.report.error("action", f"the step `{shorten(name)}` does nothing", key, hint=hint)
    if "shell" not in fields:
        if "shell_program" in fields and "shell" not in node.entries:
            where = node.entries["shell_program"][0]
            reading.report.error("action", "`shell_program` has no meaning without `shell`", where)
        return Noop()
    command, program = fields["shell"], fields.get("shell_program", program)
    if "${" in command:
        source = node.entries["shell"][1]
        if isinstance(source, Scalar):
            reading.texts.append(Text(name, source, program))
    return Shell(command, program)


def _needs(reading: Reading, given: Any) -> tuple[tuple[Need, Scalar], ...]:
    """Groups of names; `a|b` is one group."""
    result: list[tuple[Need, Scalar]] = []
    seen: set[tuple[str, ...]] = set()
    for value, node in given:
        names = tuple(part.strip() for part in value.split("|"))
        if "" in names or len(set(names)) < len(names):
            reading.report.error("value", f"`{shorten(value)}` is no list of names with `|` in between", node)
        elif names in seen:
            reading.report.warning("duplicate", f"`{shorten(value)}` is needed twice", node, hint="once is enough")
        else:
            seen.add(names)
            result.append((Need(names), node))
    return tuple(result)


def _arcs(reading: Reading, node: Node) -> tuple[Any, tuple[tuple[Arc, Scalar], ...]]:
    """`next` in its four forms: a name, names, arcs, arcs with a mode."""
    mode, items = "all", node
    if isinstance(node, Mapping) and ("mode" in node.entries or "arcs" in node.entries):
        fields = read_mapping(reading, node, ARCS)
        mode = fields.get("mode", "all")
        if "arcs" not in fields:
            reading.report.error("value", "`next` with a mode needs `arcs`", node)
            return mode, ()
        items = fields["arcs"]
    listed = items.items if isinstance(items, Sequence) else [items]
    if not listed:
        reading.report.error("value", "`next` names no step", node)
    arcs = [arc for item in listed if (arc := _arc(reading, item)) is not None]
    return mode, tuple(arcs)


def _arc(reading: Reading, node: Node) -> tuple[Arc, Scalar] | None:
    """One arc: a name, or `{step, when}`."""
    if isinstance(node, Scalar):
        name = text(reading, node)
        return None if name is INVALID else (Arc(name), node)
    if isinstance(node, Sequence):
        wrong(reading, node, "a step's name or {step, when}")
        return None
    fields = read_mapping(reading, node, ARC)
    target = node.entries.get("step")
    if target is None:
        reading.report.error("value", "an arc needs `step`", node)
        return None
    if "step" not in fields or not isinstance(target[1], Scalar):
        return None
    return Arc(fields["step"], fields.get("when")), target[1]


def _rules(reading: Reading, node: Mapping, fields: dict[str, Any]) -> tuple[Rule, ...]:
    """The ladder of a step, in the order of every native file: retry, then tolerate or park."""
    rules: list[Rule] = []
    retry = fields.get("retry", _NOTHING_TO_ADD)
    if retry.get("max"):
        limit = retry["max"]
        rules.append(
            Rule(then="retry", text=f"retry {limit}", limit=limit, wait=retry.get("backoff"), origin=_at(node, "retry"))
        )
    tolerates = fields.get("on_failure") is True
    key = "on_failure" if "on_failure" in node.entries else "on_fail"
    if fields.get("fail_workflow") is False:
        key, tolerates = "fail_workflow", True
    elif fields.get("fail_workflow") is True and tolerates:
        where = node.entries["fail_workflow"][0]
        reading.report.error("conflict", f"`{key}` tolerates the failure, `fail_workflow: true` does not", where)
    if fields.get("park") and tolerates:
        where = node.entries["park"][0]
        message = f"`park` takes every failure that is left, so `{key}` would never apply"
        reading.report.error("conflict", message, where, hint="keep one of them")
    elif fields.get("park"):
        rules.append(Rule(then="park", text="park", origin=_at(node, "park")))
    elif tolerates:
        written = "fail_workflow: false" if key == "fail_workflow" else f"{key}: tolerate"
        rules.append(Rule(then="tolerate", text=written, origin=_at(node, key)))
    return tuple(rules)


def _at(node: Mapping, key: str) -> Origin:
    """Where a key stands."""
    where = node.entries[key][0]
    return Origin(where.line, where.column)
