"""`retry`, in its four forms: as rules that answer a failure, and as effects that request one more attempt.

    retry: true | 5 | {max_attempts, initial_delay, ...}     any failure
    {retry_when, stop_when}                                  evaluated after each attempt, a success included
    {retry_on: [timeout, connection_error], backoff: 5}      by the kind of the failure
    [{when, then: {max_attempts, next_call, collect}}]       the first policy that holds counts

`max_attempts` counts every execution, the first included. If a success requests more after the last attempt, its result
counts. Pages without `max_attempts` go on until no more are asked for; after PAGES_MAX the step fails.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, items_of, text_in
from resile.dialects.noetl.follow import (
    Follow,
    condition_of,
    condition_of_case,
    make_effect,
    mentions_error,
    none_of,
    repair_keys_for,
)
from resile.dialects.noetl.keys import COLLECT, POLICY, RETRY
from resile.dialects.noetl.tools.sink import read_sink
from resile.dialects.noetl.values import NoetlReading, lacks, refuse_keys
from resile.dialects.reading.diagnostics import Place, did_you_mean
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.step_events import PAGES_MAX
from resile.languages.jinja.templates import is_template, problem
from resile.model.failure import Kind

ATTEMPTS_DEFAULT = 3
DELAY_SECONDS_DEFAULT = 1.0
DELAY_SECONDS_MAX_DEFAULT = 60.0
KINDS_OF_ERRORS = {
    "connection": ("connection", "connection_error", "connection_refused", "network", "network_error"),
    "timeout": ("timeout", "timeout_error"),
    "rate_limit": ("rate_limit", "too_many_requests"),
    "auth": ("auth", "auth_error", "unauthorized"),
    "not_found": ("not_found",),
    "client_error": ("client_error", "http_4xx"),
    "server_error": ("server_error", "http_5xx"),
    "unknown": ("unknown", "error"),
}
_ALIASES = {word: kind for kind, words in KINDS_OF_ERRORS.items() for word in words}


def read_retry(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """Read the `retry` of a step or of its tool."""
    if isinstance(node, Sequence):
        for number, item in enumerate(node.items, 1):
            _read_policy(reading, item, number, follow)
    elif isinstance(node, Mapping):
        _read_mapping(reading, node, follow)
    elif node.value is True or (type(node.value) is int and 1 <= node.value <= 1_000):
        counted = {} if node.value is True else {"max_attempts": node.value}
        follow.rules += _rules_for_retry(counted, None, node, _wait_of(counted))
    elif node.value is not False:
        wrong(reading, node, "true, a number of attempts, a mapping, or a list of policies")


def _read_mapping(reading: NoetlReading, node: Mapping, follow: Follow) -> None:
    """Read a retry with conditions or kinds of failures."""
    fields = read_keys(reading, node, RETRY)
    misplaced = fields.keys() & {"params", "next_call", "collect", "sink", "per_iteration"}
    why = "belongs into a policy of a list, or into a case"
    refuse_keys(reading, node, misplaced, why, "retry: [{when: …, then: {…}}]")
    wait = backoff_of(reading, fields, jitter=0.5)
    stop = [none_of([condition_of(fields["stop_when"], node)])] if "stop_when" in fields else []
    if "retry_when" in fields and "retry_on" in fields:
        message = "`retry_when` and `retry_on` both say what is tried again"
        reading.report.error("conflict", message, node, hint="keep one of them")
    if "retry_when" in fields:
        when, unless = fields["retry_when"], fields.get("stop_when", "")
        follow.attempts.append(make_effect("again", name="retry", when=when, unless=unless))
        follow.rules += rules_for_more(fields, "retry", node, wait)
        follow.rules += _rules_for_retry(fields, condition_of(when, node, *stop), node, wait)
        return
    question = _condition_of_kind(reading, fields, node)
    if stop:
        question = condition_of("true", node, *stop, *([question] if question else []))
    follow.rules += _rules_for_retry(fields, question, node, wait)


def _condition_of_kind(reading: NoetlReading, fields: dict[str, Any], at: Place) -> Part | None:
    """Build the condition that a failure is of one of the kinds in `retry_on`."""
    kinds: list[str] = []
    for word, place in fields.get("retry_on", ()):
        kind = _ALIASES.get(word.lower())
        if kind is None:
            hint = did_you_mean(word, _ALIASES, "kinds")
            reading.report.error("value", f"there is no kind of failure `{shorten(word)}`", place, hint=hint)
        elif kind not in kinds:
            kinds.append(kind)
    return condition_of(f"error.kind in {kinds}", at) if kinds else None


def _wait_of(fields: dict[str, Any], kind: str = "exponential", jitter: float = 0.0) -> dict[str, Any]:
    """Build the wait before each further attempt, in the fields of the model's Backoff."""
    initial = fields.get("initial_delay", DELAY_SECONDS_DEFAULT)
    return {
        "kind": kind,
        "initial_seconds": initial,
        "increment_seconds": initial,
        "multiplier": fields.get("backoff_multiplier", 2.0),
        "delay_seconds_max": fields.get("max_delay", DELAY_SECONDS_MAX_DEFAULT),
        "jitter": fields.get("jitter", jitter),
    }


