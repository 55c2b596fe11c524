"""The tables of the native file: every accepted key with its reader and its documentation.

The reader, the did-you-mean hints, the tests and the reference page all come from these rows, so that none of
them can say something else than the others. `NOT_YET` holds the words that are known and refused: moving one
from there into its table is what turning a feature on begins with.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.base import INVALID, Key, Reading, Table, read_mapping, table
from resile.dialects.native_values import (
    IDENTIFIER,
    boolean,
    choice,
    condition,
    duration,
    duration_or_zero,
    environment,
    filled,
    integer,
    memory,
    milliseconds,
    number,
    program,
    template,
    text,
    texts,
    wrong,
)
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, plain, shorten
from resile.model.limits import PARALLEL_MAX, RETRIES_MAX
from resile.model.rules import Backoff
from resile.model.workflow import Capture, CaptureForm, Input, Resources, Secret

CAPTURE_FORMS: tuple[CaptureForm, ...] = ("text", "json", "lines", "number", "bool", "stderr", "exit_code")
ROOTS = ("inputs", "env", "steps", "execution", "item", "error", "shell", "raw")
"""First words of references that mean something by themselves; nothing can be captured under them."""
CPUS_MAX = 1_000_000
GPUS_MAX = 10_000
MULTIPLIER_MAX = 100

NOT_YET: dict[str, dict[str, str]] = {
    "the workflow": {
        "failure_handlers": "`failure_handlers` are",
        "routing": "`routing` is",
        "error_policy": "`error_policy` is",
        "handlers": "`handlers` are",
        "mode": "`mode` is",
        "map": "`map` is",
        "reduce": "`reduce` is",
        "setup": "`setup` is",
    },
    "a step": {
        "agent": "`agent` steps are",
        "claude": "`claude` steps are",
        "python": "`python` steps are",
        "http": "`http` steps are",
        "validate": "`validate` steps are",
        "write_file": "`write_file` steps are",
        "workflow": "`workflow` steps are",
        "map": "`map` steps are",
        "foreach": "`foreach` steps are",
        "fanout": "`fanout` is",
        "inputs": "`inputs` of a step are",
        "on_success": "`on_success` is",
        "failure_handler": "`failure_handler` is",
        "commit_required": "`commit_required` is",
        "critical": "`critical` is",
    },
    "on_failure": {
        key: f"`on_failure.{key}` is"
        for key in (
            "retry", "run", "run_js", "goto", "goto_js", "shell", "claude", "agent", "commands", "max_attempts",
            "strategy", "timeout", "handler_failure_fatal", "when", "transitions", "rules",
        )
    },
    "resources": {"escalate": "`resources.escalate` is"},
}  # fmt: skip
ACTIONS = ("shell", "noop")
ACTIONS_NOT_YET = ("agent", "claude", "python", "http", "validate", "write_file", "workflow", "map", "foreach")


def _inputs(reading: Reading, node: Node) -> Any:
    """Declared inputs: a default, or a mapping of what is known about the value."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to defaults")
    result: dict[str, Input] = {}
    for name, (key, value) in node.entries.items():
        if not IDENTIFIER.fullmatch(name.replace("-", "_")):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of an input", key)
            continue
        declared = _input(reading, value)
        if declared is not INVALID:
            result[name] = declared
    return result


def _input(reading: Reading, node: Node) -> Any:
    """One input; without a type a default is text as written, a list is JSON."""
    if not isinstance(node, Mapping):
        return _input_default(reading, node, None)
    fields = read_mapping(reading, node, INPUT)
    kind = fields.get("type")
    if "default" not in fields:
        return Input(kind=kind or "text", required=fields.get("required", False))
    if fields.get("required"):
        hint = "take one of the two out"
        reading.report.error("conflict", "an input with a default is never required", node, hint=hint)
        return INVALID
    return _input_default(reading, fields["default"], kind)


