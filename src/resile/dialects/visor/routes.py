"""Actions after a Visor step: `on_fail` becomes native rules, `on_success` native `on_success`.

    retry, with run  ->  goto  ->  continue_on_failure, or the failure stays

Each of these costs 1 of the loop budget, and so does a jump after a success; its `run` costs nothing. After a failed
remedy nothing else of the scope starts. If the `goto` of a remedy is the step that called it, `_read_routes`
drops the jump: that step runs again anyway.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.native.nodes import Part
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.visor.files import merge
from resile.dialects.visor.routing_keys import HALTED, ON_FAIL
from resile.dialects.visor.values import Call, VisorReading
from resile.errors import shorten
from resile.model.failure import FAILURE_KINDS, MATCHED_KINDS, Kind
from resile.model.limits import LOOPS_MAX

JITTER = 0.15
# The failure kinds to retry if a failed condition must not be retried.
_NOT_LOGICAL = [kind for kind in MATCHED_KINDS if not FAILURE_KINDS[kind].is_logical]


class Routes(Struct, frozen=True):
    """The native keys of `on_fail` or `on_success`.

    `calls` are the called steps if a call has arguments or is not a plain step. `jumps` are the targets that the step
    itself names, without those of the defaults.
    """

    keys: dict[str, Any] = {}
    calls: tuple[Call, ...] = ()
    jumps: tuple[Scalar, ...] = ()

    @property
    def leads_back(self) -> bool:
        """Do they have a jump back?"""
        return any(key in self.keys for key in ("goto", "goto_js", "transitions"))

    @property
    def runs(self) -> bool:
        """Do they run steps?"""
        return bool(self.calls) or any(key in self.keys for key in ("run", "run_js"))


def _read_routes(
    reading: VisorReading, fields: dict[str, Any], owner: str, by_default: AbstractSet[str] = frozenset()
) -> Routes:
    """Translate the routing keys to native ones; drop the jump of a remedy to its caller."""
    keys = {key: fields[key] for key in ("run_js", "goto_js", "goto", "transitions") if fields.get(key)}
    if "goto" in keys and owner in reading.remedies:
        message = f"`{shorten(owner)}` runs as a remedy, so it does not go back"
        reading.report.notice("goto", message, keys["goto"], hint="the step that called for it runs again by itself")
        keys = {key: value for key, value in keys.items() if key not in ("goto", "transitions")}
    targets = [keys["goto"]] if "goto" in keys.keys() - by_default else []
    if "transitions" in keys.keys() - by_default:
        targets += [transition["to"] for transition in keys["transitions"]]
    jumps = tuple(target for target in targets if target.value is not None)
    calls: tuple[Call, ...] = fields.get("run", ())
    if any(call.kind != "step" or call.args or call.alias for call in calls):
        return Routes(keys, calls, jumps)
    # A step that is the default remedy of all steps is not its own remedy.
    if calls and not ("run" in by_default and owner in (call.name for call in calls)):
        keys["run"] = [call.node for call in calls]
    return Routes(keys, (), jumps)


def rules_of(
    reading: VisorReading, kind: str, owner: str, node: Mapping, fields: dict[str, Any]
) -> tuple[list[Part], Routes]:
    """The native rules of a step, and its routes."""
    if kind == "human-input":
        return [Part(node, then="park", text="human-input", limit=LOOPS_MAX)], Routes()
    answer = _merge_defaults(reading, node, fields.get("on_fail"))
    given = read_keys(reading, answer, ON_FAIL)
    own = fields.get("on_fail")
    by_default = given.keys() - (own.entries.keys() if isinstance(own, Mapping) else ())
    routes = _read_routes(reading, given, owner, by_default)
    halting = _halting_condition(reading, fields)
    rules: list[Part] = []
    if halting is not None:
        pattern = rf"\A{HALTED}"
        rules.append(Part(halting, then="fail", text="halt_execution", kinds=[Kind.CHECK], pattern=pattern, halts=True))
    asking = fields.get("ai", {}).get("retry", {})
    if asking.get("maxRetries"):
        rules.append(_ask_again(node, asking))
    importance = fields.get("criticality", "policy")
    retry = given.get("retry", {})
    if retry.get("max") or routes.runs:
        rules.append(
            Part(
                _first_place(answer, "retry", "run", "run_js"),
                **_retry_keys(retry, routes),
                kinds=_NOT_LOGICAL if importance in ("external", "internal") else [],
                by_default=["run"] if "run" in by_default else None,
            )
        )
    if routes.leads_back:
        keys = routes.keys
        target = keys.get("goto")
        words = f"goto {target.text}" if target is not None else "goto_js" if "goto_js" in keys else "transitions"
        named = [key for key in ("goto", "transitions") if key in by_default]
        rules.append(
            Part(_first_place(answer, "goto", "goto_js", "transitions"), then="goto", text=words, goto=target,
                 goto_js=keys.get("goto_js"), transitions=keys.get("transitions"), limit=LOOPS_MAX, cost=1,
                 routing=True, by_default=named or None)
        )  # fmt: skip
    if fields.get("continue_on_failure", importance == "info"):
        at = _first_place(node, "continue_on_failure", "criticality")
        rules.append(Part(at, then="tolerate", text="continue_on_failure"))
    return rules, routes


def _ask_again(node: Mapping, retry: dict[str, Any]) -> Part:
    """The rule that asks an agent again: `ai.retry`."""
    wait = {
        "type": "exponential",
        "initial": retry.get("initialDelay", 1.0),
        "multiplier": retry.get("backoffFactor", 2),
        "max_delay": retry.get("maxDelay", 10.0),
    }
    limit, patterns = retry["maxRetries"], "|".join(re.escape(text) for text in retry.get("retryableErrors", ()))
    return Part(node.entries["ai"][0], then="retry", text=f"ai.retry {limit}", limit=limit, backoff=wait,
                kinds=_NOT_LOGICAL, pattern=f"(?i){patterns}" if patterns else None)  # fmt: skip


def _halting_condition(reading: VisorReading, fields: dict[str, Any]) -> Part | None:
    """A condition that stops the whole run: of the step itself, else of the file."""
    own: dict[str, Part] = fields.get("failure_conditions", {})
    checks = (*own.values(), *(check for name, check in reading.conditions.items() if name not in own))
    return next((check for check in checks if check.get("effect") == "halt"), None)


def _merge_defaults(reading: VisorReading, step: Mapping, own: Node | None) -> Mapping:
    """Merge `on_fail` over the file's default, mappings inside them too; null removes all."""
    defaults: Node | None = reading.fields.get("routing", {}).get("defaults", {}).get("on_fail")
    merged = Mapping({}, step.line, step.column, step.file)
    if isinstance(own, Scalar) and own.value is None:
        return merged
    for given in (defaults, own):
        if isinstance(given, Mapping):
            merged = merge(merged, given)
        elif given is not None:
            reading.report.error("type", f"on_fail must be a mapping, not {describe(given)}", given)
            return Mapping({}, step.line, step.column, step.file)
    return merged


