"""One step of a Visor file: its type, keys and routes become the keys of a native step.

    type -> key table -> action, value and conditions of the step -> rules, actions after a success, items

Calls with arguments, of tools and of workflows need the other steps; they stay in the draft (calls.py).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import Part, StepPart, flag
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import wrong
from resile.dialects.visor.actions import action_of, time_of, transform_of
from resile.dialects.visor.conditions import Checks, checks_of, conditions_of
from resile.dialects.visor.keys import ON_FINISH, ON_INIT, ON_SUCCESS, STEP_INPUT, STEPS, TYPES, TYPES_REFUSED
from resile.dialects.visor.routes import Routes, calls_of, read_failure, rules_of, success_of
from resile.dialects.visor.schemas import read_schema
from resile.dialects.visor.values import Call, VisorReading
from resile.dialects.visor.workflows import child_of
from resile.errors import shorten
from resile.model.limits import LOOPS_MAX

REDUCED = ("log", "memory", "script", "workflow", "noop")
"""Types that run once below a `forEach` by default."""
_NOTHING = {"script": "return null"}
"""An action without output: for `noop` steps with a value, and for steps whose own action has an error."""


class Settings(Struct, frozen=True):
    """The settings of the file for all its steps."""

    conditions: Checks = {}
    conditions_at: Place | None = None
    remark: str = ""
    on_fail: Node | None = None
    namespace: str = "default"
    fail_fast: bool = False
    gated: bool = True


class Draft(Struct):
    """A step before its references are resolved: its native keys, and the parts that depend on other steps.

    `before`, `remedy` and `after` are calls that are more than the name of a step. `jumps` are its own targets of
    jumps, without the defaults; `finish_jumps` are those of `on_finish`.
    """

    name: str
    key: Scalar | Mapping
    keys: StepPart
    fields: dict[str, Any]
    needs: list[Part]
    when: list[Part] = field(default_factory=list)
    foreach: Part | None = None
    fanout: str = ""
    fanout_key: Scalar | None = None
    before: tuple[Call, ...] = ()
    remedy: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()
    jumps: list[Scalar] = field(default_factory=list)
    finish_jumps: list[Scalar] = field(default_factory=list)


def read_step(reading: VisorReading, name: str, key: Scalar | Mapping, node: Mapping, settings: Settings) -> Draft:
    """Read the step that a mapping describes, and report its errors."""
    reading.owner = name
    kind = _kind_of(reading, node)
    if not kind:
        return Draft(name, key, StepPart(key, noop=True), {}, [])
    errors = len(reading.report.errors)
    fields = read_keys(reading, node, STEPS[kind])
    schema = read_schema(reading, fields.get("schema"), for_agent=kind in ("ai", "claude-code"))
    action = action_of(reading, kind, node, fields, schema, settings.namespace)
    if kind == "workflow":
        action = {}
    elif len(reading.report.errors) > errors:
        action = _NOTHING
    transform = transform_of(kind, fields, schema)
    checks = checks_of(reading, fields, settings.conditions, settings.remark)
    if kind == "noop" and (checks or transform is not None):
        action, transform = _NOTHING, transform or {}
    _check_keys(reading, node, fields)
    rules, failure = _rules(reading, kind, node, fields, settings)
    success, follow = _success(reading, node, fields)
    foreach, finish = _foreach(reading, name, node, fields)
    before = _calls_before(reading, node, fields)
    copied = [call.node for call in (*failure.calls, *follow.calls, *before) if call.kind == "step"]
    keys = StepPart(
        key,
        **action,
        rules=rules or None,
        accepts_in_items=True if any(rule["then"] == "tolerate" for rule in rules) else None,
        on_success=success,
        timeout=time_of(kind, fields),
        env=fields.get("env") or None,
        capture={name: "value"} if transform is not None else None,
        critical=settings.fail_fast or None,
        transform=transform,
        checks=checks or None,
        tags=fields.get("tags") or None,
        events=fields.get("events") or None,
        group=fields.get("group") or None,
        copies=copied or None,
    )
    if kind == "workflow":
        keys = _with_child(reading, keys, fields, key)
    return Draft(
        name,
        key,
        keys,
        fields,
        _needs(reading, fields),
        conditions_of(fields, key, gated=settings.gated and name not in reading.remedies),
        foreach,
        _fanout(kind, fields),
        node.entries["fanout"][0] if "fanout" in node.entries else None,
        before,
        failure.calls,
        follow.calls,
        [node for _, node in (*failure.jumps, *follow.jumps)],
        [node for _, node in finish.jumps],
    )


def _with_child(reading: VisorReading, keys: StepPart, fields: dict[str, Any], key: Scalar | Mapping) -> StepPart:
    """Add the called workflow to a step, or an action without output after a report."""
    target = fields.get("workflow")
    child: dict[str, Any] | None = None
    if target is None:
        reading.report.error("value", "a `workflow` step needs `workflow`", key)
    elif not isinstance(target, Scalar) or not isinstance(target.value, str):
        wrong(reading, target, "the name of a workflow")
    else:
        child = child_of(reading, target, fields.get("args", {}))
    return keys.replace(**(child or _NOTHING))


def _kind_of(reading: VisorReading, node: Mapping) -> str:
    """The type of a step, or an empty text after a report."""
    entry = node.entries.get("type")
    if entry is None:
        return "ai"
    given = entry[1]
    if not isinstance(given, Scalar) or not isinstance(given.value, str):
        wrong(reading, given, "the type of a step")
        return ""
    if given.text in TYPES_REFUSED:
        message = f"`{given.text}` steps are not run by Resile: they need {TYPES_REFUSED[given.text]}"
        hint = "a `command` step can call a program that does it"
        if given.text == "mcp" and "method" in node.entries:
            hint = "a tool of `tools` runs before a step: on_init: {run: [{tool: NAME}]}"
        reading.report.error("not-run", message, given, hint=hint)
        return ""
    if given.text not in TYPES:
        hint = did_you_mean(given.text, TYPES, "types")
        reading.report.error("type", f"there is no type `{shorten(given.text)}`", given, hint=hint)
        return ""
    return TYPES[given.text]


def _check_keys(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> None:
    """Refuse keys that have no meaning beside others."""
    report = reading.report
    if "on_finish" in fields and not fields.get("forEach"):
        message = f"`{shorten(reading.owner)}` has `on_finish` but `forEach` is not true"
        report.error("conflict", message, node.entries["on_finish"][0], hint="`on_success` follows any step")
    if fields.get("reduce") and fields.get("fanout") == "map":
        _conflict(reading, node, "reduce", "`reduce: true` and `fanout: map` contradict each other")
    if "inputs" in fields:
        _inputs(reading, fields["inputs"])


def _conflict(reading: VisorReading, node: Mapping, word: str, message: str) -> None:
    """Report a key that has no meaning here."""
    reading.report.error("conflict", message, node.entries[word][0], hint=f"take `{word}` out")


def _inputs(reading: VisorReading, node: Node) -> None:
    """Check the inputs that a step names: each must be the workflow's input of the same name, which it sees anyway."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to inputs")
        return
    for name, (key, value) in node.entries.items():
        fields = read_keys(reading, value, STEP_INPUT)
        if fields.get("value", name) != name or name not in reading.inputs:
            message = f"`{shorten(name)}` is no input of the workflow of the same name"
            reading.report.error("input", message, key, hint=did_you_mean(name, reading.inputs, "inputs"))


