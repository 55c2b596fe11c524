"""One step of a Visor file: its type, its keys, and what follows it become a draft.

    type -> table of keys -> action, value and conditions of the step -> rules, success actions, items

Calls with arguments, tools and workflows need other steps to be known; they wait in the draft (visor_calls).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.failures.error_policy import Policy
from resile.dialects.native.foreach import finishing
from resile.dialects.native.step import Drafted, ForEach, Within
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import wrong
from resile.dialects.visor.actions import action_of, time_of, transform_of
from resile.dialects.visor.conditions import checks_of, condition_of
from resile.dialects.visor.keys import ON_FINISH, ON_INIT, ON_SUCCESS, STEP_INPUT, STEPS, TYPES, TYPES_REFUSED
from resile.dialects.visor.routes import calls_of, name_calls, read_failure, rules_of, success_of
from resile.dialects.visor.schemas import read_schema
from resile.dialects.visor.values import Call, VisorReading
from resile.errors import shorten
from resile.model.builtin_actions import Check, Script, Transform
from resile.model.fanout import ErrorPolicy
from resile.model.limits import LOOPS_MAX
from resile.model.rules import Origin, Rule, SuccessActions
from resile.model.workflow import Action, Capture, Need, Noop, Step

REDUCED = ("log", "memory", "script", "workflow", "noop")
"""Types that run once below a `forEach`, unless they say otherwise."""


class Settings(Struct, frozen=True):
    """What the file says for all its steps."""

    conditions: dict[str, Check] = {}
    conditions_at: Origin = Origin()
    remark: str = ""
    on_fail: Node | None = None
    namespace: str = "default"
    fail_fast: bool = False
    gated: bool = True


class Draft(Struct):
    """A step on its way, with what it calls that is more than the name of a step."""

    drafted: Drafted
    kind: str
    fields: dict[str, Any]
    before: tuple[Call, ...] = ()
    remedy: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()


def read_step(reading: VisorReading, name: str, key: Scalar | Mapping, node: Mapping, settings: Settings) -> Draft:
    """The step that a mapping describes; what is wrong with it is reported."""
    reading.owner = name
    kind = _kind(reading, node)
    if not kind:
        return Draft(Drafted(Step(name=name, action=Noop()), Mapping({}, node.line, node.column), key), "", {})
    fields = read_keys(reading, node, STEPS[kind])
    schema = read_schema(reading, fields.get("schema"), for_agent=kind in ("ai", "claude-code"))
    origin = reading.origin(key)
    action = action_of(reading, kind, node, fields, schema, settings.namespace)
    transform = transform_of(kind, fields, schema)
    checks = checks_of(reading, fields, settings.conditions, settings.remark)
    if isinstance(action, Noop) and kind == "noop" and (checks or transform is not None):
        # Nothing is done, and what that gives is looked at.
        action, transform = Script("return null"), transform or Transform()
    _check_keys(reading, node, fields)
    rules, remedy = _rules(reading, kind, node, fields, settings)
    success, after = _success(reading, node, fields)
    step = Step(
        name=name,
        action=action,
        when=condition_of(fields, origin, gated=settings.gated and name not in reading.remedies),
        rules=tuple(rules),
        on_success=success,
        timeout_seconds=time_of(kind, fields),
        env=fields.get("env", {}),
        capture=(Capture(name, "value"),) if transform is not None else (),
        critical=settings.fail_fast,
        transform=transform,
        checks=checks,
        tags=fields.get("tags", ()),
        events=fields.get("events", ()),
        group=fields.get("group", ""),
        origin=origin,
    )
    kept = {word: node.entries[word] for word in ("fanout",) if word in node.entries}
    drafted = Drafted(
        step,
        Mapping(kept, node.line, node.column),
        key,
        _needs(reading, fields),
        foreach=_foreach(reading, name, node, fields),
        fanout=_fanout(kind, fields),
    )
    return Draft(drafted, kind, fields, _before(reading, node, fields), remedy, after)


def _kind(reading: VisorReading, node: Mapping) -> str:
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
    """Keys that mean nothing beside others."""
    report = reading.report
    if "on_finish" in fields and not fields.get("forEach"):
        message = f"`{shorten(reading.owner)}` has `on_finish` but `forEach` is not true"
        report.error("conflict", message, node.entries["on_finish"][0], hint="`on_success` follows any step")
    if fields.get("reduce") and fields.get("fanout") == "map":
        _conflict(reading, node, "reduce", "`reduce: true` and `fanout: map` contradict each other")
    if "inputs" in fields:
        _inputs(reading, fields["inputs"])


def _conflict(reading: VisorReading, node: Mapping, word: str, message: str) -> None:
    """Report a key that means nothing here."""
    reading.report.error("conflict", message, node.entries[word][0], hint=f"take `{word}` out")


def _inputs(reading: VisorReading, node: Node) -> None:
    """Inputs that a step names; each is the workflow's of the same name, which it sees anyway."""
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
) -> tuple[list[Rule], tuple[Call, ...]]:
    """The ladder of a step."""
    if kind == "human-input":
        if "on_fail" in node.entries:
            _conflict(reading, node, "on_fail", "a question does not fail: it waits for its answer")
        return [Rule(then="park", text="human-input", limit=LOOPS_MAX, origin=reading.origin(node))], ()
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
        tolerated_at=reading.origin(node.entries[tolerant[0]][0]) if tolerates else None,
        halted_at=_halted_at(reading, node, settings),
    )