def _retry_keys(retry: dict[str, Any], routes: Routes) -> dict[str, Any]:
    """The keys of a retry rule, with the steps that run before the retry."""
    limit = retry.get("max", 0)
    repair: dict[str, Any] = {key: routes.keys[key] for key in ("run", "run_js") if key in routes.keys}
    words = f"retry {limit}" if limit else ""
    if routes.runs:
        repair |= {"on_repair_failure": "fail", "halts": True}
        named = dict.fromkeys(node.text for node in routes.keys.get("run", ())) or [call.name for call in routes.calls]
        runs = f"run {', '.join(named)}" if named else "run_js"
        words = f"{words} after {runs}" if limit else runs
    wait = _backoff(retry.get("backoff", {}))
    return {"then": "retry", "text": words, "limit": limit or 1, "backoff": wait, **repair, "cost": 1, "routing": True,
            "retries_anyway": True if limit else None}  # fmt: skip


def _first_place(node: Mapping, *names: str) -> Scalar:
    return next(node.entries[name][0] for name in names if name in node.entries)


def _backoff(backoff: dict[str, Any]) -> dict[str, Any] | None:
    """The waits between attempts; each has up to 15 % of the first one as jitter."""
    seconds = backoff.get("delay_ms", 0) / 1000
    if not seconds:
        return None
    return {"type": backoff.get("mode", "fixed"), "initial": seconds, "jitter": JITTER, "jitter_of": "initial"}


def success_of(reading: VisorReading, fields: dict[str, Any], at: Place, owner: str = "") -> tuple[Part | None, Routes]:
    """Translate the actions after a success of the step `owner`, or, without one, after a fan-out; and their routes."""
    routes = _read_routes(reading, fields, owner)
    if not (routes.leads_back or routes.runs):
        return None, routes
    # A remedy with a computed jump pays nothing: it can't jump.
    is_free = routes.leads_back and owner in reading.remedies
    return Part(at, **routes.keys, cost=0 if is_free else None), routes
