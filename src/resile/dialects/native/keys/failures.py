"""Key tables for failures and successes.

They hold the keys below `retry`, `on_failure`, `on_success`, `failure_handlers`, `routing` and `resources.escalate`,
and the readers of their values. `native/failures/` compiles the values to rules.
"""

from __future__ import annotations

from typing import Any, get_args

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.keys.elsewhere import RETRY_WORDS
from resile.dialects.native.keys.model_fields import as_model, fields_of
from resile.dialects.reading import values as read
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, read_mapping, table
from resile.errors import shorten
from resile.model.failure import FAILURE_KINDS, MATCHED_KINDS
from resile.model.limits import LOOPS_MAX, RETRIES_MAX
from resile.model.rules import Backoff, BackoffKind, Then, Transition

MULTIPLIER_MAX = 100
EXIT_CODE_MAX = 255
SIGNAL_MAX = 64
BACKOFF_KINDS = get_args(BackoffKind)
HANDLER_KEYS = ("shell", "agent", "commands")
"""Fields of `on_failure` that set the commands of its handler."""
ROUTING_KEYS = ("run", "run_js", "goto", "goto_js", "transitions")
"""Keys of `on_failure` and `on_success` that name other steps."""
FOLLOW_KEYS = (*ROUTING_KEYS, "commands", "cost", "run_cost")
"""Keys of `on_success` that are not keys of a step."""


def read_retry(reading: Reading, node: Node) -> Any:
    """Read the number of retries and the waits between them, as fields of a rule."""
    if isinstance(node, Mapping):
        fields = read_mapping(reading, node, RETRY)
        if "max" not in node.entries:
            reading.report.error("value", "`retry` needs `max`: how often to try again", node)
        return fields
    limit = read.integer(0, RETRIES_MAX)(reading, node)
    return INVALID if limit is INVALID else {"max": limit}


def read_backoff(reading: Reading, node: Node) -> Any:
    """Read a backoff whose keys fit its type; a bare duration is a fixed delay, a bare type starts at one second."""
    if isinstance(node, Scalar) and node.text in BACKOFF_KINDS:
        kind: Any = node.text
        return Backoff(kind, 1.0, 1.0 if kind == "linear" else 0.0)
    if isinstance(node, Scalar) and node.value is not None:
        seconds = read.duration_or_zero(reading, node)
        return INVALID if seconds is INVALID else Backoff("fixed", seconds)
    if isinstance(node, Mapping):
        node = _by_type(reading, node)
    fields = read_mapping(reading, node, BACKOFF)
    if not isinstance(node, Mapping):
        return INVALID
    kind = fields.get("kind", "fixed")
    for key, owner in (("increment", "linear"), ("multiplier", "exponential")):
        if key in node.entries and kind != owner:
            where = node.entries[key][0]
            reading.report.error(
                "conflict", f"`{key}` has no meaning in a {kind} backoff", where, hint=f"type: {owner}"
            )
    if "jitter_of" in node.entries and "jitter" not in node.entries:
        reading.report.error("conflict", "`jitter_of` has no meaning without `jitter`", node.entries["jitter_of"][0])
    if not {"initial", "delay", "delay_ms"} & node.entries.keys():
        hint = "leave `backoff` out to try again at once"
        reading.report.error("value", "`backoff` needs `initial`: the first delay", node, hint=hint)
    if kind == "linear":
        fields.setdefault("increment_seconds", fields.get("initial_seconds", 0.0))
    return Backoff(**fields)


def read_retries(reading: Reading, node: Node) -> Any:
    """Read a number of further executions as the number of all."""
    count = read.integer(1, RETRIES_MAX - 1)(reading, node)
    if count is INVALID:
        return INVALID
    message = f"since 0.2 `max_retries: {count}` means {count} further executions, {count + 1} in all"
    reading.report.notice("since-0.2", message, node, hint=f"`max_attempts: {count + 1}` says the same")
    return count + 1


def _by_type(reading: Reading, node: Mapping) -> Mapping:
    """Rewrite the form `{linear: {initial: 1s}}` with an explicit type."""
    kind = next((word for word in BACKOFF_KINDS if word in node.entries), "")
    if not kind:
        return node
    key, inner = node.entries[kind]
    if len(node.entries) > 1:
        other = next(entry[0] for word, entry in node.entries.items() if word != kind)
        message = f"`{shorten(other.text)}` stands beside `{kind}`, and belongs into it"
        reading.report.error("conflict", message, other)
    entries = inner.entries if isinstance(inner, Mapping) else {"initial": (key, inner)}
    # If the inner mapping has a type too, reading the keys reports the duplicate.
    word = "mode" if "type" in entries else "type"
    return Mapping({**entries, word: (key, key)}, node.line, node.column)


