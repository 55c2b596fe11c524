"""One step of a native file: its mapping becomes a model Step, its failure keys become rules.

The same door for every step: those of the workflow, `end`, and the commands of handlers (`within` says where).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.base import INVALID, Diagnostics, Reading, Source, read_mapping
from resile.dialects.native_keys import ACTIONS, ACTIONS_NOT_YET, ARC, ARCS, STEP
from resile.dialects.native_values import text, wrong
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, shorten
from resile.model.rules import Origin, Rule, SuccessActions
from resile.model.workflow import Action, Agent, Arc, Need, Noop, Python, Shell, Step, Validate

if TYPE_CHECKING:
    from resile.dialects.native_ladder import Answer

_PASSED_ON = ("grace_seconds", "capture", "when", "commit_required")
_LADDER_KEYS = frozenset(
    (
        "retry",
        "park",
        "on_failure",
        "max_attempts",
        "fail_workflow",
        "failure_handler",
        "resources",
        "continue_on_error",
    )
)
_HANGS_ON = frozenset(("on_failure", "on_fail", "max_attempts", "max_retries", "fail_workflow"))
_NOT_FOR_END = {
    "needs": "`end` runs after every other step by itself",
    "next": "nothing runs after `end`",
    "when": "`end` runs in every case",
    "park": "`end` is the way out and can't wait for a judgement",
}
_NOT_IN_A_HANDLER = {
    "needs": "its commands run in the order in which they are written",
    "next": "its commands run in the order in which they are written",
    "park": "a handler ends by itself",
}


How = Literal["run", "goto", "transitions"]


class Named(Struct, frozen=True, gc=False):
    """A step of the workflow that another one names; looked at once all steps are known."""

    owner: str
    how: How
    node: Scalar
    by_default: bool = False


class Within(Struct, frozen=True, gc=False):
    """Where a step stands and what it takes over; `before` names the commands before it in a handler."""

    program: str = "sh"
    env: dict[str, str] = {}
    working_dir: str = ""
    before: tuple[str, ...] | None = None


class NativeReading(Reading):
    """A native file being read: what the workflow says for its steps, and what they say about each other.

    `spoken` are the texts in the code of `run_js`: where one is the name of a step, that step counts as named.
    `captured` are names that handlers capture, with the step whose handler it is.
    """

    def __init__(self, source: Source, report: Diagnostics) -> None:
        super().__init__(source, report)
        self.agent: dict[str, Any] = {}
        self.handlers: dict[str, tuple[Rule, ...]] = {}
        self.defaults: Answer | None = None
        self.named: list[Named] = []
        self.spoken: set[str] = set()
        self.captured: dict[str, str] = {}


class Drafted(Struct, gc=False):
    """A step on its way: names it refers to keep their nodes until all steps are known."""

    step: Step
    node: Mapping
    key: Scalar | Mapping
    needs: tuple[tuple[Need, Scalar], ...] = ()
    arcs: tuple[tuple[Arc, Scalar], ...] = ()


def read_step(reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, within: Within) -> Drafted:
    """The step that a mapping describes; what is wrong with it is reported."""
    fields = read_mapping(reading, node, STEP)
    _check_place(reading, name, node, within)
    program = fields.get("shell_program", within.program)
    action = _action(reading, name, node, key, fields, program)
    origin = Origin(key.line, key.column)
    if len(fields) == 1 and type(action) is Shell and within.before is None and reading.defaults is None:
        return Drafted(Step(name=name, action=action, origin=origin), node, key)
    needs = _needs(reading, fields.get("needs", ()))
    mode: Any = "all"
    arcs: tuple[tuple[Arc, Scalar], ...] = ()
    if "next" in fields:
        mode, arcs = _arcs(reading, fields["next"])
    inner = Within(
        program,
        {**within.env, **fields["env"]} if "env" in fields else within.env,
        fields.get("working_dir", within.working_dir),
        within.before,
    )
    step = Step(
        name=name,
        action=action,
        arcs_mode=mode,
        env=inner.env,
        working_dir=inner.working_dir,
        timeout_seconds=fields.get("timeout_seconds", _agent_time(reading, action)),
        resources=fields["resources"][0] if "resources" in fields else None,
        rules=_rules(reading, node, fields, inner),
        on_success=_on_success(reading, node, fields, inner),
        on_loss="park" if fields.get("on_loss") == "never" else "retry",
        outputs=tuple(path for path, _ in fields.get("outputs", ())),
        origin=origin,
        **{field: fields[field] for field in _PASSED_ON if field in fields},
    )
    return Drafted(step, node, key, needs, arcs)


def _rules(reading: NativeReading, node: Mapping, fields: dict[str, Any], inner: Within) -> tuple[Rule, ...]:
    """The ladder of a step; only a file that has one pays for reading it."""
    if _LADDER_KEYS.isdisjoint(fields) and reading.defaults is None:
        return ()
    from resile.dialects.native_ladder import read_rules

    return read_rules(reading, node, fields, inner)


def _on_success(reading: NativeReading, node: Mapping, fields: dict[str, Any], inner: Within) -> SuccessActions | None:
    """What follows a success."""
    if "on_success" not in fields:
        return None
    from resile.dialects.native_commands import read_success

    return read_success(reading, fields["on_success"], place_of(node, "on_success"), inner)


def _check_place(reading: Reading, name: str, node: Mapping, within: Within) -> None:
    """`end` and the commands of a handler stand apart from the others, so some keys mean nothing there."""
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
    reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, fields: dict[str, Any], program: str
) -> Action:
    """The one thing that a step does."""
    given = [word for word in ACTIONS if word in node.entries]
    if len(given) > 1:
        second = node.entries[given[1]][0]
        reading.report.error("action", f"a step does one thing: `{given[0]}` or `{given[1]}`", second)
    elif not given and not any(word in node.entries for word in ACTIONS_NOT_YET):
        hint = f"give it one of: {', '.join(f'`{word}`' for word in ACTIONS)}"
        reading.report.error("action", f"the step `{shorten(name)}` does nothing", key, hint=hint)
    word = given[0] if given else "noop"
    if word not in ("shell", "validate") and "shell_program" in fields:
        where = node.entries["shell_program"][0]
        reading.report.error("action", "`shell_program` has no meaning without `shell`", where)
    if word in ("noop", "write_file", "http") and fields.get("commit_required"):
        where = node.entries["commit_required"][0]
        reading.report.error("action", f"`commit_required` has no meaning for `{word}`, which makes no commit", where)
    if word != "python" and "inputs" in fields:
        reading.report.error("action", "`inputs` has no meaning without `python`", node.entries["inputs"][0])
    field = "agent" if word == "claude" else word
    if field not in fields:
        return Noop()
    value = fields[field]
    match field:
        case "agent":
            settings = {name: value for name, value in reading.agent.items() if name != "timeout_seconds"}
            return Agent(value, **settings)
        case "python":
            return _with_inputs(reading, value, node, fields)
        case "write_file" | "http":
            action: Action = value
            return action
        case "noop":
            return Noop()
    source = node.entries[word][1]
    if "${" in value and isinstance(source, Scalar):
        reading.refers(source, program)
    return Shell(value, program) if word == "shell" else Validate(value, program)


def _with_inputs(reading: Reading, action: Python, node: Mapping, fields: dict[str, Any]) -> Python:
    """The code of a step with the inputs that stand beside it."""
    if "inputs" not in fields:
        return action
    if action.inputs:
        hint = "keep one of them"
        reading.report.error("conflict", "`python` has `inputs` already", node.entries["inputs"][0], hint=hint)
    return replace(action, inputs=fields["inputs"])


def _agent_time(reading: NativeReading, action: Action) -> float | None:
    """The time that the workflow gives its agent."""
    return reading.agent.get("timeout_seconds") if isinstance(action, Agent) else None


def _needs(reading: Reading, given: Any) -> tuple[tuple[Need, Scalar], ...]:
    """Groups of names; `a|b` is one group."""
    result: list[tuple[Need, Scalar]] = []
    seen: set[tuple[str, ...]] = set()
    for value, node in given:
        names = tuple(part.strip() for part in value.split("|")) if "|" in value else (value.strip(),)
        if "" in names or (len(names) > 1 and len(set(names)) < len(names)):
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


def place_of(node: Mapping, key: str) -> Origin:
    """Where a key stands."""
    where = node.entries[key][0]
    return Origin(where.line, where.column)


def is_dangling(item: Node) -> str:
    """The `on_failure` of an item in a list of steps that has no action of its own, or an empty text."""
    if not isinstance(item, Mapping) or not item.entries.keys() <= _HANGS_ON:
        return ""
    return next((word for word in ("on_failure", "on_fail") if word in item.entries), "")