def _rules(
    reading: VisorReading, kind: str, node: Mapping, fields: dict[str, Any], settings: Settings
) -> tuple[list[Part], Routes]:
    """The rules of a step."""
    if kind == "human-input":
        if "on_fail" in node.entries:
            _conflict(reading, node, "on_fail", "a question does not fail: it waits for its answer")
        return [Part(node, then="park", text="human-input", limit=LOOPS_MAX)], Routes({})
    answer, places = read_failure(reading, fields.get("on_fail"), settings.on_fail)
    own = fields.get("on_fail")
    written = own.entries.keys() if isinstance(own, Mapping) else frozenset()
    importance = fields.get("criticality", "policy")
    tolerant = [word for word in ("continue_on_failure", "criticality") if word in fields]
    tolerates = fields.get("continue_on_failure", importance == "info")
    return rules_of(
        reading,
        answer,
        places,
        by_default=frozenset(answer.keys() - written),
        logical_only_once=importance in ("external", "internal"),
        tolerated_at=node.entries[tolerant[0]][0] if tolerates else None,
        halted_at=_halted_at(node, settings),
    )


def _halted_at(node: Mapping, settings: Settings) -> Place | None:
    """The position of a condition that stops the whole run, if the step or the file has one."""
    own = node.entries.get("failure_conditions")
    given = [(name, pair) for name, pair in own[1].entries.items()] if own and isinstance(own[1], Mapping) else []
    for _, (key, value) in given:
        said = value.entries.get("halt_execution") if isinstance(value, Mapping) else None
        if said is not None and isinstance(said[1], Scalar) and said[1].value is True:
            return key
    of_all = [name for name, check in settings.conditions.items() if check.get("effect") == "halt"]
    replaced = {name for name, _ in given}
    return settings.conditions_at if any(name not in replaced for name in of_all) else None