def _signal(reading: Reading, node: Node) -> Any:
    """A signal by its name, with or without SIG, or by its number."""
    import signal

    if isinstance(node, Scalar) and isinstance(node.value, str):
        name = node.text.upper().removeprefix("SIG")
        known = getattr(signal.Signals, f"SIG{name}", None)
        if known is not None:
            return int(known)
    elif isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value < signal.NSIG:
        return node.value
    return read.wrong(reading, node, "a signal, such as KILL, SIGTERM or 9")


def _pattern(reading: Reading, node: Node) -> Any:
    """Read a regular expression, and check that it compiles."""
    from resile.model.patterns import PatternRefused, compile_pattern

    source = read.non_empty(read.text, "`pattern`")(reading, node)
    if source is INVALID:
        return INVALID
    try:
        compile_pattern(source)
    except PatternRefused as problem:
        reading.report.error("value", f"{describe(node)} is no regular expression: {problem}", node)
        return INVALID
    return source


def _transitions(reading: Reading, node: Node) -> Any:
    """Read pairs of a condition and a target node; a null target means stop."""
    if not isinstance(node, Sequence):
        return read.wrong(reading, node, "a list of {when, to}")
    result: list[tuple[Transition, Scalar | None]] = []
    for item in node.items:
        fields = read_mapping(reading, item, TRANSITION)
        if isinstance(item, Mapping):
            for key in TRANSITION.keys:
                if key not in item.entries:
                    reading.report.error("value", f"a transition needs `{key}`", item)
        if "when" in fields and "to" in fields:
            target = fields["to"]
            result.append((Transition(fields["when"], target.text if target else None), target))
    return tuple(result)


def _target(reading: Reading, node: Node) -> Any:
    if isinstance(node, Scalar) and node.value is None:
        return None
    return INVALID if read.non_empty(read.text, "the name of a step")(reading, node) is INVALID else node


def _goto(reading: Reading, node: Node) -> Any:
    return read.wrong(reading, node, "a step's name") if (target := _target(reading, node)) is None else target


_names = read.texts(read.non_empty(read.text, "the name of a step"))

BACKOFF = table(
    "backoff", "How long to wait before each further try.",
    read.one_of("type", "How the delay grows; `fixed` by default.", *BACKOFF_KINDS, field="kind"),
    Key("mode", "as `type`", "The same as `type`.", read.choice(*BACKOFF_KINDS), "kind"),
    Key("initial", "duration", "The first delay; a linear one waits `initial` and `increment` together at first.",
        read.duration_or_zero, "initial_seconds"),
    Key("delay", "duration", "The same as `initial`.", read.duration_or_zero, "initial_seconds"),
    Key("delay_ms", "number", "The same as `initial`, in milliseconds.", read.milliseconds, "initial_seconds"),
    Key("increment", "duration",
        "Added to each linear delay, also to the first; the same as `initial` by default.",
        read.duration_or_zero, "increment_seconds"),
    Key("multiplier", "number", "The factor of an exponential delay; 2 by default.",
        read.number(1, MULTIPLIER_MAX)),
    Key("max_delay", "duration", "The longest delay.", read.duration, "delay_seconds_max"),
    Key("jitter", "number from 0 to 1", "A share of the delay by which it varies.", read.number(0, 1)),
    read.one_of("jitter_of", "`initial`: a share of the first delay, however long the others are.", "delay", "initial"),
    *(Key(kind, "duration or mapping", f"The same with `type: {kind}`; a duration is `initial`.")
      for kind in BACKOFF_KINDS),
)  # fmt: skip
_RETRY = table(
    "retry", "Try a failed step again.",
    Key("max", "whole number", "The most retries, the first try not counted.", read.integer(0, RETRIES_MAX)),
    Key("backoff", "duration, type or mapping",
        "The waits between tries; none by default; a duration is a fixed wait.", read_backoff),
)  # fmt: skip
RETRY = replace(_RETRY, elsewhere=RETRY_WORDS)
TRANSITION = table(
    "a transition", "The first transition whose condition holds names the step to go back to.",
    Key("when", "expression", "The condition.", read.expression),
    Key("to", "name or null", "The step to go back to; `null`: go nowhere, and ignore `goto`.", _target),
)  # fmt: skip
_ROUTES = (
    Key("run", "name or list of names", "Steps to run first, in this order; a failed one stops the rest.", _names),
    Key("run_js", "expression", "More steps for `run`: a list of names.", read.expression),
    Key("goto", "name", "An earlier step to go back to; it and the steps below it that had begun run again.", _goto),
    Key("goto_js", "expression", "Computes the step to go back to; `null`: use `goto`.", read.expression),
    Key("transitions", "list of {when, to}", "Conditional steps to go back to; checked before `goto`.", _transitions),
)
_RETRY_KEY = Key("retry", "whole number or mapping",
                 "Try again; with `run`, its steps run before each further try.", read_retry)  # fmt: skip
