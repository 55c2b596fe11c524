"""`case`: conditions on the events of a step, and everything that can follow from one.

    case: [{when, then: map | [map, ...]}]      then: set, collect, result, sink, call, next, retry, fail

Every key of a map is run, those that keep values before those that go on. A case that speaks of `error` answers
failures: with `retry` it is a rule that tries again, with `next` the failure is dealt with and the path goes on there.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.noetl.arcs import Arcs, Given, read_next, read_set
from resile.dialects.noetl.keys import CASE, RETRY, THEN
from resile.dialects.noetl.retry import (
    ATTEMPTS_DEFAULT,
    again_rules,
    backoff_of,
    changed_of,
    is_about_error,
    mentions_error,
    read_collect,
)
from resile.dialects.noetl.tools.sink import in_order, read_sink
from resile.dialects.noetl.values import NoetlReading, data, items
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.model.builtin_actions import Case, Effect
from resile.model.rules import Origin, Repair, Rule
from resile.model.workflow import Arc, Condition, Step

CASES_MAX = 200
LOOP_DONE = "loop.done"
_ENTER = "step.enter"


class Follow(Struct):
    """What follows a step: its cases, and what refers to them by number. `of_loop` are about a loop as a whole.

    `attempts` is what its retries keep, and for which of its successes they ask for one more attempt. `whole` are the
    names of sinks that take what a loop gave as a whole.
    """

    cases: list[Case] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    arcs: list[Arc] = field(default_factory=list)
    sinks: list[Step] = field(default_factory=list)
    attempts: list[Effect] = field(default_factory=list)
    of_loop: set[int] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)


def read_cases(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """The cases of a step."""
    if not isinstance(node, Sequence):
        wrong(reading, node, "a list of cases")
        return
    if len(node.items) > CASES_MAX:
        reading.report.error("limit", f"a step has at most {CASES_MAX} cases", node)
        return
    for item in node.items:
        fields = read_keys(reading, item, CASE)
        if isinstance(item, Mapping) and not {"when", "then"} <= item.entries.keys():
            reading.report.error("value", "a case needs `when` and `then`", item)
        if "when" in fields and "then" in fields and isinstance(item, Mapping):
            _read_case(reading, fields["when"], fields["then"], item, follow)


def _read_case(reading: NoetlReading, when: str, then: Node, node: Mapping, follow: Follow) -> None:
    """One case with all that follows from it."""
    if _ENTER in when:
        _read_enter(reading, then, follow)
        return
    number = len(follow.cases)
    on_failure = mentions_error(when)
    follow.cases.append(Case(when, on_failure))
    if LOOP_DONE in when:
        follow.of_loop.add(number)
    origin = Origin(node.line, node.column)
    answers: list[Rule] = []
    sinks: list[Step] = []
    leads = fails = False
    again = any(isinstance(part, Mapping) and "retry" in part.entries for part in items(then))
    for part in items(then):
        if not isinstance(part, Mapping):
            wrong(reading, part, "a mapping of what follows")
            continue
        fields = read_keys(reading, part, THEN)
        _read_values(reading, fields, number, follow)
        sinks += _sinks(reading, fields, number, follow, on_failure or again)
        leads = _read_ways(reading, fields, part, number, follow) or leads
        if "retry" in fields:
            answers += _read_again(reading, fields, fields["retry"], number, when, origin, follow)
        if "fail" in fields:
            fails = True
            follow.effects.append(Effect(kind="fail", value=_message(reading, fields["fail"]), case=number))
    if sinks:
        # What takes the result of an attempt does so before the next one.
        repair = Repair(steps=in_order(sinks), on_failure="ignore" if is_about_error(when) else "fail")
        answers = [replace(answer, repair=repair) for answer in answers]
    follow.rules += answers
    if on_failure and not answers:
        _answer_failure(number, origin, sinks, follow, leads and not fails)


def _answer_failure(number: int, origin: Origin, sinks: list[Step], follow: Follow, goes_on: bool) -> None:
    """A failure that a case answers without a retry: the path goes on, or it stands once the sinks are done."""
    if not goes_on and not sinks:
        return
    repair = Repair(steps=in_order(sinks), on_failure="ignore") if sinks else None
    follow.rules.append(
        Rule(
            then="tolerate" if goes_on else "fail",
            text=f"case {number + 1}",
            when=Condition(str(number), "case", origin),
            repair=repair,
            limit=1_000,
            origin=origin,
        )
    )


def _read_enter(reading: NoetlReading, then: Node, follow: Follow) -> None:
    """What is set when the step starts; nothing else can follow from that."""
    for part in items(then):
        if not isinstance(part, Mapping):
            wrong(reading, part, "a mapping of what follows")
            continue
        for word, (key, value) in part.entries.items():
            if word == "set":
                follow.effects += read_set(reading, value, kind="enter")
            else:
                message = f"at `step.enter` only `set` is run, not `{word}`"
                reading.report.error("not-run", message, key, hint="write it for `call.done` or `step.exit`")


def _read_values(reading: NoetlReading, fields: dict[str, Any], number: int, follow: Follow) -> None:
    """The values that a case keeps."""
    if "set" in fields:
        follow.effects += read_set(reading, fields["set"], number)
    if "collect" in fields:
        found = read_collect(reading, fields["collect"], number)
        follow.effects += found
        if found and any(effect.path for effect in found):
            # Pages that are collected are what the step gives in the end.
            follow.effects.append(Effect(kind="result", name=found[-1].name, case=number))
    if "result" in fields:
        value = _result(reading, fields["result"])
        if value is not INVALID:
            follow.effects.append(Effect(kind="result", value=value, case=number))


def _result(reading: NoetlReading, node: Node) -> Any:
    """The value that becomes the step's: data, or a name under `from`."""
    if isinstance(node, Mapping) and node.entries.keys() == {"from"} and isinstance(node.entries["from"][1], Scalar):
        source = node.entries["from"][1]
        return data(reading, Scalar(f"{{{{ {source.text} }}}}", f"{{{{ {source.text} }}}}", source.line, source.column))
    return data(reading, node)


