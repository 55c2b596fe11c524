"""The rules of a step, compiled from the failure keys of a native file, always in the same order.

    rules -> on_exit_code -> failure_handler (listed failures) -> escalate -> failure_handler (all) -> retry, with run
        -> handler -> goto -> park, accept, tolerate or fail

    max_attempts: 3         a h a h a       the handler before each further execution, even if the handler fails
    strategy recovery       a h             recovered when the handler passes
             fallback       a h             the handler's output is the step's
             cleanup        a … h           the handler runs last, and the failure stays

With `fail_workflow: true`, a handler without a further execution can't recover the step: it runs last, like a cleanup.
A step that stays failed after all rules fails the run; `fail_workflow: false` and `on_failure: true` tolerate it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, items_of
from resile.dialects.native.context import Answer, Defaults, NativeReading, place_of
from resile.dialects.native.failures.commands import read_commands
from resile.dialects.native.failures.handlers import handed_over, read_escalation
from resile.dialects.native.graph.routes import read_routes
from resile.dialects.native.keys.elsewhere import ANSWER_WORDS
from resile.dialects.native.keys.failures import DEFAULT, EXIT_CODE_MAX, HANDLER_KEYS, ON_FAILURE
from resile.dialects.native.keys.names import capture_name
from resile.dialects.native.keys.steps import CAPTURE_FORMS
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import Table, read_mapping
from resile.dialects.reading.values import wrong
from resile.model.limits import LOOPS_MAX
from resile.model.rules import Match, Origin, Then
from resile.model.workflow import Capture, Repair, Rule, Step

_ONLY_WITH_COMMANDS = {
    "strategy": "strategy",
    "timeout_seconds": "timeout",
    "handler_failure_fatal": "handler_failure_fatal",
    "capture": "capture",
}


def _places(node: Node, known: Table) -> dict[str, Origin]:
    """Positions of the fields of a mapping."""
    entries = node.entries if isinstance(node, Mapping) else {}
    return {
        known.keys[name].field or name: Origin(key.line, key.column)
        for name, (key, _) in entries.items()
        if name in known.keys
    }


def read_defaults(reading: NativeReading, node: Node) -> Answer:
    """Read `routing.defaults.on_failure`: the defaults of every step."""
    return Answer(read_mapping(reading, node, DEFAULT), _places(node, DEFAULT))


def read_rules(reading: NativeReading, node: Mapping, fields: dict[str, Any], inner: Defaults) -> tuple[Rule, ...]:
    """Compile the rules of a step."""
    answer = _read_answer(reading, node, fields)
    written = _written_out(reading, fields["rules"], inner) if "rules" in fields else []
    shared = _rules_of_handler(reading, fields["failure_handler"], inner) if "failure_handler" in fields else ()
    listed = [rule for rule in shared if rule.match != Match()]
    catch_all = [rule for rule in shared if rule.match == Match()]
    resources, growth = fields.get("resources", (None, None))
    escalation = read_escalation(reading, growth, resources) if growth is not None else []
    rules = [*written, *_exit_codes(reading, fields, inner), *listed, *escalation, *catch_all]
    target, calls, transitions = read_routes(reading, answer.fields, inner, answer.by_default)
    rules += _retry(answer, calls)
    steps = _handler_steps(reading, answer, inner)
    handler, at_last = _handler(answer, steps)
    rules += handler
    if target or transitions or "goto_js" in answer.fields:
        code = answer.fields.get("goto_js", "")
        goes = f"goto {target}" if target else "goto_js" if code else "transitions"
        where = answer.at("goto", "goto_js", "transitions")
        rules.append(
            Rule(then="goto", text=goes, target=target, target_js=code, transitions=transitions, limit=LOOPS_MAX,
                 cost=1, routing=True, origin=where)
        )  # fmt: skip
    rules += _last(reading, node, fields, answer, steps, at_last)
    if fields.get("continue_on_error") and (not rules or rules[-1].then != "tolerate"):
        where = place_of(reading, node, "continue_on_error")
        rules.append(Rule(then="tolerate", text="continue_on_error", origin=where))
    return tuple(rules)


def _read_answer(reading: NativeReading, node: Mapping, fields: dict[str, Any]) -> Answer:
    """Read `on_failure` in all its forms, with the keys beside it, over the workflow's defaults."""
    key = "on_fail" if "on_fail" in node.entries else "on_failure"
    given: Node | None = fields.get("on_failure")
    own: dict[str, Any] = {}
    places: dict[str, Origin] = {}
    tolerates = opted_out = False
    if isinstance(given, Mapping):
        own, places = read_mapping(reading, given, ON_FAILURE), _places(given, ON_FAILURE)
    elif isinstance(given, Scalar) and (given.value is None or isinstance(given.value, bool)):
        tolerates, opted_out = given.value is True, given.value is not True
    elif given is not None:
        own = {"commands": given}
    if given is not None:
        _refuse_words(reading, own.get("commands"))
        places["on_failure"] = place_of(reading, node, key)
    _read_beside(reading, node, fields, own, places, given is not None and not opted_out)
    defaults = reading.defaults
    if defaults is None or opted_out or reading.depth:
        return Answer(own, places, key, tolerates)
    added = defaults.fields
    if reading.owner == "end":
        added = {field: value for field, value in added.items() if field not in ("goto", "goto_js", "transitions")}
    new = frozenset(added.keys() - own.keys())
    return Answer({**added, **own}, {**defaults.places, **places}, key, tolerates, new)