_FAIL_WORKFLOW = Key("fail_workflow", "true or false",
                     "`false`: dependents go on and the run does not fail for it; `true`: only a passed re-run "
                     "recovers the step.", read.boolean)  # fmt: skip
ON_FAILURE = table(
    "on_failure", "The answer to a failure: `true`, a command, a list of commands, or these keys.",
    _RETRY_KEY,
    *_ROUTES,
    Key("shell", "command", "The handler runs this command."),
    Key("agent", "prompt", "The handler asks an agent; after `shell` where both are given."),
    Key("claude", "as `agent`", "The same as `agent`.", field="agent"),
    Key("commands", "command or list", "The handler runs these in order: commands, or steps with all their keys."),
    Key("strategy", "recovery, fallback, cleanup, custom",
        "`fallback`: the last command's output is the step's; `cleanup`: the step stays failed; else a handler "
        "that passes recovers the step.", read.choice("recovery", "fallback", "cleanup", "custom")),
    Key("max_attempts", "whole number",
        "Executions of the step in all; before each further one the handler runs, and its failure changes nothing.",
        read.integer(1, RETRIES_MAX)),
    Key("max_retries", "whole number", "Further executions, the first not counted: one less than `max_attempts`.",
        read_retries, "max_attempts"),
    read.true_or_false("retry_original", "Deprecated: `max_attempts` above 1 says it."),
    Key("timeout", "duration", "The time for the whole handler.", read.duration, "timeout_seconds"),
    read.true_or_false("handler_failure_fatal",
        "`true`: if the handler fails, the step has failed and does not run again."),
    _FAIL_WORKFLOW,
    read.true_or_false("accept",
        "`true`: after all other rules the step counts as recovered, despite its failure."),
    Key("capture", "name, or mapping of names",
        "Names for the joined output of the handler's commands; forms other than text take the last command's."),
)  # fmt: skip
_FOLLOWS = (
    *_ROUTES,
    Key("commands", "command or list", "Commands and steps that run before those that `run` names."),
    Key("cost", "whole number", "The jump's cost, from the loop budget; 1 by default.",
        read.integer(0, LOOPS_MAX)),
    Key("run_cost", "whole number", "The cost of running the steps, from the loop budget; 0 by default.",
        read.integer(0, LOOPS_MAX)),
)  # fmt: skip
ON_SUCCESS = table(
    "on_success", "What follows a success: a command, a step, a list of these, and the steps that these keys name.",
    *_FOLLOWS,
)  # fmt: skip
ON_FINISH = table(
    "on_finish", "What follows the last item of a `foreach`: as `on_success`, even if items failed.", *_FOLLOWS
)
DEFAULTS = table(
    "routing.defaults", "What every step's `on_failure` has unless it says otherwise.",
    Key("on_failure", "mapping", "Keys of `on_failure`, but no commands; `on_failure: false` opts a step out."),
    Key("on_fail", "as `on_failure`", "The same as `on_failure`.", field="on_failure"),
)  # fmt: skip
DEFAULT = table(
    "routing.defaults.on_failure", "The keys that a default may have.", _RETRY_KEY, *_ROUTES, _FAIL_WORKFLOW
)
ROUTING = table(
    "routing", "Limits and defaults of jumps and remedies.",
    Key("max_loops", "whole number", "How many jumps and remedies each scope has in all; 10 by default.",
        read.integer(0, LOOPS_MAX)),
    Key("defaults", "mapping", "What every step's `on_failure` has unless it says otherwise.",
        lambda reading, node: read_mapping(reading, node, DEFAULTS).get("on_failure", INVALID)),
)  # fmt: skip
FAILURE_HANDLER = table(
    "a failure handler", "Rules that steps share by the handler's name.",
    Key("rules", "list of rules",
        "Rules that list failures come before those that match all; one with `then` has the keys of a step's rule."),
)  # fmt: skip
_TYPES = Key("types", "name or list", "Exceptions that a function raised, subclasses included.",
             read.one_or_more(read.non_empty(read.text, "the name of an exception")))  # fmt: skip
