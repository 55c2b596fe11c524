"""The key tables of a Visor file's routes and failures, with the readers of their values.

ON_INIT, ON_FAIL, ON_SUCCESS, ON_FINISH   actions before and after a step
ROUTING                                   limits and defaults of these actions
CONDITION                                 one of the `failure_conditions`
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, is_null, items_of
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, Reader, key_table, label, read_keys, refused_key
from resile.dialects.reading.values import integer, non_empty, one_of, text, true_or_false, wrong
from resile.dialects.visor.values import Call, arguments, code, mapping_reader
from resile.model.limits import EXPRESSION_BYTES_MAX, LOOPS_MAX, RETRIES_MAX

HALTED = "Execution halted: "
"""The start of the message of a condition that stops the whole run."""
_filled_name = non_empty(text, "the name of a step")


def _name(expected: str) -> Reader:
    """Make a reader of names; it returns the node of the name, for its position."""

    def read_name(reading: Reading, node: Node) -> Any:
        if not isinstance(node, Scalar):
            return wrong(reading, node, expected)
        return INVALID if _filled_name(reading, node) is INVALID else node

    return read_name


def _target(reading: Reading, node: Node) -> Any:
    return node if is_null(node) else _name("a step's name or null")(reading, node)


def _routing_code(reading: Reading, node: Node) -> Any:
    """Read code that computes a route; code that is too long has no effect, and the static keys apply."""
    if isinstance(node, Scalar) and len(node.text.encode("utf-8", "surrogateescape")) > EXPRESSION_BYTES_MAX:
        message = f"the code has more than {EXPRESSION_BYTES_MAX} bytes and is not evaluated: the static keys apply"
        reading.report.warning("limit", message, node)
        return ""
    return code(reading, node)


def _retry(reading: Reading, node: Node) -> Any:
    """Read the number of retries and the waits between them."""
    fields = read_keys(reading, node, RETRY)
    if isinstance(node, Mapping) and "max" not in node.entries:
        reading.report.error("value", "`retry` needs `max`: how often to try again", node)
    return fields if isinstance(node, Mapping) else INVALID


def _calls(reading: Reading, node: Node) -> tuple[Call, ...]:
    return tuple(call for item in items_of(node) if (call := _call(reading, item)) is not None)


def _call(reading: Reading, node: Node) -> Call | None:
    """Read one entry: a name, or a mapping with the target and its arguments."""
    if isinstance(node, Scalar):
        return None if _filled_name(reading, node) is INVALID else Call("step", node.text, node)
    fields = read_keys(reading, node, CALL)
    if not isinstance(node, Mapping):
        return None
    given = [kind for kind in ("step", "tool", "workflow") if kind in node.entries]
    if len(given) != 1:
        reading.report.error("value", "a call needs `step`, `tool` or `workflow`, one of them", node)
        return None
    target = fields.get(given[0])
    return target and Call(given[0], target.text, target, fields.get("with", {}), fields.get("as", ""))


def _transitions(reading: Reading, node: Node) -> Any:
    """Read pairs of a condition and a target."""
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of {when, to}")
    found: list[Part] = []
    for item in node.items:
        fields = read_keys(reading, item, TRANSITION)
        for key in ("when", "to"):
            if isinstance(item, Mapping) and key not in item.entries:
                reading.report.error("value", f"a transition needs `{key}`", item)
        if len(fields) == 2:
            found.append(Part(item, **fields))
    return found


def failure_conditions(reading: Reading, node: Node) -> Any:
    """Read native checks by name."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to conditions")
    read = {name: _condition(reading, name, key, value) for name, (key, value) in node.entries.items()}
    return {name: check for name, check in read.items() if check is not None}