def _halted_at(reading: VisorReading, node: Mapping, settings: Settings) -> Origin | None:
    """Where a condition stands that ends everything, if the step or the file has one."""
    own = node.entries.get("failure_conditions")
    given = [(name, pair) for name, pair in own[1].entries.items()] if own and isinstance(own[1], Mapping) else []
    for _, (key, value) in given:
        said = value.entries.get("halt_execution") if isinstance(value, Mapping) else None
        if said is not None and isinstance(said[1], Scalar) and said[1].value is True:
            return reading.origin(key)
    of_all = [name for name, check in settings.conditions.items() if check.effect == "halt"]
    replaced = {name for name, _ in given}
    return settings.conditions_at if any(name not in replaced for name in of_all) else None


def _success(
    reading: VisorReading, node: Mapping, fields: dict[str, Any]
) -> tuple[SuccessActions | None, tuple[Call, ...]]:
    """What follows a success."""
    if "on_success" not in fields:
        return None, ()
    return success_of(
        reading, read_keys(reading, fields["on_success"], ON_SUCCESS), reading.origin(node.entries["on_success"][0])
    )


def _before(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> tuple[Call, ...]:
    """What runs before the step."""
    if "on_init" not in fields:
        return ()
    given = read_keys(reading, fields["on_init"], ON_INIT)
    if "run" not in given:
        reading.report.error("value", "`on_init` needs `run`", node.entries["on_init"][0])
        return ()
    calls = calls_of(reading, given["run"])
    name_calls(reading, calls)
    return calls


def _foreach(reading: VisorReading, name: str, node: Mapping, fields: dict[str, Any]) -> ForEach | None:
    """What a producer of items says about them."""
    if not fields.get("forEach"):
        return None
    on_finish = None
    if "on_finish" in fields:
        reading.owner = finishing(name)
        given = read_keys(reading, fields["on_finish"], ON_FINISH)
        on_finish, own = success_of(reading, given, reading.origin(node.entries["on_finish"][0]))
        reading.owner = name
        if own:
            reading.report.error("run", "`on_finish` can run steps by name only", node.entries["on_finish"][0])
    policy = Policy(ErrorPolicy(on_item_failure="carry_on"))
    return ForEach(Within(), reading.origin(node.entries["forEach"][0]), policy, on_finish=on_finish)


def _fanout(kind: str, fields: dict[str, Any]) -> str:
    """How a step behaves below a `forEach`; whether it stands below one is looked at later."""
    if fields.get("reduce"):
        return "reduce"
    return str(fields.get("fanout", "reduce" if kind in REDUCED else "map"))


def _needs(reading: VisorReading, fields: dict[str, Any]) -> tuple[tuple[Need, Scalar | Mapping], ...]:
    """Groups of names; `a|b` is one group."""
    result: dict[tuple[str, ...], tuple[Need, Scalar | Mapping]] = {}
    for value, node in fields.get("depends_on", ()):
        names = tuple(dict.fromkeys(part.strip() for part in value.split("|")))
        if "" in names:
            reading.report.error("value", f"`{shorten(value)}` is no list of names with `|` in between", node)
        else:
            result.setdefault(names, (Need(names), node))
    return tuple(result.values())


def with_action(draft: Draft, action: Action) -> Draft:
    """The draft with another action."""
    draft.drafted = replace(draft.drafted, step=replace(draft.drafted.step, action=action))
    return draft