RULE = table(
    "a rule", "One answer to some failures; every matcher that is given must hold.",
    Key("exit_codes", "number or list", "Exit codes; 128 and the signal's number after a signal.",
        read.one_or_more(read.integer(0, EXIT_CODE_MAX)), "codes"),
    read.true_or_false("match_all_exit_codes", "`true`: every failure."),
    Key("signals", "signal or list", "Signals that ended the step, by name or number.", read.one_or_more(_signal)),
    Key("kinds", "kind or list", "Kinds of failure: " + ", ".join(MATCHED_KINDS) + ".",
        read.one_or_more(read.choice(*MATCHED_KINDS))),
    Key("pattern", "regular expression", "Found in the end of the output or in the message.", _pattern),
    _TYPES,
    Key("recovery_script", "path or script", "Run by bash before the retry; a path is relative to the file."),
    Key("max_retries", "whole number", "How often this rule answers; 3 by default.",
        read.integer(0, RETRIES_MAX)),
    Key("backoff", "duration or mapping", "The wait before each retry.", read_backoff, "wait"),
    Key("timeout", "duration", "The time for the script.", read.duration, "timeout_seconds"),
    read.one_of("on_script_failure", "`fail`: no retry after a script that failed.", "continue", "fail"),
)  # fmt: skip
_GROWTH = (
    Key("factor", "number", "The factor on the last grant; 1.5 by default.",
        read.number(1.01, MULTIPLIER_MAX)),
    Key("memory_max", "size", "No more memory than this.", read.memory, "memory_bytes_max"),
    Key("runtime_max", "duration", "No more time than this.", read.duration, "runtime_seconds_max"),
)  # fmt: skip
GROWTH = table("escalate, in a rule", "The step has more memory after oom, more time after a timeout.", *_GROWTH)
STEP_RULE = table(
    "a rule of a step", "One answer to some failures, with everything that a rule can say.",
    read.one_of("then", "The decision, after the wait and the repair.", *get_args(Then)),
    Key("text", "text", "The text that `explain` shows; the word of `then` by default.", read.text),
    Key("exit_codes", "number or list", "Only these exit codes; -N is the end by the signal N, -1 by any signal.",
        read.one_or_more(read.integer(-SIGNAL_MAX, EXIT_CODE_MAX)), "codes"),
    Key("except_exit_codes", "number or list", "All exit codes but these, in the same numbers.",
        read.one_or_more(read.integer(-SIGNAL_MAX, EXIT_CODE_MAX)), "codes_excluded"),
    Key("signals", "signal or list", "Only these signals.", read.one_or_more(_signal)),
    Key("kinds", "kind or list", "Only these kinds of failure.", read.one_or_more(read.choice(*FAILURE_KINDS))),
    Key("pattern", "regular expression", "Only if it is found in the end of the output or in the message.",
        _pattern),
    _TYPES,
    Key("when", "condition", "Only where this holds.", read.condition),
    read.one_of("limit_of", "`job`: `limit` counts the firings of all rules of the step.", "rule", "job"),
    Key("limit", "whole number", "How often the rule answers, for each job; 1 by default.",
        read.integer(0, LOOPS_MAX)),
    Key("backoff", "duration or mapping", "The wait before the repair and `then`.", read_backoff, "wait"),
    Key("wait", "mapping", f"The same, in the fields of the model: {fields_of(Backoff)}.", as_model(Backoff, "`wait`")),
    Key("commands", "command or list", "The repair: commands, or steps with all their keys."),
    *_ROUTES,
    Key("timeout", "duration", "The time for the whole repair.", read.duration, "timeout_seconds"),
    read.one_of("on_repair_failure",
        "After a failed repair: ignore it; let the rules below answer (by default); fail the step.",
        "ignore", "next", "fail"),
    Key("escalate", "mapping", "The next try has more memory or time."),
    Key("cost", "whole number", "The rule's cost, from the loop budget; 0 by default.",
        read.integer(0, LOOPS_MAX)),
    read.true_or_false("routing", "`true`: `--no-failure-routing` turns it off."),
    read.true_or_false("retries_anyway",
        "`true`: `--retry-max` limits the rule, and it retries even if `run_js` names no step."),
    read.true_or_false("halts", "`true`: a failure by this rule, or by its failed repair, ends the whole scope."),
    Key("by_default", "key or list", "Which of `run`, `goto`, `transitions` are defaults of the file; those "
        "with an invalid target are dropped.", read.one_or_more(read.choice("run", "goto", "transitions"))),
)  # fmt: skip
ESCALATE = table(
    "escalate", "Try again with more memory after oom, with more time after a timeout.",
    *_GROWTH,
    Key("rounds", "whole number", "The most retries; 3 by default.", read.integer(1, RETRIES_MAX)),
)  # fmt: skip

FAILURE_TABLES = (
    RETRY, BACKOFF, ON_FAILURE, TRANSITION, ON_SUCCESS, ON_FINISH, ROUTING, DEFAULTS, DEFAULT, FAILURE_HANDLER, RULE,
    ESCALATE
)  # fmt: skip
STEP_RULE_TABLES = (STEP_RULE, GROWTH)