def backoff_of(
    reading: NoetlReading, fields: dict[str, Any], *, jitter: float = 0.0, at_once: bool = False
) -> dict[str, Any] | None:
    """Read how long to wait before each further attempt; None for no wait."""
    given: Node | None = fields.get("backoff")
    waits = sorted({"initial_delay", "backoff_multiplier", "max_delay"} & fields.keys())
    if given is None:
        return None if at_once and not waits else _wait_of(fields, jitter=jitter)
    word = text_in(given)
    is_number = isinstance(given, Scalar) and type(given.value) in (int, float) and 0 <= float(word) <= 86_400
    if not is_number and word not in ("none", "fixed", "linear", "exponential"):
        wrong(reading, given, "none, fixed, linear, exponential, or a number of seconds")
        return None
    if not is_number and word != "none":
        return _wait_of(fields, word, jitter)
    for other in waits:
        message = f"`{other}` changes nothing beside `backoff: {word}`"
        reading.report.warning("no-effect", message, given, hint=f"take `{other}` out, or name a growing backoff")
    return {"kind": "fixed", "initial_seconds": float(word)} if is_number else None


def retries_of(fields: dict[str, Any], default: int = ATTEMPTS_DEFAULT) -> int:
    """Count the retries of a step: its attempts without the first."""
    return int(fields.get("max_attempts", default)) - 1


def rule_for_retry(at: Place, text: str, when: Part | None, limit: int, wait: dict[str, Any] | None) -> Part:
    """Build a rule that retries a failed step."""
    return Part(at, then="retry", text=text, when=when, limit=limit, wait=wait, routing=True, retries_anyway=True)


def _rules_for_retry(fields: dict[str, Any], when: Part | None, at: Place, wait: dict[str, Any] | None) -> list[Part]:
    limit = retries_of(fields)
    return [rule_for_retry(at, "retry", when, limit, wait)] if limit > 0 else []


def rules_for_more(
    fields: dict[str, Any],
    which: str,
    at: Place,
    wait: dict[str, Any] | None,
    default: int = ATTEMPTS_DEFAULT,
    sinks: list[Part] | None = None,
) -> list[Part]:
    """Build the rules for a success that requests one more attempt; after the last attempt its result counts."""
    limit = retries_of(fields, default)
    counts = limit < PAGES_MAX - 1
    common = Part(at, kinds=Kind.CHECK, when=condition_of_case(which, at), **repair_keys_for(sinks or [], "fail"))
    more = common.replace(then="retry", text="one more attempt", limit=limit, wait=wait, routing=True)
    # More pages than the limit are a failure, never a result that lacks some of them.
    last = (
        common.replace(then="recovered", text="the last attempt counts", limit=1_000)
        if counts
        else (common.replace(then="fail", text=f"no more than {PAGES_MAX} pages", limit=1))
    )
    return [more, last] if limit > 0 else [last]


def _read_policy(reading: NoetlReading, node: Node, number: int, follow: Follow) -> None:
    """Read one policy of a list."""
    fields = read_keys(reading, node, POLICY)
    if lacks(reading, node, fields, {"when", "then"}, "a policy needs `when` and `then`"):
        return
    given = fields["then"]
    then = read_keys(reading, given, RETRY)
    if not isinstance(given, Mapping):
        return
    own = then.keys() & {"retry_when", "stop_when", "retry_on"}
    refuse_keys(reading, given, own, "means nothing here: the policy has its `when`")
    when, which = fields["when"], f"policy {number}"
    pages = "next_call" in then or "collect" in then
    wait = backoff_of(reading, then, at_once=pages)
    if "collect" in then:
        follow.attempts += read_collect(reading, then["collect"], -1)
        into = follow.attempts[-1]["name"] if follow.attempts else ""
        follow.attempts.append(make_effect("result", name=into))
    follow.attempts.append(make_effect("again", name=which, when=when, value=changes_of(then)))
    sinks = _read_sinks(reading, then, f"{reading.owner}_page{number}_sink")
    follow.sinks += sinks
    most = PAGES_MAX if pages else ATTEMPTS_DEFAULT
    follow.rules += rules_for_more(then, which, node, wait, most, sinks)
    if mentions_error(when):
        follow.rules += _rules_for_retry(then, condition_of(when, node), node, wait)


def _read_sinks(reading: NoetlReading, fields: dict[str, Any], name: str) -> list[Part]:
    """Read the sinks of a policy."""
    given = [each["sink"] for each in (fields, fields.get("per_iteration", {})) if "sink" in each]
    items = [item for node in given for item in items_of(node)]
    found = [read_sink(reading, item, f"{name}{number}", None) for number, item in enumerate(items, 1)]
    return [sink for sink in found if sink is not None]


def changes_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Collect the settings that differ in the next attempt."""
    changed: dict[str, Any] = fields.get("next_call", {})
    params = {**changed.get("params", {}), **fields.get("params", {})}
    return {**changed, "params": params} if "params" in fields else changed


def read_collect(reading: NoetlReading, node: Node, case: int) -> list[dict[str, Any]]:
    """Read `collect`: the data to add to a variable."""
    found: list[dict[str, Any]] = []
    for item in items_of(node):
        fields = read_keys(reading, item, COLLECT)
        if lacks(reading, item, fields, {"into"}, "`collect` needs `into`"):
            continue
        if "from" in fields and "data" in fields:
            reading.report.error("conflict", "`from` and `data` both say what is added", item, hint="keep one of them")
        source = str(fields.get("from", "response"))
        written = fields.get("data", source if is_template(source) else f"{{{{ {source} }}}}")
        if isinstance(written, str) and problem(written):
            reading.report.error("template", f"`{shorten(source)}` names no value", item)
            continue
        mode = str(fields.get("mode", "append"))
        kind = "set" if mode == "replace" else mode
        found.append(make_effect(kind, case, name=fields["into"], value=written, path=fields.get("path", "")))
    return found
