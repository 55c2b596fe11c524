"""One step of a native file: its mapping becomes a model Step, its failure keys become rules.

`read_step` reads all steps: those of the workflow, `end`, and the commands of handlers (`within` tells which).
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, items_of
from resile.dialects.native.context import Defaults, ForEach, NameUse, NativeReading, Needs, StepDraft, place_of
from resile.dialects.native.graph.edges import read_needs
from resile.dialects.native.keys.elsewhere import ACTIONS
from resile.dialects.native.keys.ir import lift_ir
from resile.dialects.native.keys.steps import ARC, ARCS, AS_READ, STEP
from resile.dialects.native.step_types.builtin import ASK_RULE
from resile.dialects.native.step_types.contract import StepType
from resile.dialects.native.step_types.function import capture_of_result, check_beside, check_types
from resile.dialects.native.step_types.registry import BY_KEY
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, read_mapping
from resile.dialects.reading.values import text, wrong
from resile.errors import shorten
from resile.model.builtin_actions import Ask
from resile.model.limits import LOOPS_MAX
from resile.model.workflow import Action, Agent, Arc, FanOut, Function, Need, Noop, Rule, Shell, Step, SuccessActions

_LADDER_KEYS = frozenset((
    "rules", "retry", "park", "on_failure", "on_exit_code", "max_attempts", "fail_workflow", "failure_handler",
    "handler_failure_fatal",
    "resources", "continue_on_error"
))  # fmt: skip
_NOT_FOR_END = {
    "needs": "`end` runs after every other step by itself",
    "next": "nothing runs after `end`",
    "join": "`end` runs once, after every path",
    "when": "`end` runs in every case",
    "park": "`end` is the way out and can't wait for a judgement",
    "ask": "`end` is the way out and can't wait for an answer",
    "critical": "nothing is left to be canceled",
    "foreach": "nothing runs after `end`",
    "fanout": "`end` runs once, after every item",
    "in_order": "`end` runs once, after every item",
    "called_only": "`end` runs in every case",
}
_NOT_IN_A_HANDLER = {
    "needs": "its commands run in the order in which they are written",
    "called_only": "its commands run in the order in which they are written",
    "in_order": "no other runs beside it",
    "next": "its commands run in the order in which they are written",
    "join": "its commands run in the order in which they are written",
    "park": "a handler ends by itself",
    "ask": "a handler ends by itself, and can't wait for an answer",
    "critical": "no other runs beside it",
    "foreach": "a `map` in it runs steps for each item",
    "fanout": "a `map` in it runs steps for each item",
    "function": "functions are steps of the workflow, which `run` can name",
}
_RUNS_NO_PROGRAM = ("reads", "outputs", "commit_required", "resources", "runs_on", "grace", "rerun_on_loss")
_OF_A_VALUE = ("transform", "checks")
_FOR_STEPS_INSIDE = {
    "map": ("capture", *_RUNS_NO_PROGRAM, *_OF_A_VALUE),
    "workflow": (*_RUNS_NO_PROGRAM, "env", "working_dir"),
}
_ONLY_BESIDE = {
    "shell_program": "`shell`",
    "stdin": "`shell`",
    "errexit": "`shell`",
    "inputs": "`python` or `workflow`",
    **dict.fromkeys(("result", "shares", "called", "given"), "`workflow`"),
}
"""Keys that only some actions take, with the actions that messages name."""
_BESIDE_FOREACH = ("max_parallel", "error_policy", "on_finish", "in_turn")


def read_step(reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, within: Defaults) -> StepDraft:
    """Read the step that a mapping describes, and report its errors."""
    origin = reading.origin(key)
    command = _plain_command(reading, node, within) if name != "end" else None
    if command is not None:
        needed = node.entries.get("needs")
        needs: Needs = read_needs(reading, *STEP.keys["needs"].read(reading, needed[1])) if needed else ()
        return StepDraft(Step(name=name, action=command, origin=origin), node, key, needs)
    node = lift_ir(reading, node, STEP)
    fields = read_mapping(reading, node, STEP)
    if not reading.is_checked:
        _check_place(reading, name, node, within)
    inner = _inner(fields, within)
    action = _action(reading, name, node, key, fields, inner)
    needs = read_needs(reading, *fields["needs"]) if "needs" in fields else ()
    if isinstance(action, FanOut) and action.source.step and (action.source.step,) not in (n.any_of for n, _ in needs):
        from resile.dialects.native.fanout import input_of

        needs = (*needs, (Need((action.source.step,)), input_of(node)))
    mode: Any = "all"
    arcs: tuple[tuple[Arc, Scalar], ...] = ()
    if "next" in fields:
        mode, arcs = _arcs(reading, fields["next"])
    rules = _rules(reading, node, fields, inner)
    if isinstance(action, Ask) and not any(rule.then == "park" for rule in rules):
        rules = (Rule(then="park", text=ASK_RULE, limit=LOOPS_MAX, origin=origin), *rules)
    for _, copied in fields.get("copies", ()):
        reading.scope.named.append(NameUse(reading.owner, "run", copied))
    if isinstance(action, Function):
        check_beside(reading, node, action)
        fields["capture"] = capture_of_result(name)
    elif rules:
        check_types(reading, name, node, key, rules)
    agent_seconds = reading.agent.get("timeout_seconds")
    step = Step(
        name=name,
        action=action,
        arcs_mode=mode,
        env=inner.env,
        working_dir=inner.working_dir,
        timeout_seconds=fields.get("timeout_seconds", agent_seconds if isinstance(action, Agent) else None),
        resources=fields["resources"][0] if "resources" in fields else None,
        rules=rules,
        on_success=_on_success(reading, node, fields, inner),
        on_loss="park" if fields.get("on_loss") == "never" else "retry",
        reads=tuple(path for path, _ in fields.get("reads", ())),
        outputs=tuple(path for path, _ in fields.get("outputs", ())),
        runs_on=tuple(dict.fromkeys(label for label, _ in fields.get("runs_on", ()))),
        origin=origin,
        **{field: fields[field] for field in AS_READ if field in fields},
    )
    return StepDraft(
        step, node, key, needs, arcs, _foreach(reading, name, node, fields, inner), fields.get("fanout", "")
    )


def _plain_command(reading: NativeReading, node: Mapping, within: Defaults) -> Shell | None:
    """Fast path for a step with only `shell`, or `shell` and `needs`: large files consist of them."""
    entry = node.entries.get("shell")
    if entry is None or len(node.entries) > (2 if "needs" in node.entries else 1) or reading.defaults is not None:
        return None
    if within.before is not None or within.env or within.working_dir:
        return None
    value = entry[1].value if type(entry[1]) is Scalar else None
    if type(value) is not str or "${" in value or "\0" in value or "\n" in value.strip() or not value.strip():
        return None
    return Shell(value, within.program)


def _inner(fields: dict[str, Any], within: Defaults) -> Defaults:
    """The defaults that commands and steps inside a step inherit from it."""
    if not fields.get("inherit", True):
        within = Defaults(before=within.before, errexit=within.errexit)
    if fields.keys().isdisjoint(("shell_program", "env", "working_dir", "errexit")):
        return within
    return Defaults(
        fields.get("shell_program", within.program),
        {**within.env, **fields["env"]} if "env" in fields else within.env,
        fields.get("working_dir", within.working_dir),
        within.before,
        fields.get("errexit", within.errexit),
    )


def _foreach(
    reading: NativeReading, name: str, node: Mapping, fields: dict[str, Any], inner: Defaults
) -> ForEach | None:
    """Read the keys beside `foreach: true`; report them if it is missing."""
    if not fields.get("foreach") or inner.before is not None or name == "end":
        for word in _BESIDE_FOREACH:
            if word in node.entries:
                hint = f"`{word}` stands inside `map`" if "map" in node.entries and word != "on_finish" else ""
                where = node.entries[word][0]
                reading.report.error("conflict", f"`{word}` has no meaning without `foreach: true`", where, hint=hint)
        return None
    from resile.dialects.native.foreach import read_foreach

    return read_foreach(reading, name, node, fields, inner)


def _rules(reading: NativeReading, node: Mapping, fields: dict[str, Any], inner: Defaults) -> tuple[Rule, ...]:
    """Read the failure rules of a step; load that reader only for files that have any."""
    if _LADDER_KEYS.isdisjoint(fields) and reading.defaults is None:
        return ()
    from resile.dialects.native.failures.ladder import read_rules

    return read_rules(reading, node, fields, inner)


def _on_success(
    reading: NativeReading, node: Mapping, fields: dict[str, Any], inner: Defaults
) -> SuccessActions | None:
    """Read the actions after a success."""
    if "on_success" not in fields:
        return None
    from resile.dialects.native.failures.commands import read_success

    return read_success(reading, fields["on_success"], place_of(reading, node, "on_success"), inner)


def _check_place(reading: Reading, name: str, node: Mapping, within: Defaults) -> None:
    """Refuse keys that have no meaning for `end` or for the commands of a handler."""
    if within.before is not None:
        refused, who = _NOT_IN_A_HANDLER, "a command of a handler"
    elif "continue_on_error" in node.entries:
        hint = "`on_failure: true` lets dependents of a failed step go on"
        where = node.entries["continue_on_error"][0]
        reading.report.error("conflict", "`continue_on_error` has a meaning only in a handler", where, hint=hint)
        return
    elif name == "end":
        refused, who = _NOT_FOR_END, "`end`"
    else:
        return
    for word, reason in refused.items():
        if word in node.entries:
            reading.report.error("reserved", f"{who} takes no `{word}`: {reason}", node.entries[word][0])


def _action(
    reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, fields: dict[str, Any], inner: Defaults
) -> Action:
    """Read the single action of a step."""
    given = [word for word in BY_KEY if word in node.entries]
    if len(given) > 1:
        second = node.entries[given[1]][0]
        reading.report.error("action", f"a step does one thing: `{given[0]}` or `{given[1]}`", second)
    elif not given and ACTIONS.isdisjoint(node.entries):
        hint = f"give it one of: {', '.join(f'`{word}`' for word in BY_KEY)}"
        reading.report.error("action", f"the step `{shorten(name)}` does nothing", key, hint=hint)
    word = given[0] if given else "noop"
    kind = BY_KEY[word]
    if len(fields) > 1 and not reading.is_checked:
        _check_keys(reading, node, fields, word, kind)
    value: Action | None = fields.get(kind.key.name)
    if value is None:
        return Noop()
    if kind.build is not None:
        return kind.build(reading, name, node, fields, inner)
    if word == "map":
        from resile.dialects.native.fanout import read_map

        return read_map(reading, name, fields["map"], inner) or Noop()
    if word == "workflow":
        from resile.dialects.native.child_workflow import read_child

        return read_child(reading, node.entries["workflow"][0], fields) or Noop()
    return value


def _check_keys(reading: Reading, node: Mapping, fields: dict[str, Any], word: str, kind: StepType) -> None:
    """Refuse keys that have no meaning for the action of a step."""
    for key, owners in _ONLY_BESIDE.items():
        if key in fields and key not in kind.beside:
            reading.report.error("action", f"`{key}` has no meaning without {owners}", node.entries[key][0])
    if not kind.makes_commits and fields.get("commit_required"):
        where = node.entries["commit_required"][0]
        reading.report.error("action", f"`commit_required` has no meaning for `{word}`, which makes no commit", where)
    if word == "noop" and not fields.keys().isdisjoint(_OF_A_VALUE):
        where = next(node.entries[key][0] for key in _OF_A_VALUE if key in node.entries)
        reading.report.error("action", "`noop` has no output that could become something", where)
    if word in ("noop", "write_file") and "capture" in node.entries:
        message = f"`capture` has no meaning for `{word}`, which prints nothing"
        reading.report.error("action", message, node.entries["capture"][0])
    _check_steps_inside(reading, node, fields, word)


def _check_steps_inside(reading: Reading, node: Mapping, fields: dict[str, Any], word: str) -> None:
    """Refuse keys that have no meaning for a step that only runs other steps; a workflow's result may be a value."""
    keys = _FOR_STEPS_INSIDE.get(word, ())
    if word == "workflow" and [capture.form for capture in fields.get("capture", ())] != ["value"]:
        keys = ("capture", *keys)
    if word == "workflow" and "transform" not in fields:
        keys = ("capture", "checks", *keys)
    for key in dict.fromkeys(keys):
        if key in node.entries:
            hint = "write it at the steps inside"
            message = f"`{key}` has no meaning for `{word}`, which runs no program of its own"
            reading.report.error("action", message, node.entries[key][0], hint=hint)


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
    if not items_of(items):
        reading.report.error("value", "`next` names no step", node)
    arcs = [arc for item in items_of(items) if (arc := _arc(reading, item)) is not None]
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
    return Arc(fields["step"], fields.get("when"), fields.get("args", {})), target[1]
