"""The tables of the native file: every accepted key with its reader and its documentation.

The reader, the did-you-mean hints, the tests and the reference page all come from these rows, so they always agree.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, get_args

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, plain
from resile.dialects.native.keys.elsewhere import STEP_WORDS, TYPE_WORDS, WORKFLOW_WORDS
from resile.dialects.native.keys.executor import EXECUTOR, read_executor
from resile.dialects.native.keys.failures import FAILURE_TABLES, ROUTING, read_retries, read_retry
from resile.dialects.native.keys.fanout import FANOUT_TABLES, max_parallel
from resile.dialects.native.keys.ir import IR_STEP, IR_WORKFLOW
from resile.dialects.native.keys.names import capture_name
from resile.dialects.native.step_types.builtin import ASK_KEYS
from resile.dialects.native.step_types.commands import AGENT_SETTINGS, FILE, PROMPT, read_agent
from resile.dialects.native.step_types.programs import HTTP_KEYS, PYTHON_KEYS
from resile.dialects.native.step_types.registry import IR_TYPES, STEP_TYPES
from resile.dialects.reading import values as read
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, Reader, Table, read_mapping, table
from resile.errors import shorten
from resile.model.limits import RETRIES_MAX
from resile.model.workflow import Capture, CaptureForm, Input, Need, Resources, Secret, Step

CAPTURE_FORMS: tuple[CaptureForm, ...] = get_args(CaptureForm)
VERSION = 1
CPUS_MAX = 1_000_000
GPUS_MAX = 10_000
NODES_MAX = 10_000
# The word for memory that is learned from earlier runs.
AUTO = "auto"
MONITOR_SECONDS_DEFAULT = 5.0
MONITOR_SECONDS_MIN = 0.1
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def _path_of(what: str) -> Reader:
    """A reader of paths of files and folders, which warns of patterns: they would silently name nothing."""
    read_path = read.non_empty(read.template, what)

    def read_plain(reading: Reading, node: Node) -> Any:
        path = read_path(reading, node)
        plain_parts = "" if path is INVALID else _REFERENCE.sub("", path)
        mark = next((mark for mark in "*?" if mark in plain_parts), "")
        if mark and not reading.is_checked:
            message = f"`{shorten(path)}` is the path of one file; `{mark}` has no meaning here"
            reading.report.warning("pattern", message, node, hint="name a folder: all that is in it counts")
        return path

    return read_plain


def _inputs(reading: Reading, node: Node) -> Any:
    """Read declared inputs: each a default, or a mapping with type, default and so on."""
    if not isinstance(node, Mapping):
        return read.wrong(reading, node, "a mapping of names to defaults")
    result: dict[str, Input] = {}
    for name, (key, value) in node.entries.items():
        if not reading.is_checked and not read.IDENTIFIER.fullmatch(name.replace("-", "_")):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of an input", key)
            continue
        declared = _input(reading, value)
        if declared is not INVALID:
            result[name] = declared
    return result


def _input(reading: Reading, node: Node) -> Any:
    """Read one input; without a type, a default is text as written and a list is JSON."""
    if not isinstance(node, Mapping):
        return _input_default(reading, node, None)
    fields = read_mapping(reading, node, INPUT)
    kind = fields.get("type")
    if "default" not in fields:
        return Input(kind=kind or "text", required=fields.get("required", False), schema=fields.get("schema"))
    if fields.get("required"):
        hint = "take one of the two out"
        reading.report.error("conflict", "an input with a default is never required", node, hint=hint)
        return INVALID
    if reading.is_checked and kind is not None:
        return Input(kind=kind, default=plain(fields["default"]), schema=fields.get("schema"))
    declared = _input_default(reading, fields["default"], kind)
    return declared if declared is INVALID else replace(declared, schema=fields.get("schema"))


def _input_default(reading: Reading, node: Node, kind: Any) -> Any:
    """Read a default, which must have the type of its input."""
    value = plain(node)
    if kind == "json" or (kind is None and not isinstance(node, Scalar)):
        return Input(kind="json", default=value)
    if not isinstance(node, Scalar) or (kind is None and value is None):
        return read.wrong(reading, node, "a default", "an input without one: {required: true} or {type: text}")
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value)):
        return read.wrong(reading, node, "a finite number")
    if kind == "bool" and not isinstance(value, bool):
        return read.wrong(reading, node, "true or false")
    return Input(kind=kind or "text", default=value if kind in ("number", "bool") else node.text)


def _secrets(reading: Reading, node: Node) -> Any:
    """Read secrets: a list of environment variables, or names with the source of each value."""
    result: dict[str, Secret] = {}
    if isinstance(node, Sequence):
        for item in node.items:
            name = read.text(reading, item)
            if name is not INVALID and _secret_name(reading, name, item):
                result[name] = Secret(env=name)
        return result
    if not isinstance(node, Mapping):
        return read.wrong(reading, node, "a list of environment variables, or a mapping")
    for name, (key, value) in node.entries.items():
        fields = read_mapping(reading, value, SECRET)
        # A keychain secret is named `entry.field`; check it as `entry_field`.
        if _secret_name(reading, name.replace(".", "_", 1), key) and isinstance(value, Mapping):
            if len(value.entries.keys() & {"env", "file"}) != 1:
                reading.report.error("value", f"the secret `{shorten(name)}` needs `env` or `file`, one of them", key)
            else:
                result[name] = Secret(**fields)
    return result


def _secret_name(reading: Reading, name: str, node: Node) -> bool:
    """Is this a valid name for a secret? Steps get it as an environment variable."""
    if read.IDENTIFIER.fullmatch(name) or reading.is_checked:
        return True
    reading.report.error("name", f"`{shorten(name)}` can't be the name of a secret", node)
    return False


def _capture(reading: Reading, node: Node) -> Any:
    """Read the names that captures give to parts of the output."""
    if isinstance(node, Scalar):
        name = read.text(reading, node)
        return (Capture(name),) if name is not INVALID and capture_name(reading, name, node) else INVALID
    if not isinstance(node, Mapping):
        return read.wrong(reading, node, "a name, or a mapping of names to forms")
    read_form = read.choice(*CAPTURE_FORMS)
    result: list[Capture] = []
    for name, (key, value) in node.entries.items():
        form = read_form(reading, value)
        # Templates and code can spell any name, so the value of a step needs no check.
        if form is not INVALID and (form == "value" or capture_name(reading, name, key)):
            result.append(Capture(name, form))
    return tuple(result)


def _memory(reading: Reading, node: Node) -> Any:
    """Read a size, or `auto`."""
    return AUTO if isinstance(node, Scalar) and node.value == AUTO else read.memory(reading, node)


def _monitor(reading: Reading, node: Node) -> Any:
    """Read how often samples are taken, in seconds."""
    fields = read_mapping(reading, node, MONITOR)
    seconds = fields.get("interval", MONITOR_SECONDS_DEFAULT)
    if seconds < MONITOR_SECONDS_MIN:
        message = f"samples are taken every {MONITOR_SECONDS_MIN:g} s at most, not every {seconds:g} s"
        reading.report.error("value", message, node, hint="write `interval: 1s`")
        return INVALID
    return seconds


def _resources(reading: Reading, node: Node) -> Any:
    """Read the resources of a step; `memory` is enforced unless the file says otherwise."""
    fields = read_mapping(reading, node, RESOURCES)
    escalate = fields.pop("escalate", None)
    if fields.get("memory_bytes") == AUTO:
        fields |= {"memory_bytes": 0, "memory_auto": True}
    if "memory_bytes" in fields:
        fields.setdefault("enforce", True)
    elif "enforce" in fields:
        reading.report.error("conflict", "`enforce` has no `memory` to enforce", node, hint="add `memory: 512m`")
    return Resources(**fields), escalate


def _version(reading: Reading, node: Node) -> Any:
    """Check the version of the file."""
    if isinstance(node, Scalar) and type(node.value) is int and node.value > VERSION:
        message = f"this file is for version {node.value}; this Resile reads version {VERSION}"
        reading.report.error("version", message, node, hint="install a newer Resile, or write `resile: 1`")
        return INVALID
    return read.integer(VERSION, VERSION)(reading, node)


def _needs(reading: Reading, node: Node) -> Any:
    """Read names of steps, with their nodes; null (all entries commented out) means no needs."""
    if isinstance(node, Scalar) and node.value is None:
        return (), []
    if isinstance(node, Sequence):
        # Fast path: most needs in large files are lists of plain names.
        names = [item.text for item in node.items if type(item) is Scalar and item.value == item.text]
        if len(names) == len(node.items) and "\0" not in "".join(names):
            return tuple(names), node.items
    found = read.texts(_need)(reading, node)
    return tuple([value for value, _ in found]), [item for _, item in found]


def _need(reading: Reading, node: Node) -> Any:
    """Read a need: a name, names joined by `|`, or a mapping."""
    if not isinstance(node, Mapping):
        return read.text(reading, node)
    fields = read_mapping(reading, node, NEED)
    if not fields.get("any_of"):
        reading.report.error("value", "a need names at least one step in `any_of`", node)
        return INVALID
    names = tuple(name for name, _ in fields["any_of"])
    return Need(names, fields.get("skip_satisfies", False), fields.get("failure_satisfies", False))


INPUT = table(
    "an input", "Properties of an input.",
    Key("default", "value", "The value if the caller gives none."),
    read.true_or_false("required", "The caller must give it."),
    read.one_of("type", "The type of a given value.", "text", "number", "bool", "json", elsewhere=TYPE_WORDS),
    Key("schema", "JSON schema", "The schema that a given value must meet.", read.schema),
)  # fmt: skip
SECRET = table(
    "a secret", "Where a secret's value comes from: one of the two.",
    Key("env", "text", "The environment variable that holds it.", read.non_empty(read.text, "`env`")),
    Key("file", "path", "The file that holds it, relative to the workflow file.", read.non_empty(read.text, "`file`")),
    read.true_or_false("optional", "`true`: the run starts without it, too.", "is_optional"),
)  # fmt: skip
RESOURCES = table(
    "resources", "The resources that a step reserves while it runs.",
    Key("cpus", "number", "Processors, parts of one included.", read.number(0.001, CPUS_MAX)),
    Key("memory", "size", "Memory: bytes, or `512m`, `4g`, `4GiB`; `auto`: what the step needed in earlier runs.",
        _memory, "memory_bytes"),
    Key("gpus", "whole number", "Whole graphics processors, given as CUDA_VISIBLE_DEVICES.", read.integer(0, GPUS_MAX)),
    Key("nodes", "whole number", "Nodes of a cluster, which the step uses alone; it reaches the others with `srun`.",
        read.integer(1, NODES_MAX)),
    Key("runtime", "duration", "Enforced like `timeout`.", read.duration, "runtime_seconds"),
    Key("escalate", "mapping", "Ask for more and try again after oom or a timeout."),
    read.true_or_false("enforce", "`false`: reserve `memory`, and let the step use more."),
)  # fmt: skip
MONITOR = table(
    "resource_monitor", "Samples of memory and CPU of running attempts, for `resile resources`.",
    Key("interval", "duration", "How often a sample is taken; every 5 s by default.", read.duration),
)  # fmt: skip
NEED = table(
    "a need", "Steps to wait for, and what satisfies the need.",
    Key("any_of", "name or list of names", "The step waits for all of these; one success satisfies the need.",
        read.texts(read.text)),
    read.true_or_false("skip_satisfies", "`true`: a skipped step satisfies the need too, as in a list of steps."),
    read.true_or_false("failure_satisfies", "`true`: a failed or canceled step satisfies the need too."),
)  # fmt: skip
ARC = table(
    "an arc", "One way to go on.",
    Key("step", "text", "The step to run next.", read.text),
    Key("when", "condition", "Only where this holds.", read.condition),
    Key("args", "mapping", "Values for the step that it leads to.", read.read_inputs),
)  # fmt: skip
ARCS = table(
    "next", "Ways to go on, with a mode.",
    read.one_of("mode", "Take every arc that holds, or the first.", "all", "first"),
    Key("arcs", "list of arcs", "The arcs, in order."),
)  # fmt: skip
STEP_KEYS = table(
    "a step", "One node of the workflow; it needs exactly one action.",
    Key("id", "text", "The name of a step in a list.", read.text),
    Key("name", "text", "The name of a step in a list that has no `id`.", read.text),
    *(key for row in STEP_TYPES if row not in IR_TYPES for key in (row.key, *row.aliases)),
    Key("result", "name", "Beside `workflow`: the child's step whose output is `${steps.NAME.output}` of this step.",
        read.non_empty(read.text, "`result`")),
    Key("inputs", "mapping", "The parameters of a python step's `main`, or the inputs of a workflow; one `${…}` keeps "
        "the type of its value."),
    Key("needs", "name, mapping, or list", 'Steps that must have succeeded; `"a|b"` is satisfied by either.', _needs),
    Key("when", "condition", "Skip the step where this does not hold.", read.condition),
    Key("env", "mapping", "Added to the environment of the step.", read.environment),
    Key("working_dir", "path", "Where the step runs, relative to the caller's folder.",
        read.non_empty(read.template, "`working_dir`")),
    Key("shell_program", "text", "The shell that reads the command, instead of the workflow's.", read.program),
    read.true_or_false("errexit",
        "`false`: a command of several lines goes on after a line that fails; else it stops there, as with `set -e`, "
        "in bash also for a line whose pipe fails."),
    Key("stdin", "text", "The standard input of the command of `shell`.", read.template),
    Key("capture", "name, or mapping of names to forms", "Gives the output names: " + ", ".join(CAPTURE_FORMS) + ".",
        _capture),
    Key("reads", "path or list of paths",
        "Files, and folders with all that is in them, that the step reads: where their contents have changed, "
        "`rerun --changed` and `run --cached` run it again.",
        read.texts(_path_of("a path"))),
    Key("outputs", "path or list of paths", "Files that must exist when the step is done.",
        read.texts(_path_of("an output"))),
    Key("timeout", "duration", "SIGTERM after this time, SIGKILL after the grace time.",
        read.duration, "timeout_seconds"),
    Key("grace", "duration", "The time between SIGTERM and SIGKILL.", read.duration_or_zero, "grace_seconds"),
    Key("retry", "whole number or mapping", "Try again when the step fails; the same as `on_failure.retry`.",
        read_retry),
    Key("on_failure", "true, false, command, list or mapping",
        "Answers a failure; `true`: dependents go on and the run does not fail for it; `false`: no defaults."),
    Key("on_fail", "as `on_failure`", "The same as `on_failure`.", field="on_failure"),
    Key("on_success", "command, step, list or mapping", "Follows a success, before dependents start."),
    Key("failure_handler", "name", "The rules of `failure_handlers` under this name answer the step's failures first."),
    read.true_or_false("park", "Park the step for a person to judge when it stays failed."),
    Key("max_attempts", "whole number", "As inside `on_failure`, where it belongs.", read.integer(1, RETRIES_MAX)),
    Key("max_retries", "whole number", "As inside `on_failure`, where it belongs.", read_retries, "max_attempts"),
    read.true_or_false("fail_workflow", "As inside `on_failure`; `false`: the run does not fail for this step."),
    read.true_or_false("handler_failure_fatal", "As inside `on_failure`."),
    Key("resources", "mapping", "The resources that the step reserves while it runs.", _resources),
    Key("runs_on", "label or list of labels",
        "The step runs on a worker of a server that has all these labels; it waits until there is one.",
        read.texts(read.non_empty(read.text, "a label"))),
    Key("next", "name, list, or mapping", "Steps to run after a success of this one, each `{step, when}`."),
    read.true_or_false("critical", "`true`: when it fails, every unfinished step beside it is canceled."),
    read.one_of("rerun_on_loss", "`never`: park an attempt that was lost, instead of running it again.", "retry",
        "never",
        field="on_loss"),
    read.true_or_false("commit_required", "The step must have made a commit in the git repository it runs in."),
    Key("ir", "mapping", "Settings that only files of other systems have ([`ir`](ir.md))."),
)  # fmt: skip
FOREACH = table(
    "a step, for items", "Keys of a step whose output is a list, and of the steps that run for each of its items.",
    read.true_or_false("foreach",
        "`true`: the output is a list, and steps that need this one run once for each of its items."),
    read.one_of("fanout", "Below a `foreach` step: `reduce` runs once, after all items; `map` is the default.",
        "map", "reduce"),
    Key("max_parallel", "whole number", "Beside `foreach`: items that run at once.", max_parallel),
    Key("error_policy", "mapping",
        "Beside `foreach`: what failed items mean; without it they fail the fan-out once all are done."),
    Key("on_finish", "command, step, list or mapping",
        "Beside `foreach`: follows the last item, even if items failed."),
)  # fmt: skip
COMMAND = table(
    "a step, in a handler", "The key that only the commands of a handler have.",
    read.true_or_false("continue_on_error", "The next command runs even if this one fails."),
)  # fmt: skip
STEP = replace(
    STEP_KEYS, keys={**STEP_KEYS.keys, **FOREACH.keys, **COMMAND.keys}, under_ir=IR_STEP.keys, elsewhere=STEP_WORDS
)
_MADE_OF_KEYS = (
    "name", "action", "needs", "arcs", "arcs_mode", "rules", "on_loss", "on_success", "timeout_seconds", "env",
    "working_dir", "reads", "outputs", "resources", "runs_on", "called_only", "origin"
)  # fmt: skip
AS_READ = tuple(field for field in Step.__struct_fields__ if field not in _MADE_OF_KEYS)
"""Fields of a Step that are the value of their key."""
WORKFLOW_KEYS = table(
    "the workflow", "The file itself.",
    Key("resile", "1", "The version of the native file.", _version),
    Key("name", "text", "The name of the workflow; the file's name by default.",
        read.non_empty(read.text, "`name`")),
    Key("steps", "list or mapping", "A list runs in order, a mapping by `needs`."),
    Key("inputs", "mapping", "Values that the caller gives, with their defaults.", _inputs),
    Key("env", "mapping", "Added to the environment of every step.", read.environment),
    Key("env_files", "path or list of paths",
        "Files of NAME=value lines beside the workflow file, read when a run starts; `env` overrides them.",
        read.one_or_more(read.non_empty(read.text, "a path"))),
    Key("secrets", "list or mapping",
        "Values that never appear in logs, events or the database; all steps of the run have them.", _secrets),
    Key("max_parallel", "whole number", "Steps that run at once; the number of processors by default.",
        max_parallel),
    Key("grace", "duration", "The time between SIGTERM and SIGKILL, for every step.", read.duration_or_zero,
        "grace_seconds"),
    Key("resource_monitor", "mapping", "Sample memory and CPU of the steps while they run.", _monitor,
        "monitor_seconds"),
    Key("executor", "mapping", "Where attempts run, if not on this machine; as the file of `run --executor`.",
        read_executor),
    Key("shell_program", "text", "The shell for every step; `sh` by default.", read.program),
    read.true_or_false("errexit", "`errexit` for every step."),
    Key("agent", "command or mapping", "The agent that `agent` steps ask; `claude -p` by default.",
        read_agent),
    Key("failure_handlers", "mapping", "Rules by name, which steps share with `failure_handler`."),
    Key("routing", "mapping", "Limits and defaults of jumps and remedies.",
        lambda reading, node: read_mapping(reading, node, ROUTING)),
    read.one_of("mode", "The workflow is `setup`, then a step called `map`, then `reduce`, instead of `steps`.",
        "mapreduce"),
    Key("setup", "list of steps, or {commands}", "What runs before the map, in order."),
    Key("map", "mapping", "What runs for each item."),
    Key("reduce", "list of steps, or {commands}",
        "What runs after the map, in order; it sees `${map.total}` and more."),
    Key("error_policy", "mapping", "What failed items mean, in every map without an `error_policy` of its own."),
    Key("handlers", "mapping", "Lists of steps by name, for `on_item_failure: custom:NAME`."),
    Key("ir", "mapping", "Settings that only files of other systems have ([`ir`](ir.md))."),
)  # fmt: skip
WORKFLOW = replace(WORKFLOW_KEYS, under_ir=IR_WORKFLOW.keys, elsewhere=WORKFLOW_WORDS)

TABLES: tuple[Table, ...] = (
    WORKFLOW, STEP_KEYS, FOREACH, COMMAND, *FANOUT_TABLES, *FAILURE_TABLES, NEED, ARCS, ARC, read.CONDITION, RESOURCES,
    HTTP_KEYS, PYTHON_KEYS, FILE, AGENT_SETTINGS, PROMPT, ASK_KEYS, INPUT, SECRET,
    MONITOR, EXECUTOR
)  # fmt: skip