def _condition(reading: Reading, name: str, key: Scalar, node: Node) -> Part | None:
    """Read one failure condition: code, or a mapping."""
    if isinstance(node, Scalar):
        source = code(reading, node)
        return None if source is INVALID else Part(key, name=name, code=source, must=False)
    fields = read_keys(reading, node, CONDITION)
    if isinstance(node, Mapping) and "condition" not in node.entries:
        reading.report.error("value", f"the failure condition `{name}` needs `condition`", node)
    if "condition" not in fields:
        return None
    message = fields.get("message", "")
    effect = "fail" if fields.get("severity", "error") == "error" else "remark"
    if effect == "remark" and not fields.get("halt_execution"):
        message_of_remark = (
            f"`{name}` only makes a remark: with this severity a condition that holds does not fail the step"
        )
        reading.report.notice("tolerated", message_of_remark, key, hint="severity: error makes it fail")
    if fields.get("halt_execution"):
        effect, message = "halt", f"{HALTED}{message or name}"
    return Part(key, name=name, code=fields["condition"], must=False, effect=effect, message=message)


BACKOFF = key_table(
    "backoff",
    one_of("mode", "Whether the delay doubles each time; `fixed` by default.", "fixed", "exponential"),
    Key("delay_ms", "number", "The first delay, in milliseconds.", integer(0, 86_400_000)),
)  # fmt: skip
RETRY = key_table(
    "retry",
    Key("max", "whole number", "The most retries, the first try not counted.", integer(0, RETRIES_MAX)),
    Key("backoff", "mapping", "The waits between tries; none by default.", mapping_reader(BACKOFF)),
)  # fmt: skip
TRANSITION = key_table(
    "a transition",
    Key("when", "code", "The condition.", code),
    Key("to", "name or null", "The step to go back to; `null`: go nowhere, and ignore `goto`.", _target),
    label("goto_event", "a jump changes no event"),
)  # fmt: skip
CALL = key_table(
    "a call",
    Key("step", "name", "The step to run.", _name("a name")),
    Key("tool", "name", "The tool of `tools` to run.", _name("a name")),
    Key("workflow", "name", "The workflow to run.", _name("a name")),
    Key("with", "mapping", "Values for the called step as `args`, for a workflow as `inputs`.", arguments),
    Key("as", "name", "The name of its output.", non_empty(text, "`as`")),
)  # fmt: skip
_ROUTES = (
    Key("run", "list of names or calls", "Steps to run first, in this order; a failed one stops the rest.", _calls),
    Key("run_js", "code", "More steps for `run`: a list of names.", _routing_code),
    Key("goto", "name", "An earlier step to go back to; it and the steps below it that had begun run again.",
        _name("a step's name")),
    Key("goto_js", "code", "Computes the step to go back to; `null`: use `goto`.", _routing_code),
    Key("transitions", "list of {when, to}", "Conditional steps to go back to; checked before `goto`.", _transitions),
    label("goto_event", "a jump changes no event"),
)  # fmt: skip
ON_FAIL = key_table(
    "on_fail",
    Key("retry", "mapping", "Try again.", _retry),
    *_ROUTES,
    label("message", "the failure has its own message"),
)  # fmt: skip
ON_SUCCESS = key_table("on_success", *_ROUTES)
ON_FINISH = key_table("on_finish", *_ROUTES)
ON_INIT = key_table(
    "on_init",
    Key("run", "list of names or calls", "Steps, tools and workflows, in this order.", _calls),
    refused_key("run_js", "name the steps in `run`; the `if` of each says whether it runs"),
)  # fmt: skip
DEFAULTS = key_table(
    "routing.defaults",
    Key("on_fail", "mapping", "Each key of a step's own `on_fail` replaces the one here; `on_fail: null` has none."),
)  # fmt: skip
ROUTING = key_table(
    "routing",
    Key("max_loops", "whole number", "The most jumps, retries and remedies in each scope; 10 by default.",
        integer(0, LOOPS_MAX)),
    Key("defaults", "mapping", "Defaults for every step.", mapping_reader(DEFAULTS)),
)  # fmt: skip
CONDITION = key_table(
    "a failure condition",
    Key("condition", "code", "The step fails if this holds.", code),
    Key("message", "text", "The message of the failure or remark.", text),
    one_of("severity", "Below `error` it is a remark in the log and fails nothing.", "error", "warning", "info"),
    true_or_false("halt_execution", "Nothing else starts, and the run fails."),
)  # fmt: skip
ROUTING_TABLES = (
    ON_INIT, ON_FAIL, ON_SUCCESS, ON_FINISH, RETRY, BACKOFF, TRANSITION, CALL, ROUTING, DEFAULTS, CONDITION,
)  # fmt: skip