def _input_default(reading: Reading, node: Node, kind: Any) -> Any:
    """An input with this default, which must be of its type."""
    value = plain(node)
    if kind == "json" or (kind is None and not isinstance(node, Scalar)):
        return Input(kind="json", default=value)
    if not isinstance(node, Scalar) or (kind is None and value is None):
        return wrong(reading, node, "a default", "an input without one: {required: true} or {type: text}")
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return wrong(reading, node, "a number")
    if kind == "bool" and not isinstance(value, bool):
        return wrong(reading, node, "true or false")
    return Input(kind=kind or "text", default=value if kind in ("number", "bool") else node.text)


def _secrets(reading: Reading, node: Node) -> Any:
    """Secrets: a list of environment variables, or names with where their values come from."""
    result: dict[str, Secret] = {}
    if isinstance(node, Sequence):
        for item in node.items:
            name = text(reading, item)
            if name is not INVALID and _secret_name(reading, name, item):
                result[name] = Secret(env=name)
        return result
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a list of environment variables, or a mapping")
    for name, (key, value) in node.entries.items():
        fields = read_mapping(reading, value, SECRET)
        if _secret_name(reading, name, key) and isinstance(value, Mapping):
            if len(value.entries) != 1:
                reading.report.error("value", f"the secret `{shorten(name)}` needs `env` or `file`, one of them", key)
            else:
                result[name] = Secret(**fields)
    return result


def _secret_name(reading: Reading, name: str, node: Node) -> bool:
    """May a secret be called this? It is an environment variable for the steps."""
    if IDENTIFIER.fullmatch(name):
        return True
    reading.report.error("name", f"`{shorten(name)}` can't be the name of a secret", node)
    return False


def _capture(reading: Reading, node: Node) -> Any:
    """Names that the output gives values to."""
    if isinstance(node, Scalar):
        name = text(reading, node)
        return (Capture(name),) if name is not INVALID and _capture_name(reading, name, node) else INVALID
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a name, or a mapping of names to forms")
    read_form = choice(*CAPTURE_FORMS)
    result: list[Capture] = []
    for name, (key, value) in node.entries.items():
        form = read_form(reading, value)
        if _capture_name(reading, name, key) and form is not INVALID:
            result.append(Capture(name, form))
    return tuple(result)


def _capture_name(reading: Reading, name: str, node: Node) -> bool:
    """May a value be captured under this name, so that `${NAME}` finds it?"""
    if name in ROOTS:
        reading.report.error("reserved", f"`{name}` is reserved and can't be captured", node)
    elif not IDENTIFIER.fullmatch(name):
        hint = "letters, digits and `_`, not starting with a digit"
        reading.report.error("name", f"`{shorten(name)}` can't be the name of a captured value", node, hint=hint)
    else:
        return True
    return False


def _resources(reading: Reading, node: Node) -> Any:
    """What a step takes of the machine."""
    return Resources(**read_mapping(reading, node, RESOURCES))


def _noop(reading: Reading, node: Node) -> Any:
    """`true`, for there is nothing to say about doing nothing."""
    return True if isinstance(node, Scalar) and node.value is True else wrong(reading, node, "true")


def _retry(reading: Reading, node: Node) -> Any:
    """How often, and after which waits: fields of a rule."""
    if isinstance(node, Mapping):
        fields = read_mapping(reading, node, RETRY)
        if "max" not in node.entries:
            reading.report.error("value", "`retry` needs `max`: how often to try again", node)
        return fields
    limit = integer(0, RETRIES_MAX)(reading, node)
    return INVALID if limit is INVALID else {"max": limit}


def _backoff(reading: Reading, node: Node) -> Any:
    """A backoff whose keys fit its type."""
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
    if not {"initial", "delay", "delay_ms"} & node.entries.keys():
        hint = "leave `backoff` out to try again at once"
        reading.report.error("value", "`backoff` needs `initial`: the first delay", node, hint=hint)
    if kind == "linear":
        fields.setdefault("increment_seconds", fields.get("initial_seconds", 0.0))
    return Backoff(**fields)


