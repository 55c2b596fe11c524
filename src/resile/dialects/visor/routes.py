"""What follows a Visor step: `on_fail` becomes rules, `on_success` actions, and names are kept to be looked at.

    retry, with run  ->  goto  ->  continue_on_failure, or the failure stands

Each of them costs 1 of the loop budget. A remedy that names the step it is called for as its `goto` says what happens
anyway: that step runs again by itself.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.routes import read_routes
from resile.dialects.native.step import Named, Within
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import filled, text, wrong
from resile.dialects.visor.conditions import HALTED
from resile.dialects.visor.keys import CALL, ON_FAIL, TRANSITION
from resile.dialects.visor.values import Call, VisorReading
from resile.errors import shorten
from resile.model.failure import FailureKind
from resile.model.limits import LOOPS_MAX
from resile.model.rules import Backoff, Match, Origin, Repair, Rule, SuccessActions, Transition

JITTER = 0.15
Places = dict[str, Origin]
"""Where keys stand, by their names."""
_NAME = filled(text, "the name of a step")
# What is left where a failed condition is not to be tried again.
_NOT_LOGICAL: tuple[FailureKind, ...] = ("exit", "signal", "timeout", "oom", "lost", "spawn")


def calls_of(reading: Reading, node: Node) -> tuple[Call, ...]:
    """The entries of a `run` list."""
    items = node.items if isinstance(node, Sequence) else [node]
    return tuple(call for item in items if (call := _call(reading, item)) is not None)


def _call(reading: Reading, node: Node) -> Call | None:
    """One entry: a name, or a mapping that says what is called and how."""
    if isinstance(node, Scalar):
        return None if _NAME(reading, node) is INVALID else Call("step", node.text, node)
    fields = read_keys(reading, node, CALL)
    if not isinstance(node, Mapping):
        return None
    given = [kind for kind in ("step", "tool", "workflow") if kind in fields]
    if len(given) != 1:
        reading.report.error("value", "a call needs `step`, `tool` or `workflow`, one of them", node)
        return None
    target = fields[given[0]]
    if not isinstance(target, Scalar) or _NAME(reading, target) is INVALID:
        if not isinstance(target, Scalar):
            wrong(reading, target, "a name")
        return None
    return Call(given[0], target.text, target, fields.get("with", {}), fields.get("as", ""))


def is_plain(calls: tuple[Call, ...]) -> bool:
    """Are these just names of steps?"""
    return all(call.kind == "step" and not call.args and not call.alias for call in calls)


def _transitions(reading: Reading, node: Node) -> tuple[tuple[Transition, Scalar | None], ...]:
    """Pairs of a condition and a target, each with the node of its target."""
    if not isinstance(node, Sequence):
        wrong(reading, node, "a list of {when, to}")
        return ()
    result: list[tuple[Transition, Scalar | None]] = []
    for item in node.items:
        fields = read_keys(reading, item, TRANSITION)
        for key in ("when", "to"):
            if isinstance(item, Mapping) and key not in item.entries:
                reading.report.error("value", f"a transition needs `{key}`", item)
        target = fields.get("to")
        if "when" not in fields or target is None:
            continue
        if isinstance(target, Scalar) and target.value is None:
            result.append((Transition(fields["when"]), None))
        elif not isinstance(target, Scalar):
            wrong(reading, target, "a step's name or null")
        elif _NAME(reading, target) is not INVALID:
            result.append((Transition(fields["when"], target.text), target))
    return tuple(result)


def name_calls(reading: VisorReading, calls: tuple[Call, ...]) -> None:
    """A step that is called with arguments is named as much as any other that is called."""
    reading.scope.named += [Named(reading.owner, "run", call.node) for call in calls if call.kind == "step"]


def routes_of(reading: VisorReading, fields: dict[str, Any]) -> dict[str, Any]:
    """The routing keys as the native reader of routes takes them; calls that are more than names stay apart."""
    found: dict[str, Any] = {key: fields[key] for key in ("run_js", "goto_js") if key in fields}
    target = fields.get("goto")
    if isinstance(target, Scalar):
        if _NAME(reading, target) is not INVALID:
            found["goto"] = target
    elif target is not None:
        wrong(reading, target, "a step's name")
    if "transitions" in fields:
        found["transitions"] = _transitions(reading, fields["transitions"])
    if "run" in fields:
        calls = calls_of(reading, fields["run"])
        if is_plain(calls):
            found["run"] = tuple((call.name, call.node) for call in calls)
        else:
            found["calls"] = calls
            name_calls(reading, calls)
    return found


def read_failure(reading: VisorReading, node: Node | None, defaults: Node | None) -> tuple[dict[str, Any], Places]:
    """`on_fail` over the defaults of the file: each key of its own replaces that of the default; null has none.

    The second part says where each key stands.
    """
    if isinstance(node, Scalar) and node.value is None:
        return {}, {}
    if node is None and defaults is None:
        return {}, {}
    for given in (node, defaults):
        if given is not None and not isinstance(given, Mapping):
            reading.report.error("type", f"on_fail must be a mapping, not {describe(given)}", given)
            return {}, {}
    entries = {
        **(defaults.entries if isinstance(defaults, Mapping) else {}),
        **(node.entries if isinstance(node, Mapping) else {}),
    }
    place = node if node is not None else defaults
    assert place is not None
    merged = Mapping(entries, place.line, place.column)
    return read_keys(reading, merged, ON_FAIL), {name: reading.origin(key) for name, (key, _) in entries.items()}


def drop_jump(reading: VisorReading, fields: dict[str, Any]) -> dict[str, Any]:
    """A remedy does not jump: the step that called for it runs again by itself."""
    target = fields.get("goto")
    if reading.owner not in reading.remedies or target is None:
        return fields
    message = f"`{shorten(reading.owner)}` runs as a remedy, so it does not go back"
    reading.report.notice("goto", message, target, hint="the step that called for it runs again by itself")
    return {key: value for key, value in fields.items() if key not in ("goto", "transitions")}


def rules_of(
    reading: VisorReading,
    fields: dict[str, Any],
    places: Places,
    *,
    by_default: frozenset[str],
    logical_only_once: bool,
    tolerated_at: Origin | None,
    halted_at: Origin | None,
) -> tuple[list[Rule], tuple[Call, ...]]:
    """The ladder of a step, and the calls of its remedy that need steps of their own.

    The last two are where the step says that its failure is tolerated, and that it ends everything.
    """
    routes = drop_jump(reading, routes_of(reading, fields))
    target, calls, transitions = read_routes(reading, routes, Within(), by_default)
    own: tuple[Call, ...] = routes.get("calls", ())
    rules = [_halt(halted_at)] if halted_at is not None else []
    retry, code = fields.get("retry", {}), fields.get("run_js", "")
    limit = retry.get("max", 0)
    if limit or calls or code or own:
        repair = Repair(calls=calls, calls_js=code, on_failure="fail") if calls or code or own else None
        runs = f"run {', '.join(calls or (call.name for call in own))}" if calls or own else "run_js"
        words = f"retry {limit}" + (f" after {runs}" if repair else "") if limit else runs
        match = Match(kinds=_NOT_LOGICAL) if logical_only_once else Match()
        rules.append(
            Rule(then="retry", text=words, match=match, limit=limit or 1, wait=_wait(retry), repair=repair, cost=1,
                 routing=True, retries_anyway=bool(limit), origin=_first(places, "retry", "run", "run_js"))
        )  # fmt: skip
    code_to = fields.get("goto_js", "")
    if target or transitions or code_to:
        goes = f"goto {target}" if target else "goto_js" if code_to else "transitions"
        rules.append(
            Rule(then="goto", text=goes, target=target, target_js=code_to, transitions=transitions, limit=LOOPS_MAX,
                 cost=1, routing=True, origin=_first(places, "goto", "goto_js", "transitions"))
        )  # fmt: skip
    if tolerated_at is not None:
        rules.append(Rule(then="tolerate", text="continue_on_failure", origin=tolerated_at))
    return rules, own


def _first(places: Places, *names: str) -> Origin:
    """Where the first of these keys stands."""
    return next(places[name] for name in names if name in places)


def _halt(origin: Origin) -> Rule:
    """A condition that ends everything is answered by nothing else."""
    match = Match(kinds=("check",), pattern=rf"\A{HALTED}")
    return Rule(then="fail", text="halt_execution", match=match, halts=True, origin=origin)


def _wait(retry: dict[str, Any]) -> Backoff | None:
    """The waits between tries; up to 15 % of the first one are added to each."""
    given = retry.get("backoff", {})
    seconds = given.get("delay_ms", 0) / 1000
    if not seconds:
        return None
    return Backoff(kind=given.get("mode", "fixed"), initial_seconds=seconds, jitter=JITTER, jitter_of="initial")


def success_of(
    reading: VisorReading, fields: dict[str, Any], origin: Origin
) -> tuple[SuccessActions | None, tuple[Call, ...]]:
    """What follows a success, and the calls that need steps of their own."""
    routes = drop_jump(reading, routes_of(reading, fields))
    target, calls, transitions = read_routes(reading, routes, Within())
    own: tuple[Call, ...] = routes.get("calls", ())
    code, code_to = fields.get("run_js", ""), fields.get("goto_js", "")
    if not (target or calls or transitions or own or code or code_to):
        return None, ()
    # A remedy that asks code where to go pays nothing: it can't go anywhere from there.
    jumps = bool(target or transitions or code_to) and reading.owner not in reading.remedies
    actions = SuccessActions(
        calls=calls,
        calls_js=code,
        target=target,
        target_js=code_to,
        transitions=transitions,
        cost=1 if jumps else 0,
        run_cost=1 if calls or code or own else 0,
        origin=origin,
    )
    return actions, own
