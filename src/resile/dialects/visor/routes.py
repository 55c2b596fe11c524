"""Actions after a Visor step: `on_fail` becomes native rules, `on_success` native `on_success`.

    retry, with run  ->  goto  ->  continue_on_failure, or the failure stays

Each of them costs 1 of the loop budget. If a remedy has the step that calls it as its `goto`, the jump is dropped: that
step runs again anyway.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.nodes import Part
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import non_empty, text, wrong
from resile.dialects.visor.conditions import HALTED
from resile.dialects.visor.keys import CALL, ON_FAIL, TRANSITION
from resile.dialects.visor.values import Call, VisorReading
from resile.errors import shorten
from resile.model.limits import LOOPS_MAX

JITTER = 0.15
Places = dict[str, Scalar]
"""Key nodes of a mapping, by name."""
_NAME = non_empty(text, "the name of a step")
# The failure kinds that are retried if failed conditions must not be.
_NOT_LOGICAL = ["exit", "signal", "timeout", "oom", "lost", "spawn"]


class Routes(Struct, frozen=True):
    """Routing keys of one kind: native keys, calls that are more than names, and targets of jumps."""

    keys: dict[str, Any]
    calls: tuple[Call, ...] = ()
    jumps: tuple[tuple[str, Scalar], ...] = ()

    @property
    def leads_back(self) -> bool:
        """Do they have a jump back?"""
        return any(key in self.keys for key in ("goto", "goto_js", "transitions"))

    @property
    def runs(self) -> bool:
        """Do they run steps?"""
        return bool(self.calls) or any(key in self.keys for key in ("run", "run_js"))


def calls_of(reading: Reading, node: Node) -> tuple[Call, ...]:
    """Read the entries of a `run` list."""
    items = node.items if isinstance(node, Sequence) else [node]
    return tuple(call for item in items if (call := _call(reading, item)) is not None)


def _call(reading: Reading, node: Node) -> Call | None:
    """Read one entry: a name, or a mapping with the target and its arguments."""
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


def _transitions(reading: Reading, node: Node) -> list[tuple[Part, Scalar | None]]:
    """Read pairs of a condition and a target, each with the node of its target."""
    if not isinstance(node, Sequence):
        wrong(reading, node, "a list of {when, to}")
        return []
    result: list[tuple[Part, Scalar | None]] = []
    for item in node.items:
        fields = read_keys(reading, item, TRANSITION)
        for key in ("when", "to"):
            if isinstance(item, Mapping) and key not in item.entries:
                reading.report.error("value", f"a transition needs `{key}`", item)
        target = fields.get("to")
        if "when" not in fields or target is None:
            continue
        is_stop = isinstance(target, Scalar) and target.value is None
        if not isinstance(target, Scalar):
            wrong(reading, target, "a step's name or null")
        elif is_stop or _NAME(reading, target) is not INVALID:
            result.append((Part(item, when=fields["when"], to=target), None if is_stop else target))
    return result


def read_routes(reading: VisorReading, fields: dict[str, Any], by_default: frozenset[str] = frozenset()) -> Routes:
    """Translate the routing keys to native ones; drop the jump of a remedy to its caller."""
    keys: dict[str, Any] = {key: fields[key] for key in ("run_js", "goto_js") if key in fields}
    jumps: list[tuple[str, Scalar]] = []
    target = fields.get("goto")
    if isinstance(target, Scalar):
        if _NAME(reading, target) is not INVALID:
            keys["goto"] = target
            jumps.append(("goto", target))
    elif target is not None:
        wrong(reading, target, "a step's name")
    transitions = _transitions(reading, fields["transitions"]) if "transitions" in fields else []
    if transitions:
        keys["transitions"] = [transition for transition, _ in transitions]
        jumps += [("transitions", node) for _, node in transitions if node is not None]
    calls = calls_of(reading, fields["run"]) if "run" in fields else ()
    if "goto" in keys and reading.owner in reading.remedies:
        message = f"`{shorten(reading.owner)}` runs as a remedy, so it does not go back"
        reading.report.notice("goto", message, keys["goto"], hint="the step that called for it runs again by itself")
        keys = {key: value for key, value in keys.items() if key not in ("goto", "transitions")}
        jumps = []
    if any(call.kind != "step" or call.args or call.alias for call in calls):
        return Routes(keys, calls, tuple(jumps))
    # A default remedy of all steps is none for itself.
    if calls and not ("run" in by_default and reading.owner in (call.name for call in calls)):
        keys["run"] = [call.node for call in calls]
    return Routes(keys, (), tuple(jumps))


def read_failure(reading: VisorReading, node: Node | None, defaults: Node | None) -> tuple[dict[str, Any], Places]:
    """Read `on_fail` over the file's defaults: its keys replace those of the default; null removes all.

    The second part has the key nodes, for positions.
    """
    if isinstance(node, Scalar) and node.value is None:
        return {}, {}
    for given in (node, defaults):
        if given is not None and not isinstance(given, Mapping):
            reading.report.error("type", f"on_fail must be a mapping, not {describe(given)}", given)
            return {}, {}
    place = node if node is not None else defaults
    if place is None:
        return {}, {}
    entries = {
        **(defaults.entries if isinstance(defaults, Mapping) else {}),
        **(node.entries if isinstance(node, Mapping) else {}),
    }
    merged = Mapping(entries, place.line, place.column, place.file)
    return read_keys(reading, merged, ON_FAIL), {name: key for name, (key, _) in entries.items()}


def rules_of(
    reading: VisorReading,
    fields: dict[str, Any],
    places: Places,
    *,
    by_default: frozenset[str],
    logical_only_once: bool,
    tolerated_at: Place | None,
    halted_at: Place | None,
) -> tuple[list[Part], Routes]:
    """The native rules of a step, and its routes without default jumps.

    `tolerated_at` and `halted_at` are the positions of the keys that tolerate a failure or stop the whole run.
    """
    routes = read_routes(reading, fields, by_default)
    rules = [_halt_rule(halted_at)] if halted_at is not None else []
    retry = fields.get("retry", {})
    if retry.get("max") or routes.runs:
        rules.append(
            Part(
                _first_place(places, "retry", "run", "run_js"),
                **_retry_keys(retry, routes),
                kinds=_NOT_LOGICAL if logical_only_once else [],
                by_default=["run"] if "run" in by_default else None,
            )
        )
    if routes.leads_back:
        keys = routes.keys
        target = keys.get("goto")
        words = f"goto {target.text}" if target is not None else "goto_js" if "goto_js" in keys else "transitions"
        named = [key for key in ("goto", "transitions") if key in by_default]
        rules.append(
            Part(_first_place(places, "goto", "goto_js", "transitions"), then="goto", text=words, goto=target,
                 goto_js=keys.get("goto_js"), transitions=keys.get("transitions"), limit=LOOPS_MAX, cost=1,
                 routing=True, by_default=named or None)
        )  # fmt: skip
    if tolerated_at is not None:
        rules.append(Part(tolerated_at, then="tolerate", text="continue_on_failure"))
    own = tuple((key, node) for key, node in routes.jumps if key not in by_default)
    return rules, Routes(routes.keys, routes.calls, own)


def _retry_keys(retry: dict[str, Any], routes: Routes) -> dict[str, Any]:
    """The keys of a retry rule, with the steps that run before the retry."""
    limit = retry.get("max", 0)
    repair: dict[str, Any] = {key: routes.keys[key] for key in ("run", "run_js") if key in routes.keys}
    words = f"retry {limit}" if limit else ""
    if routes.runs:
        repair["on_repair_failure"] = "fail"
        named = dict.fromkeys(node.text for node in routes.keys.get("run", ())) or [call.name for call in routes.calls]
        runs = f"run {', '.join(named)}" if named else "run_js"
        words = f"{words} after {runs}" if limit else runs
    wait = _backoff(retry.get("backoff", {}))
    return {"then": "retry", "text": words, "limit": limit or 1, "backoff": wait, **repair, "cost": 1, "routing": True,
            "retries_anyway": True if limit else None}  # fmt: skip


def _first_place(places: Places, *names: str) -> Scalar:
    """The node of the first of these keys that is set."""
    return next(places[name] for name in names if name in places)


def _halt_rule(at: Place) -> Part:
    """The rule for a condition that stops the whole run; it comes before all others."""
    return Part(at, then="fail", text="halt_execution", kinds=["check"], pattern=rf"\A{HALTED}", halts=True)


def _backoff(backoff: dict[str, Any]) -> dict[str, Any] | None:
    """The waits between attempts; up to 15 % of the first one are added to each."""
    seconds = backoff.get("delay_ms", 0) / 1000
    if not seconds:
        return None
    return {"type": backoff.get("mode", "fixed"), "initial": seconds, "jitter": JITTER, "jitter_of": "initial"}


def success_of(reading: VisorReading, fields: dict[str, Any], at: Place) -> tuple[Part | None, Routes]:
    """Translate the actions after a success, with their routes."""
    routes = read_routes(reading, fields)
    if not (routes.leads_back or routes.runs):
        return None, routes
    # A remedy with a computed jump pays nothing: it can't jump.
    is_free = routes.leads_back and reading.owner in reading.remedies
    return Part(at, **routes.keys, cost=0 if is_free else None, run_cost=1 if routes.runs else None), routes