def _success(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> tuple[Part | None, Routes]:
    """Translate the actions after a success."""
    if "on_success" not in fields:
        return None, Routes({})
    return success_of(reading, read_keys(reading, fields["on_success"], ON_SUCCESS), node.entries["on_success"][0])


def _calls_before(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> tuple[Call, ...]:
    """The calls that run before the step."""
    if "on_init" not in fields:
        return ()
    given = read_keys(reading, fields["on_init"], ON_INIT)
    if "run" not in given:
        reading.report.error("value", "`on_init` needs `run`", node.entries["on_init"][0])
        return ()
    return calls_of(reading, given["run"])


def _foreach(reading: VisorReading, name: str, node: Mapping, fields: dict[str, Any]) -> tuple[Part | None, Routes]:
    """The fan-out settings of a producer, and the routes of its `on_finish`."""
    if not fields.get("forEach"):
        return None, Routes({})
    on_finish, routes = None, Routes({})
    if "on_finish" in fields:
        # `on_finish` belongs to the fan-out; the step itself may be a remedy.
        reading.owner = ""
        given = read_keys(reading, fields["on_finish"], ON_FINISH)
        on_finish, routes = success_of(reading, given, node.entries["on_finish"][0])
        reading.owner = name
        if routes.calls:
            reading.report.error("run", "`on_finish` can run steps by name only", node.entries["on_finish"][0])
    at = node.entries["forEach"][0]
    policy = {"on_item_failure": "carry_on"}
    return Part(at, foreach=flag(True, at), error_policy=policy, on_finish=on_finish), routes


def _fanout(kind: str, fields: dict[str, Any]) -> str:
    """How a step behaves below a `forEach`; `place_below_items` finds out later whether it is."""
    if fields.get("reduce"):
        return "reduce"
    return str(fields.get("fanout", "reduce" if kind in REDUCED else "map"))


def _needs(reading: VisorReading, fields: dict[str, Any]) -> list[Part]:
    """Read needs; `a|b` is one need."""
    result: dict[tuple[str, ...], Part] = {}
    for value, node in fields.get("depends_on", ()):
        names = tuple(dict.fromkeys(part.strip() for part in value.split("|")))
        if "" in names:
            reading.report.error("value", f"`{shorten(value)}` is no list of names with `|` in between", node)
        else:
            result.setdefault(names, Part(node, any_of=names))
    return list(result.values())