def _refuse_words(reading: NativeReading, commands: Node | None) -> None:
    """Refuse words of other systems for an answer: as a command, `continue` always passes, and the others fail."""
    for given in items_of(commands) if commands is not None else ():
        word = given.text.strip() if isinstance(given, Scalar) else ""
        if word in ANSWER_WORDS and reading.dialect == "native":
            message = f"`on_failure: {word}` would run a command of this name"
            reading.report.error("value", message, given, hint=ANSWER_WORDS[word])


def _read_beside(
    reading: NativeReading,
    node: Mapping,
    fields: dict[str, Any],
    own: dict[str, Any],
    places: dict[str, Origin],
    answered: bool,
) -> None:
    """Merge keys of the step that mean the same as inside `on_failure`; those inside win."""
    for field in ("retry", "max_attempts", "fail_workflow", "handler_failure_fatal"):
        if field not in fields:
            continue
        word = field if field in node.entries else "max_retries"
        where = node.entries[word][0]
        if field == "retry" and field in own:
            reading.report.error("conflict", "`retry` stands here and in `on_failure`", where, hint="keep one of them")
        elif field == "max_attempts" and not answered:
            hint = "to try again without a handler: `retry: {max: …}`"
            reading.report.error("conflict", f"`{word}` belongs to `on_failure`, and there is none", where, hint=hint)
        elif field == "max_attempts":
            message = f"`{word}` beside `on_failure` is taken as if it stood inside"
            if field in own:
                message = f"`{word}` beside `on_failure` changes nothing: the one inside it counts"
            reading.report.notice("beside", message, where, hint=f"write `{word}` inside `on_failure`")
        if field not in own:
            own[field] = fields[field]
            places[field] = Origin(where.line, where.column)


def _written_out(reading: NativeReading, node: Node, inner: Defaults) -> list[Rule]:
    """Read the `rules` of a step in order; a name means the rules of that failure handler."""
    from resile.dialects.native.failures.rules import read_rule

    if not isinstance(node, Sequence):
        wrong(reading, node, "a list of rules")
        return []
    rules: list[Rule] = []
    for item in node.items:
        if isinstance(item, Scalar):
            rules += _rules_of_handler(reading, item, inner)
        elif (rule := read_rule(reading, item, inner)) is not None:
            rules.append(rule)
    return rules


def _rules_of_handler(reading: NativeReading, node: Node, inner: Defaults) -> tuple[Rule, ...]:
    """The rules of the failure handler that a node names."""
    if not isinstance(node, Scalar) or node.value is None:
        wrong(reading, node, "the name of a failure handler")
        return ()
    rules = reading.handlers.get(node.text)
    if rules is None:
        hint = did_you_mean(node.text, reading.handlers, "failure handlers") or "declare it under `failure_handlers`"
        reading.report.error("unknown-handler", f"there is no failure handler {describe(node)}", node, hint=hint)
        return ()
    reading.handlers_used.add(node.text)
    return handed_over(rules, inner)