def _on_failure(reading: Reading, node: Node) -> Any:
    """`true` tolerates; `false` or nothing is no handler; a mapping says more."""
    if isinstance(node, Scalar) and (node.value is None or isinstance(node.value, bool)):
        return bool(node.value)
    if isinstance(node, Mapping):
        fields = read_mapping(reading, node, ON_FAILURE)
        return not fields.get("fail_workflow", True)
    what = "handler commands are" if isinstance(node, Sequence) else "a handler command is"
    reading.report.error("not-yet", f"{what} not run by this version", node, hint="`true` tolerates the failure")
    return INVALID


def _node(_: Reading, node: Node) -> Any:
    """The node itself: whoever asked for it reads it with the rest."""
    return node


INPUT = table(
    "an input", "What is known about a value that the caller gives.",
    Key("default", "value", "Taken where the caller gives none.", _node),
    Key("required", "true or false", "The caller must give it.", boolean),
    Key("type", "text, number, bool, json", "What a given value is read as.", choice("text", "number", "bool", "json")),
)  # fmt: skip
SECRET = table(
    "a secret", "Where a secret's value comes from: one of the two.",
    Key("env", "text", "The environment variable that holds it.", filled(text, "`env`")),
    Key("file", "path", "The file that holds it, relative to the workflow file.", filled(text, "`file`")),
)  # fmt: skip
RESOURCES = table(
    "resources", "What a step takes of the machine while it runs.",
    Key("cpus", "number", "Processors, parts of one included.", number(0.001, CPUS_MAX)),
    Key("memory", "size", "Memory: bytes, or `512m`, `4g`, `4GiB`.", memory, "memory_bytes"),
    Key("gpus", "whole number", "Whole graphics processors, given as CUDA_VISIBLE_DEVICES.", integer(0, GPUS_MAX)),
    Key("runtime", "duration", "Enforced like `timeout`.", duration, "runtime_seconds"),
    later=NOT_YET["resources"],
)  # fmt: skip
BACKOFF = table(
    "backoff", "How long to wait before each further try.",
    Key("type", "fixed, linear, exponential, fibonacci", "How the delay grows; `fixed` where it is left out.",
        choice("fixed", "linear", "exponential", "fibonacci"), "kind"),
    Key("mode", "as `type`", "The same as `type`.", choice("fixed", "linear", "exponential", "fibonacci"), "kind"),
    Key("initial", "duration", "The first delay.", duration_or_zero, "initial_seconds"),
    Key("delay", "duration", "The same as `initial`.", duration_or_zero, "initial_seconds"),
    Key("delay_ms", "number", "The same as `initial`, in milliseconds.", milliseconds, "initial_seconds"),
    Key("increment", "duration", "What a linear delay grows by; its first delay where it is left out.",
        duration_or_zero, "increment_seconds"),
    Key("multiplier", "number", "What an exponential delay is multiplied by; 2 where it is left out.",
        number(1, MULTIPLIER_MAX)),
    Key("max_delay", "duration", "No delay is longer.", duration, "delay_seconds_max"),
    Key("jitter", "number from 0 to 1", "A share of the delay by which it varies.", number(0, 1)),
)  # fmt: skip
RETRY = table(
    "retry", "Try a failed step again.",
    Key("max", "whole number", "How often at the most, the first try not counted.", integer(0, RETRIES_MAX)),
    Key("backoff", "mapping", "The waits in between; none where it is left out.", _backoff),
)  # fmt: skip
ON_FAILURE = table(
    "on_failure", "What happens when a step stays failed.",
    Key("fail_workflow", "true or false", "`false`: the run does not fail for it and dependents go on.", boolean),
    later=NOT_YET["on_failure"],
)  # fmt: skip
ARC = table(
    "an arc", "One way to go on.",
    Key("step", "text", "The step to run next.", text),
    Key("when", "condition", "Only where this holds.", condition),
)  # fmt: skip
ARCS = table(
    "next", "Ways to go on, with a mode.",
    Key("mode", "all, first", "Take every arc that holds, or the first.", choice("all", "first")),
    Key("arcs", "list of arcs", "The arcs, in order.", _node),
)  # fmt: skip
STEP = table(
    "a step", "One node of the workflow; it needs exactly one action.",
    Key("id", "text", "The name of a step in a list.", text),
    Key("name", "text", "The name of a step in a list that has no `id`.", text),
    Key("shell", "command", "Action: a command for the shell; plain words run without one.",
        filled(text, "`shell`")),
    Key("noop", "true", "Action: nothing; a point where steps meet.", _noop),
    Key("shell_program", "text", "The shell that reads the command, instead of the workflow's.", program),
    Key("needs", "name or list of names", 'Steps that must have succeeded; `"a|b"` is satisfied by either.',
        texts(text)),
    Key("next", "name, list, or mapping", "Steps that run because this one went well, each `{step, when}`.", _node),
    Key("when", "condition", "Skip the step where this does not hold.", condition),
    Key("timeout", "duration", "SIGTERM after this time, SIGKILL after the grace time.", duration, "timeout_seconds"),
    Key("grace", "duration", "The time between SIGTERM and SIGKILL.", duration_or_zero, "grace_seconds"),
    Key("env", "mapping", "Added to the environment of the step.", environment),
    Key("working_dir", "path", "Where the step runs, relative to the caller's folder.",
        filled(template, "`working_dir`")),
    Key("capture", "name, or mapping of names to forms", "Gives the output names: " + ", ".join(CAPTURE_FORMS) + ".",
        _capture),
    Key("outputs", "path or list of paths", "Files that must exist when the step is done.",
        texts(filled(template, "an output"))),
    Key("resources", "mapping", "What the step takes of the machine while it runs.", _resources),
    Key("retry", "whole number or mapping", "Try again when the step fails.", _retry),
    Key("rerun_on_loss", "retry, never", "`never`: park an attempt that was lost, instead of running it again.",
        choice("retry", "never"), "on_loss"),
    Key("park", "true or false", "Hold the step for a person to judge when it stays failed.", boolean),
    Key("on_failure", "true, false or mapping", "`true`: dependents go on and the run does not fail for it.",
        _on_failure),
    Key("on_fail", "as `on_failure`", "The same as `on_failure`.", _on_failure, "on_failure"),
    Key("fail_workflow", "true or false", "`false`: the run does not fail for this step.", boolean),
    later=NOT_YET["a step"],
)  # fmt: skip
WORKFLOW = table(
    "the workflow", "The file itself.",
    Key("resile", "1", "The version of the native file.", integer(1, 1)),
    Key("name", "text", "What the workflow is called; the file's name where it is left out.", filled(text, "`name`")),
    Key("max_parallel", "whole number", "Steps that run at once; the number of processors where it is left out.",
        integer(1, PARALLEL_MAX)),
    Key("grace", "duration", "The time between SIGTERM and SIGKILL, for every step.", duration_or_zero,
        "grace_seconds"),
    Key("shell_program", "text", "The shell for every step; `sh` where it is left out.", program),
    Key("env", "mapping", "Added to the environment of every step.", environment),
    Key("inputs", "mapping", "Values that the caller gives, with their defaults.", _inputs),
    Key("secrets", "list or mapping", "Values that never appear in logs, events or the database.", _secrets),
    Key("steps", "list or mapping", "A list runs in order, a mapping by `needs`.", _node),
    later=NOT_YET["the workflow"],
)  # fmt: skip

TABLES: tuple[Table, ...] = (WORKFLOW, STEP, RETRY, BACKOFF, ON_FAILURE, ARCS, ARC, RESOURCES, INPUT, SECRET)
