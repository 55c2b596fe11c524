"""`retry`, in its four forms: as rules that answer a failure, and as effects that ask for one more attempt.

    retry: true | 5 | {max_attempts, initial_delay, ...}     any failure
    {retry_when, stop_when}                                  asked after each attempt, a success included
    {retry_on: [timeout, connection_error], backoff: 5}      by the kind of the failure
    [{when, then: {max_attempts, next_call, collect}}]       the first policy that holds counts

`max_attempts` counts every execution, the first included. What still asks for more after the last of them is taken as
it is.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.noetl.arcs import none_of
from resile.dialects.noetl.keys import COLLECT, NEXT_CALL, PER_ITERATION, POLICY, RETRY
from resile.dialects.noetl.tools.sink import in_order, read_sink
from resile.dialects.noetl.values import NoetlReading, items
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.templates import condition_text, names_in, problem
from resile.model.builtin_actions import Effect
from resile.model.rules import Backoff, Match, Origin, Repair, Rule
from resile.model.workflow import Condition, Step

ATTEMPTS_DEFAULT = 3
ATTEMPTS_OF_PAGES = 100
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


class Retry(Struct):
    """The rules and effects of a retry, and the sinks that take the result of each attempt."""

    rules: list[Rule] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    sinks: list[Step] = field(default_factory=list)


def is_about_error(when: str) -> bool:
    """Is a condition about failures, and about nothing else?"""
    return "call.error" in when or "error" in names_in(condition_text(when))


def is_about_failure(when: str) -> bool:
    """Is a condition of an arc about the failure of its step?"""
    return "step.failed" in when or is_about_error(when)


def mentions_error(when: str) -> bool:
    """Does a condition speak of failures, or of what successes and failures have?"""
    return is_about_error(when) or bool({"success", "status_code"} & names_in(condition_text(when)))


def read_retry(reading: NoetlReading, node: Node) -> Retry:
    """A retry of a step or of its tool."""
    found = Retry()
    origin = Origin(node.line, node.column)
    if isinstance(node, Sequence):
        for number, item in enumerate(node.items, 1):
            _read_policy(reading, item, number, found)
        return found
    if isinstance(node, Scalar):
        if node.value is True or (type(node.value) is int and 1 <= node.value <= 1_000):
            counted = {} if node.value is True else {"max_attempts": node.value}
            found.rules += _rules(counted, None, origin, Backoff(*_growing(counted)))
        elif node.value is not False:
            wrong(reading, node, "true, a number of attempts, a mapping, or a list of policies")
        return found
    fields = read_keys(reading, node, RETRY)
    for word in ("params", "next_call", "collect", "sink", "per_iteration"):
        if word in fields:
            message = f"`{word}` belongs into a policy of a list, or into a case"
            reading.report.error("conflict", message, node.entries[word][0], hint="retry: [{when: …, then: {…}}]")
    wait = backoff_of(reading, fields, jitter=0.5)
    stop = Condition(fields["stop_when"], "jinja", origin) if "stop_when" in fields else None
    if "retry_when" in fields and "retry_on" in fields:
        message = "`retry_when` and `retry_on` both say what is tried again"
        reading.report.error("conflict", message, node, hint="keep one of them")
    if "retry_when" in fields:
        found.effects.append(
            Effect(kind="again", name="retry", when=fields["retry_when"], unless=fields.get("stop_when", ""))
        )
        asked = Condition(fields["retry_when"], "jinja", origin)
        if stop is not None:
            asked = Condition(asked.source, asked.language, origin, (none_of((stop,)),))
        found.rules += again_rules(fields, "retry", origin, wait)
        found.rules += _rules(fields, asked, origin, wait)
        return found
    question = _by_kind(reading, fields, origin)
    if stop is not None:
        question = Condition("true", "jinja", origin, (none_of((stop,)), *((question,) if question else ())))
    found.rules += _rules(fields, question, origin, wait)
    return found


def _by_kind(reading: NoetlReading, fields: dict[str, Any], origin: Origin) -> Condition | None:
    """The question whether a failure is of one of the kinds that are named."""
    kinds: list[str] = []
    for word, place in fields.get("retry_on", ()):
        kind = _ALIASES.get(word.lower())
        if kind is None:
            hint = did_you_mean(word, _ALIASES, "kinds")
            reading.report.error("value", f"there is no kind of failure `{shorten(word)}`", place, hint=hint)
        elif kind not in kinds:
            kinds.append(kind)
    return Condition(f"error.kind in {kinds}", "jinja", origin) if kinds else None


def _growing(fields: dict[str, Any], kind: str = "exponential", jitter: float = 0.0) -> tuple[Any, ...]:
    """The parts of a backoff, in their order."""
    initial = fields.get("initial_delay", DELAY_SECONDS_DEFAULT)
    longest = fields.get("max_delay", DELAY_SECONDS_MAX_DEFAULT)
    return kind, initial, initial, fields.get("backoff_multiplier", 2.0), longest, fields.get("jitter", jitter)


def backoff_of(
    reading: NoetlReading, fields: dict[str, Any], *, jitter: float = 0.0, at_once: bool = False
) -> Backoff | None:
    """How long to wait before each further attempt; nothing where it goes on at once."""
    given: Node | None = fields.get("backoff")
    if given is None:
        waits = {"initial_delay", "backoff_multiplier", "max_delay"} & fields.keys()
        return None if at_once and not waits else Backoff(*_growing(fields, jitter=jitter))
    words = {"none": "", "linear": "linear", "exponential": "exponential", "fixed": "fixed"}
    if not isinstance(given, Scalar):
        wrong(reading, given, "none, fixed, linear, exponential, or a number of seconds")
        return None
    is_number = type(given.value) in (int, float) and 0 <= float(given.text) <= 86_400
    if is_number or given.text == "none":
        for word in sorted({"initial_delay", "backoff_multiplier", "max_delay"} & fields.keys()):
            message = f"`{word}` changes nothing beside `backoff: {given.text}`"
            reading.report.warning("no-effect", message, given, hint=f"take `{word}` out, or name a growing backoff")
    if is_number:
        return Backoff("fixed", float(given.text))
    if given.text not in words:
        wrong(reading, given, "none, fixed, linear, exponential, or a number of seconds")
        return None
    return Backoff(*_growing(fields, words[given.text], jitter)) if words[given.text] else None


def _limit(fields: dict[str, Any], default: int) -> int:
    """How often a step is tried again."""
    return int(fields.get("max_attempts", default)) - 1


def _rules(fields: dict[str, Any], when: Condition | None, origin: Origin, wait: Backoff | None) -> list[Rule]:
    """One rule for a failure, where there is more than one attempt."""
    limit = _limit(fields, ATTEMPTS_DEFAULT)
    if limit < 1:
        return []
    return [Rule(then="retry", text="retry", when=when, limit=limit, wait=wait, routing=True,
                 retries_anyway=True, origin=origin)]  # fmt: skip


def again_rules(
    fields: dict[str, Any],
    which: str,
    origin: Origin,
    wait: Backoff | None,
    default: int = ATTEMPTS_DEFAULT,
    sinks: tuple[Step, ...] = (),
) -> list[Rule]:
    """The rules for a success that asks for more: go on, and at the last attempt take it as it is."""
    asked = Condition(which, "case", origin)
    match, limit = Match(kinds=("check",)), _limit(fields, default)
    repair = Repair(steps=sinks, on_failure="fail") if sinks else None
    more = Rule(
        then="retry",
        text="one more attempt",
        match=match,
        when=asked,
        limit=limit,
        wait=wait,
        repair=repair,
        routing=True,
        origin=origin,
    )
    last = Rule(
        then="recovered",
        text="the last attempt counts",
        match=match,
        when=asked,
        limit=1_000,
        repair=repair,
        origin=origin,
    )
    return [more, last] if limit > 0 else [last]


def _read_policy(reading: NoetlReading, node: Node, number: int, found: Retry) -> None:
    """One policy of a list."""
    fields = read_keys(reading, node, POLICY)
    if not isinstance(node, Mapping) or "when" not in fields or "then" not in fields:
        if isinstance(node, Mapping) and not {"when", "then"} <= node.entries.keys():
            reading.report.error("value", "a policy needs `when` and `then`", node)
        return
    given = fields["then"]
    then = read_keys(reading, given, RETRY)
    if not isinstance(given, Mapping):
        return
    for word in ("retry_when", "stop_when", "retry_on"):
        if word in then:
            message = f"`{word}` means nothing here: the policy has its `when`"
            reading.report.error("conflict", message, given.entries[word][0], hint=f"take `{word}` out")
    origin, when, which = Origin(node.line, node.column), fields["when"], f"policy {number}"
    pages = "next_call" in then or "collect" in then
    wait = backoff_of(reading, then, at_once=pages)
    if "collect" in then:
        found.effects += read_collect(reading, then["collect"], -1)
        into = found.effects[-1].name if found.effects else ""
        found.effects.append(Effect(kind="result", name=into))
    changed = changed_of(reading, then)
    found.effects.append(Effect(kind="again", name=which, when=when, value=changed))
    sinks = _sinks(reading, then, f"{reading.owner}_page{number}_sink")
    found.sinks += sinks
    most = ATTEMPTS_OF_PAGES if pages else ATTEMPTS_DEFAULT
    found.rules += again_rules(then, which, origin, wait, most, sinks)
    if mentions_error(when):
        found.rules += _rules(then, Condition(when, "jinja", origin), origin, wait)


def _sinks(reading: NoetlReading, fields: dict[str, Any], name: str) -> tuple[Step, ...]:
    """The sinks of a policy."""
    given: list[Node] = items(fields["sink"]) if "sink" in fields else []
    if "per_iteration" in fields:
        inner = read_keys(reading, fields["per_iteration"], PER_ITERATION)
        given = [*given, *(items(inner["sink"]) if "sink" in inner else [])]
    found = [read_sink(reading, item, f"{name}{number}", None) for number, item in enumerate(given, 1)]
    return in_order(sink for sink in found if sink is not None)


def changed_of(reading: NoetlReading, fields: dict[str, Any]) -> dict[str, Any]:
    """The settings that are other in the next attempt."""
    changed: dict[str, Any] = {}
    if "next_call" in fields:
        changed = read_keys(reading, fields["next_call"], NEXT_CALL)
    if "params" in fields:
        changed["params"] = {**changed.get("params", {}), **fields["params"]}
    return changed


def read_collect(reading: NoetlReading, node: Node, case: int) -> list[Effect]:
    """What is added to a variable."""
    found: list[Effect] = []
    for item in items(node):
        fields = read_keys(reading, item, COLLECT)
        if "into" not in fields:
            if isinstance(item, Mapping) and "into" not in item.entries:
                reading.report.error("value", "`collect` needs `into`", item)
            continue
        if "from" in fields and "data" in fields:
            reading.report.error("conflict", "`from` and `data` both say what is added", item, hint="keep one of them")
        source = str(fields.get("from", "response"))
        written = fields.get("data", f"{{{{ {source} }}}}")
        if isinstance(written, str) and problem(written):
            reading.report.error("template", f"`{shorten(source)}` names no value", item)
            continue
        mode = str(fields.get("mode", "append"))
        kind: Any = "set" if mode == "replace" else mode
        found.append(Effect(kind=kind, name=fields["into"], value=written, path=fields.get("path", ""), case=case))
    return found