def _exit_codes(reading: NativeReading, fields: dict[str, Any], inner: Defaults) -> list[Rule]:
    """Read the commands for single exit codes, one rule each."""
    node: Node | None = fields.get("on_exit_code")
    if node is None:
        return []
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of exit codes to commands")
        return []
    rules: list[Rule] = []
    for key, commands in node.entries.values():
        # Keys must be text elsewhere; here integers are valid, so withdraw that error.
        reading.report.withdraw(key)
        code = int(key.text) if key.text.isascii() and key.text.isdecimal() and len(key.text) <= 3 else 0
        if not 1 <= code <= EXIT_CODE_MAX:
            hint = "`on_success` follows a success" if key.text == "0" else ""
            wrong(reading, key, f"an exit code from 1 to {EXIT_CODE_MAX}", hint)
            continue
        items = items_of(commands)
        steps = read_commands(reading, items, "on_failure", inner) if items else ()
        if not items:
            reading.report.error("value", "a handler without commands does nothing", commands)
        match, where = Match(codes=(code,)), Origin(key.line, key.column)
        rules.append(
            Rule(then="recovered", text=f"on_exit_code {code}", match=match, repair=Repair(steps=steps), origin=where)
        )
    return rules


def _retry(answer: Answer, calls: tuple[str, ...]) -> list[Rule]:
    """The rule for plain retries, and for retries after the steps that `run` names."""
    retry, code = answer.fields.get("retry", {}), answer.fields.get("run_js", "")
    limit = retry.get("max", 0)
    if not limit and not calls and not code:
        return []
    text = f"retry {limit}" if limit else ""
    repair = None
    if calls or code:
        repair = Repair(calls=calls, calls_js=code, on_failure="fail")
        runs = f"run {', '.join(calls)}" if calls else "run_js"
        text = f"{text} after {runs}" if limit else runs
    return [
        Rule(then="retry", text=text, limit=limit or 1, wait=retry.get("backoff"), repair=repair,
             cost=1 if repair else 0, routing=True, retries_anyway=bool(limit),
             origin=answer.at("retry", "run", "run_js") if limit else answer.at("run", "run_js"))
    ]  # fmt: skip


def _handler_steps(reading: NativeReading, answer: Answer, inner: Defaults) -> tuple[Step, ...]:
    """Read the commands of the handler."""
    fields = answer.fields
    given = [field for field in HANDLER_KEYS if field in fields]
    if not given:
        for field, word in _ONLY_WITH_COMMANDS.items():
            if field in fields:
                where = answer.at(field)
                reading.report.error("conflict", f"`{word}` has no meaning without commands", where)
        return ()
    if "commands" in given and len(given) > 1:
        where = answer.at("commands")
        reading.report.error("conflict", f"`commands` and `{given[0]}` both say what the handler runs", where)
        return ()
    commands: Node = fields[given[0]]
    if "commands" not in given:
        pairs: list[Node] = [
            Mapping({field: (fields[field], fields[field])}, fields[field].line, fields[field].column)
            for field in given
        ]
    else:
        pairs = items_of(commands)
    if not pairs:
        reading.report.error("value", "a handler without commands does nothing", commands)
        return ()
    steps = read_commands(reading, pairs, "on_failure", inner)
    captures = _captures(reading, fields["capture"]) if "capture" in fields else ()
    return tuple(_capturing(step, captures) for step in steps) if captures else steps


def _captures(reading: NativeReading, node: Node) -> tuple[Capture, ...]:
    """Read captures of a handler: `text` is the output of all its commands, other forms that of the last one.

    A word that is no form is a label and means text.
    """
    entries: list[tuple[str, Node, Any]] = []
    if isinstance(node, Mapping):
        entries = [(name, key, value.text if isinstance(value, Scalar) else value)
                   for name, (key, value) in node.entries.items()]  # fmt: skip
    elif isinstance(node, Scalar) and node.value is not None:
        entries = [(node.text, node, "")]
    else:
        wrong(reading, node, "a name, or a mapping of names")
    result: list[Capture] = []
    for name, where, form in entries:
        if not isinstance(form, str):
            wrong(reading, form, "a label")
        elif capture_name(reading, name, where):
            result.append(Capture(name, form if form in CAPTURE_FORMS and form != "text" else "combined"))
            reading.scope.captured[name] = reading.owner
    return tuple(result)


def _capturing(step: Step, captures: tuple[Capture, ...]) -> Step:
    """Add the captures to every command of a handler, so that the last one that ran decides.

    Combined output grows with each command, so the last one has it all.
    """
    own = {capture.name for capture in step.capture}
    return replace(step, capture=step.capture + tuple(capture for capture in captures if capture.name not in own))