def _sinks(reading: NoetlReading, fields: dict[str, Any], number: int, follow: Follow, by_rule: bool) -> list[Step]:
    """The tools that take the result of a case: after a success by themselves, else with the rule that answers it."""
    if "sink" not in fields:
        return []
    found: list[Step] = []
    for item in items(fields["sink"]):
        place = len(follow.sinks) + len(found) + 1
        sink = read_sink(reading, item, f"{reading.owner}_sink{place}", None if by_rule else _asked(number, item))
        found += [sink] if sink is not None else []
    if by_rule:
        return found
    follow.sinks += found
    return []


def read_sinks(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """The sinks of the step itself."""
    for item in items(node):
        sink = read_sink(reading, item, f"{reading.owner}_sink{len(follow.sinks) + 1}", None)
        follow.sinks += [sink] if sink is not None else []


def _asked(number: int, node: Node) -> Condition:
    """The condition that a case has come true."""
    return Condition(str(number), "case", Origin(node.line, node.column))


def _read_ways(reading: NoetlReading, fields: dict[str, Any], node: Mapping, number: int, follow: Follow) -> bool:
    """Where a case leads; True where it leads anywhere."""
    besides, given = (_asked(number, node),), Given(number)
    before = len(follow.arcs)
    ways: list[Arcs] = []
    if "next" in fields:
        ways.append(read_next(reading, fields["next"], besides, given))
    if "step" in fields:
        ways.append(read_next(reading, fields["step"], besides, given))
    if "args" in fields and not {"next", "step", "call"} & fields.keys():
        reading.report.error("value", "`args` are for the step of `next`", node.entries["args"][0])
    if "call" in fields:
        ways.append(read_next(reading, fields["call"], besides, given))
    args = fields.get("args", {})
    for way in ways:
        follow.arcs += [Arc(arc.step, arc.when, {**args, **arc.args}) for arc in way.arcs]
        follow.effects += way.effects
    return len(follow.arcs) > before


def _read_again(
    reading: NoetlReading,
    fields: dict[str, Any],
    node: Node,
    number: int,
    when: str,
    origin: Origin,
    follow: Follow,
) -> list[Rule]:
    """One more attempt: a rule for a failure, or an effect and its rules for a success."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping with `max_attempts`")
        return []
    given = read_keys(reading, node, RETRY)
    for word in ("retry_when", "stop_when", "retry_on", "collect", "sink", "per_iteration"):
        if word in given:
            message = f"`{word}` means nothing here: the case has its `when` and its own keys"
            reading.report.error("conflict", message, node.entries[word][0], hint=f"take `{word}` out")
    if "next" in fields:
        reading.report.error("conflict", "a case either goes on or tries again", node)
    changed = changed_of(reading, given)
    wait = backoff_of(reading, given, at_once=bool(changed))
    after_success = not is_about_error(when)
    if after_success or changed:
        follow.effects.append(Effect(kind="again", value=changed, case=number))
    rules = again_rules(given, str(number), origin, wait) if after_success else []
    limit = int(given.get("max_attempts", ATTEMPTS_DEFAULT)) - 1
    if limit > 0 and mentions_error(when):
        text, asked = f"case {number + 1}: retry", Condition(str(number), "case", origin)
        rules.append(Rule(then="retry", text=text, when=asked, limit=limit, wait=wait, routing=True,
                          retries_anyway=True, origin=origin))  # fmt: skip
    return rules


def _message(reading: NoetlReading, node: Node) -> Any:
    """Why a case fails its step: a text, or a mapping with a `message`."""
    if isinstance(node, Mapping) and node.entries.keys() <= {"message", "error", "reason"} and node.entries:
        _, *more = node.entries
        for word in more:
            message = f"`{word}` says once more why the step fails"
            reading.report.error("conflict", message, node.entries[word][0], hint="keep one of them")
        node = next(iter(node.entries.values()))[1]
    if isinstance(node, Scalar) and node.value is False:
        reading.report.error("value", "`fail: false` fails nothing", node, hint="take `fail` out")
    if isinstance(node, Scalar) and (node.value is None or isinstance(node.value, bool)):
        return "a case failed the step"
    value = data(reading, node)
    return "" if value is INVALID else value
