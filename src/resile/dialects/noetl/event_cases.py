"""`case`: conditions on the events of a step, with the actions of each.

    case: [{when, then: map | [map, ...]}, {else: ...}]      then: set, collect, result, sink, call, next, retry, fail

`else` is the last case: it holds after a success at which no other did. Every key of `then` has an effect, first
those that store values, then arcs. A case whose condition names `error` answers failures: with `retry` it is a rule
that retries; with `next` the failure is tolerated and the arc taken.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, items_of, value_of
from resile.dialects.noetl.arcs import add_args, read_next
from resile.dialects.noetl.follow import (
    Follow,
    condition_of_case,
    is_about_error,
    make_effect,
    mentions_error,
    read_set,
    repair_keys_for,
)
from resile.dialects.noetl.keys import CASE, NEXT_CALL, RETRY, THEN
from resile.dialects.noetl.retry import (
    ATTEMPTS_DEFAULT,
    backoff_of,
    changes_of,
    read_collect,
    retries_of,
    rule_for_retry,
    rules_for_more,
)
from resile.dialects.noetl.tools.sink import read_sink
from resile.dialects.noetl.values import NoetlReading, data, lacks, refuse_keys
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.languages.jinja.step_events import PAGES_MAX
from resile.languages.jinja.templates import is_template

CASES_MAX = 200
LOOP_DONE = "loop.done"
_ENTER = "step.enter"
_OTHERWISE = "event.name == 'step.done' and not event.answered"
"""The condition of `else`: the last event of a success, and no case held before."""


def read_cases(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """Read the `case` of a step."""
    if not isinstance(node, Sequence):
        wrong(reading, node, "a list of cases")
        return
    if len(node.items) > CASES_MAX:
        reading.report.error("limit", f"a step has at most {CASES_MAX} cases", node)
        return
    for item in node.items:
        fields = read_keys(reading, item, CASE)
        is_alone = fields.keys() == {"else"}
        whole = is_alone or not lacks(reading, item, fields, {"when", "then"}, "a case needs `when` and `then`")
        if not whole or not isinstance(item, Mapping):
            continue
        if not is_alone:
            _read_case(reading, fields["when"], fields["then"], item, follow)
        if "else" in fields:
            _read_else(reading, fields["else"], item, is_last=item is node.items[-1], follow=follow)


def _read_else(reading: NoetlReading, node: Node, case: Mapping, *, is_last: bool, follow: Follow) -> None:
    """Read the `else` of the cases, whose actions may stand under a `then` of their own."""
    if not is_last:
        message, hint = "`else` is the last of the cases", "move it behind the others"
        reading.report.error("value", message, case.entries["else"][0], hint=hint)
        return
    inner = value_of(node, "then") if isinstance(node, Mapping) and node.entries.keys() == {"then"} else None
    follow.otherwise = case.entries["else"][0]
    _read_case(reading, _OTHERWISE, inner or node, case, follow)


def _read_case(reading: NoetlReading, when: str, then: Node, node: Mapping, follow: Follow) -> None:
    """Read one case, with everything under its `then`."""
    parts = [part for part in items_of(then) if isinstance(part, Mapping)]
    for other in items_of(then):
        if not isinstance(other, Mapping):
            wrong(reading, other, "a mapping of what follows")
    if not any(part.entries for part in parts) and len(parts) == len(items_of(then)):
        reading.report.error("value", "`then` says nothing that follows", then, hint="name an action, or drop the case")
    if _ENTER in when:
        _read_enter(reading, parts, follow)
        return
    number = len(follow.cases)
    on_failure = mentions_error(when)
    follow.cases.append({"when": when, "on_failure": on_failure})
    if LOOP_DONE in when:
        follow.of_loop.add(number)
    answers: list[Part] = []
    sinks: list[Part] = []
    leads = fails = False
    again = any("retry" in part.entries or _calls_again(value_of(part, "call")) for part in parts)
    for part in parts:
        fields = read_keys(reading, part, THEN)
        _read_values(reading, fields, number, follow)
        sinks += _read_sinks(reading, fields, number, follow, on_failure or again)
        leads = _read_arcs(reading, fields, part, number, follow) or leads
        if _calls_again(fields.get("call")):
            answers += _read_call(reading, fields["call"], number, when, node, follow)
        if "retry" in fields:
            answers += _read_retry(reading, fields, number, when, node, follow)
        if "fail" in fields:
            fails = True
            follow.effects.append(make_effect("fail", number, value=_read_message(reading, fields["fail"])))
    if sinks:
        # Sinks take the result of an attempt before the next one starts.
        repair = repair_keys_for(sinks, "ignore" if is_about_error(when) else "fail")
        answers = [answer.replace(**repair) for answer in answers]
    follow.rules += answers
    goes_on = leads and not fails
    if on_failure and not answers and (goes_on or sinks):
        # A case that answers a failure without a retry: go on, or fail after the sinks.
        repair = repair_keys_for(sinks, "ignore")
        common = Part(node, text=f"case {number + 1}", when=condition_of_case(number, node), limit=1_000, **repair)
        follow.rules.append(common.replace(then="tolerate" if goes_on else "fail"))


def _read_enter(reading: NoetlReading, parts: list[Mapping], follow: Follow) -> None:
    """Read a case about `step.enter`, which can only set variables."""
    for part in parts:
        for word, (key, value) in part.entries.items():
            if word == "set":
                follow.effects += read_set(reading, value, kind="enter")
            else:
                message = f"at `step.enter` only `set` is run, not `{word}`"
                reading.report.error("not-run", message, key, hint="write it for `call.done` or `step.exit`")


def _read_values(reading: NoetlReading, fields: dict[str, Any], number: int, follow: Follow) -> None:
    """Read the variables, collections and result that a case sets."""
    if "set" in fields:
        follow.effects += read_set(reading, fields["set"], number)
    if "collect" in fields:
        found = read_collect(reading, fields["collect"], number)
        follow.effects += found
        if any(each["path"] for each in found):
            # Collected pages become the value of the step.
            follow.effects.append(make_effect("result", number, name=found[-1]["name"]))
    if "result" in fields:
        value = _read_result(reading, fields["result"])
        if value is not INVALID:
            follow.effects.append(make_effect("result", number, value=value))


def _read_result(reading: NoetlReading, node: Node) -> Any:
    """Read the value of the step: data, or a name under `from`."""
    if isinstance(node, Mapping) and node.entries.keys() == {"from"} and isinstance(node.entries["from"][1], Scalar):
        source = node.entries["from"][1]
        text = source.text if is_template(source.text) else f"{{{{ {source.text} }}}}"
        return data(reading, Scalar(text, text, source.line, source.column))
    return data(reading, node)


def _read_sinks(
    reading: NoetlReading, fields: dict[str, Any], number: int, follow: Follow, by_rule: bool
) -> list[Part]:
    """Read the sinks of a case: they run after a success, or belong to the rule that answers the failure."""
    if "sink" not in fields:
        return []
    found: list[Part] = []
    for item in items_of(fields["sink"]):
        place = len(follow.sinks) + len(found) + 1
        when = None if by_rule else condition_of_case(number, item)
        sink = read_sink(reading, item, f"{reading.owner}_sink{place}", when)
        found += [sink] if sink is not None else []
    if by_rule:
        return found
    follow.sinks += found
    return []


def _read_arcs(reading: NoetlReading, fields: dict[str, Any], node: Mapping, number: int, follow: Follow) -> bool:
    """Read the arcs of a case; return False if it has none."""
    before = len(follow.arcs)
    if "args" in fields and not {"next", "step", "call"} & fields.keys():
        reading.report.error("value", "`args` are for the step of `next`", node.entries["args"][0])
    for word in ("next", "step", "call"):
        if word in fields and not (word == "call" and _calls_again(fields["call"])):
            fired = (condition_of_case(number, node),)
            way = read_next(reading, fields[word], fired, fired)
            follow.arcs += add_args(way.arcs, fields.get("args", {}))
            follow.effects += way.effects
            if word != "call" and way.arcs:
                follow.led.append(fired[0])
    return len(follow.arcs) > before


def _calls_again(node: Node | None) -> bool:
    """Does a `call` name no step, so that it calls the tool again, with other settings?"""
    return isinstance(node, Mapping) and bool(node.entries) and node.entries.keys() <= NEXT_CALL.keys.keys()


def _read_call(reading: NoetlReading, node: Node, number: int, when: str, case: Mapping, follow: Follow) -> list[Part]:
    """Read a `call` of the tool itself: an effect with the other settings, and the rules that run it again."""
    changed = read_keys(reading, node, NEXT_CALL)
    follow.effects.append(make_effect("again", number, value=changed))
    rules = rules_for_more({}, str(number), case, None, PAGES_MAX) if not is_about_error(when) else []
    if mentions_error(when):
        text, asked = f"case {number + 1}: call", condition_of_case(number, case)
        rules.append(rule_for_retry(case, text, asked, retries_of({}), None))
    return rules


def _read_retry(
    reading: NoetlReading, fields: dict[str, Any], number: int, when: str, case: Mapping, follow: Follow
) -> list[Part]:
    """Read the `retry` of a case: a rule for a failure, or an effect and its rules for a success."""
    node: Node = fields["retry"]
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping with `max_attempts`")
        return []
    given = read_keys(reading, node, RETRY)
    own = given.keys() & {"retry_when", "stop_when", "retry_on", "collect", "sink", "per_iteration"}
    refuse_keys(reading, node, own, "means nothing here: the case has its `when` and its own keys")
    if "next" in fields:
        reading.report.error("conflict", "a case either goes on or tries again", node)
    changed = changes_of(given)
    wait = backoff_of(reading, given, at_once=bool(changed))
    after_success = not is_about_error(when)
    if after_success or changed:
        follow.effects.append(make_effect("again", number, value=changed))
    # Other settings for the next attempt, or something to collect, make it the next page.
    most = PAGES_MAX if changed or "collect" in fields else ATTEMPTS_DEFAULT
    rules = rules_for_more(given, str(number), case, wait, most) if after_success else []
    limit = retries_of(given)
    if limit > 0 and mentions_error(when):
        rules.append(rule_for_retry(case, f"case {number + 1}: retry", condition_of_case(number, case), limit, wait))
    return rules


def _read_message(reading: NoetlReading, node: Node) -> Any:
    """Read the message with which a case fails its step: a text, or a mapping with a `message`."""
    if isinstance(node, Mapping) and node.entries.keys() <= {"message", "error", "reason"} and node.entries:
        first, *more = node.entries
        refuse_keys(reading, node, more, "says once more why the step fails", "keep one of them")
        node = node.entries[first][1]
    if isinstance(node, Scalar) and node.value is False:
        reading.report.error("value", "`fail: false` fails nothing", node, hint="take `fail` out")
    if isinstance(node, Scalar) and (node.value is None or isinstance(node.value, bool)):
        return "a case failed the step"
    value = data(reading, node)
    return "" if value is INVALID else value