def _handler(answer: Answer, steps: tuple[Step, ...]) -> tuple[list[Rule], Repair | None]:
    """The rules of the handler itself, and the repair that runs after all other rules."""
    fields = answer.fields
    attempts = fields.get("max_attempts", 2 if fields.get("retry_original") else 1)
    fatal = fields.get("handler_failure_fatal", False)
    repair = Repair(
        steps=steps, timeout_seconds=fields.get("timeout_seconds"), on_failure="fail" if fatal else "next"
    ) if steps else None  # fmt: skip
    # The step's own exit code is the judge: a handler that failed does not take its further executions away.
    before_rerun = replace(repair, on_failure="ignore") if repair is not None and not fatal else repair
    where = answer.at("max_attempts", "commands", "shell", "agent", "on_failure")
    rules: list[Rule] = []
    if attempts > 1:
        text = f"{answer.key}: max_attempts {attempts}"
        rules.append(Rule(then="retry", text=text, limit=attempts - 1, repair=before_rerun, origin=where))
    if repair is None:
        return rules, None
    where = answer.at("strategy", "commands", "shell", "agent", "on_failure")
    strategy = fields.get("strategy", "recovery")
    fails = fields.get("fail_workflow") is True
    if strategy == "cleanup" or (attempts == 1 and fails):
        return rules, repair
    if strategy == "fallback" and not fails:
        rules.append(Rule(then="fallback", text=f"{answer.key}: fallback", repair=repair, origin=where))
    elif attempts == 1:
        rules.append(Rule(then="recovered", text=f"{answer.key}: {strategy}", repair=repair, origin=where))
    return rules, None


def _last(
    reading: NativeReading,
    node: Mapping,
    fields: dict[str, Any],
    answer: Answer,
    steps: tuple[Step, ...],
    at_last: Repair | None,
) -> list[Rule]:
    """The last rules: park, accept, tolerate or fail, after the repair that runs last."""
    _give_advice(reading, answer, steps)
    asked = answer.fields.get("fail_workflow")
    if asked is True and answer.tolerates:
        message = f"`{answer.key}` tolerates the failure, `fail_workflow: true` does not"
        reading.report.error("conflict", message, answer.at("fail_workflow"))
    then: Then = "fail"
    text, where = answer.key, answer.at("on_failure")
    if fields.get("park"):
        then, text, where = "park", "park", place_of(reading, node, "park")
        if answer.tolerates or (asked is False and "fail_workflow" not in answer.by_default):
            word = "fail_workflow" if asked is False else answer.key
            message = f"`park` takes every failure that is left, so `{word}` would never apply"
            reading.report.error("conflict", message, where, hint="keep one of them")
    elif answer.fields.get("accept"):
        then, text, where = "recovered", f"{answer.key}: accept", answer.at("accept")
        if asked is True:
            message = "`accept` takes the step as it is, `fail_workflow: true` does not"
            reading.report.error("conflict", message, where, hint="keep one of them")
    elif asked is False:
        then, text, where = "tolerate", "fail_workflow: false", answer.at("fail_workflow")
    elif answer.tolerates:
        then, text = "tolerate", f"{answer.key}: tolerate"
    elif steps and asked is None and reading.scope.around is None:
        message = "since 0.2 a step that stays failed after its handler fails the run"
        reading.report.notice("since-0.2", message, where, hint="`fail_workflow: false` lets the steps below it run")
    if then == "tolerate" and reading.scope.around is not None and not reading.depth:
        message = "since 0.2 an item goes on after a failure that its step tolerates"
        reading.report.notice("since-0.2", message, where)
    rules: list[Rule] = []
    if at_last is not None:
        place = answer.at("strategy", "commands", "shell", "agent", "on_failure")
        what = "cleanup" if answer.fields.get("strategy") == "cleanup" else "handler"
        rules.append(Rule(then=then, text=f"{answer.key}: {what}, then {then}", repair=at_last, origin=place))
    if then != "fail":
        rules.append(Rule(then=then, text=text, origin=where))
    return rules


def _give_advice(reading: NativeReading, answer: Answer, steps: tuple[Step, ...]) -> None:
    """Warn of settings that are valid but unclear or outdated."""
    fields = answer.fields
    if "retry_original" in fields:
        where = answer.at("retry_original")
        hint = "`max_attempts: 2` or more runs the step again"
        reading.report.notice("deprecated", "`retry_original` is not needed any more", where, hint=hint)
    unsure = fields.get("strategy", "recovery") == "recovery" and fields.get("fail_workflow") is not True
    if steps and unsure and "max_attempts" not in fields and "retry_original" not in fields:
        message = "the step counts as recovered once its handler passes: nothing checks that it works now"
        where = answer.at("commands", "shell", "agent", "on_failure")
        reading.report.notice("unchecked", message, where, hint="add `max_attempts: 2` to re-check")
