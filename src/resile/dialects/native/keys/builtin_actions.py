"""The keys of steps that run inside the engine, and of values computed from a step's output.

    script, log, memory, ask, collect    actions without a process
    transform, checks                    the value of a step, and the conditions that it must meet
    args, aliases                        more names that the texts and the code of a step can use

Texts stay as written: the engine renders them in the workflow's template language when an attempt starts.
"""

from __future__ import annotations

from typing import Any, get_args

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, plain
from resile.dialects.native.keys.programs import read_data
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, Reader, Table, read_mapping, table
from resile.dialects.reading.values import boolean, choice, code, non_empty, template, text, texts, wrong
from resile.errors import shorten
from resile.model.builtin_actions import (
    Ask,
    Check,
    Collect,
    Computed,
    Log,
    LogLevel,
    Memory,
    MemoryFile,
    MemoryOperation,
    Script,
    Transform,
)

INSIDE_ACTIONS = ("script", "log", "memory", "ask", "collect")
_TAKES_KEY = ("get", "set", "append", "increment", "delete")
_TAKES_VALUE = ("set", "append", "increment")


def _struct(make: Any, known: Table, short: str, *needed: str) -> Reader:
    """Make a reader of a Struct; a plain text sets the field `short`."""

    def read_struct(reading: Reading, node: Node) -> Any:
        """Read the Struct, and report missing keys."""
        if short and isinstance(node, Scalar) and node.value is not None:
            value = known.keys[short].read(reading, node)
            return INVALID if value is INVALID else make(**{known.keys[short].field or short: value})
        before = len(reading.report.errors)
        fields = read_mapping(reading, node, known)
        if isinstance(node, Mapping):
            for key in needed:
                if key not in node.entries:
                    reading.report.error("value", f"{known.name} needs `{key}`", node)
        return INVALID if len(reading.report.errors) > before else make(**fields)

    return read_struct


def _memory(reading: Reading, node: Node) -> Any:
    """Read one memory operation, with exactly the keys that it takes."""
    action = _struct(Memory, MEMORY, "", "operation")(reading, node)
    if action is INVALID or not isinstance(node, Mapping):
        return INVALID
    given = [key for key in ("value", "code") if key in node.entries]
    problem = ""
    if (action.operation in _TAKES_KEY) != ("key" in node.entries):
        problem = f"`{action.operation}` {'needs' if action.operation in _TAKES_KEY else 'takes no'} `key`"
    elif len(given) > 1:
        problem = "`value` and `code` say the same thing"
    elif given and action.operation not in _TAKES_VALUE:
        problem = f"`{action.operation}` takes no `{given[0]}`"
    elif not given and action.operation in ("set", "append"):
        problem = f"`{action.operation}` needs `value` or `code`"
    if problem:
        reading.report.error("conflict", problem, node)
        return INVALID
    return action


def _collect(reading: Reading, node: Node) -> Any:
    """Read names, each with a template or code."""
    if not isinstance(node, Mapping) or not node.entries:
        return wrong(reading, node, "a mapping of names to templates, or to {code}")
    found: list[Computed] = []
    for name, (_, value) in node.entries.items():
        if isinstance(value, Mapping):
            fields = read_mapping(reading, value, COMPUTED)
            found += [Computed(name, fields.get("template", ""), fields["code"])] if "code" in fields else []
            if "code" not in value.entries:
                reading.report.error("value", f"`{shorten(name)}` needs `code`, or a template", value)
        elif (template_text := template(reading, value)) is not INVALID:
            found.append(Computed(name, template_text))
    return Collect(tuple(found)) if len(found) == len(node.entries) else INVALID


def _checks(reading: Reading, node: Node) -> Any:
    """Read a list of conditions."""
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of checks")
    read = _struct(Check, CHECK, "", "name", "code", "must")
    return tuple(check for item in node.items if (check := read(reading, item)) is not INVALID)


def read_arguments(reading: Reading, node: Node) -> Any:
    """Read a mapping of names to data."""
    return (
        read_data(reading, node) if isinstance(node, Mapping) else wrong(reading, node, "a mapping of names to values")
    )


def _aliases(reading: Reading, node: Node) -> Any:
    """Read alternative names of steps."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to steps")
    named = {name: non_empty(text, "a name")(reading, value) for name, (_, value) in node.entries.items()}
    return {name: step for name, step in named.items() if step is not INVALID}


def read_words(reading: Reading, node: Node) -> Any:
    """One word or a list of them."""
    return tuple(word for word, _ in texts(non_empty(text, "a word"))(reading, node))


def schema(reading: Reading, node: Node) -> Any:
    """Read a JSON schema, which must be a mapping."""
    is_schema = isinstance(node, Mapping) or (isinstance(node, Scalar) and isinstance(node.value, bool))
    return plain(node) if is_schema else wrong(reading, node, "a JSON schema")


SCRIPT = table(
    "script", "JavaScript, run inside the engine; what it returns is the output.",
    Key("code", "code", "The inside of a function.", code),
    Key("namespace", "text", "The part of the run's memory that it sees; `default` where it is left out.",
        non_empty(text, "`namespace`")),
)  # fmt: skip
LOG = table(
    "log", "A message for people.",
    Key("message", "text", "What is said.", template),
    Key("level", ", ".join(get_args(LogLevel)), "`info` where it is left out.", choice(*get_args(LogLevel))),
    Key("with_outputs", "true or false", "`true`: add what the steps gave that it needs.", boolean),
)  # fmt: skip
MEMORY = table(
    "memory", "One operation on the run's memory.",
    Key("operation", ", ".join(get_args(MemoryOperation)), "What is done.", choice(*get_args(MemoryOperation))),
    Key("key", "text", "The name of the value.", non_empty(template, "`key`")),
    Key("namespace", "text", "The part of the memory; `default` where it is left out.", non_empty(text, "`namespace`")),
    Key("value", "data", "What is stored; its texts may refer to values.", read_data),
    Key("code", "code", "The same, computed.", code),
)  # fmt: skip
ASK = table(
    "ask", "A question for a person; `resile judge … skip --output ANSWER` answers it.",
    Key("question", "text", "What is asked.", non_empty(template, "the question")),
    Key("default", "text", "What an empty answer means.", text),
)  # fmt: skip
COMPUTED = table(
    "a collected value", "A value that is computed; one that is just a text is a template.",
    Key("code", "code", "The inside of a function that returns it.", code),
    Key("template", "text", "A template that stands beside the code.", template),
)  # fmt: skip
TRANSFORM = table(
    "transform", "From what an attempt printed to the value of its step: parsed, then the template, then the code.",
    Key("parse", "auto, json, text, last",
        "`auto`: JSON where it is JSON; `json` insists on it; `text` leaves it; `last`: the last line, as JSON.",
        choice("auto", "json", "text", "last")),
    Key("template", "text", "A text that is made of the output.", text),
    Key("code", "code", "The inside of a function that sees `output` and returns the value.", code),
    Key("as_items", "true or false", "`true`: whatever is there becomes a list.", boolean),
    Key("schema", "JSON schema", "What the value must be.", schema),
)  # fmt: skip
CHECK = table(
    "a check", "A condition on an attempt that went well.",
    Key("name", "text", "What it is called.", non_empty(text, "`name`")),
    Key("code", "code", "The inside of a function, or an expression, whose answer counts.", code),
    Key("must", "true or false", "The answer that is wanted.", boolean),
    Key("effect", "fail, halt, remark", "Else the attempt fails; the whole scope ends; only a remark is kept.",
        choice("fail", "halt", "remark")),
    Key("message", "text", "What is said then.", text),
)  # fmt: skip
MEMORY_FILE = table(
    "memory_file", "The file in which the memory of a workflow is kept between runs.",
    Key("path", "path", "Which file, relative to the caller's folder.", non_empty(text, "`path`")),
    Key("load", "true or false", "`false`: begin with nothing.", boolean),
    Key("save", "true or false", "`false`: write nothing.", boolean),
)  # fmt: skip
read_memory_file = _struct(MemoryFile, MEMORY_FILE, "path", "path")

ACTION_KEYS = (
    Key("script", "code or mapping", "Action: JavaScript inside the engine; it may write the run's memory.",
        _struct(Script, SCRIPT, "code", "code")),
    Key("log", "text or mapping", "Action: a message.", _struct(Log, LOG, "message", "message")),
    Key("memory", "mapping", "Action: an operation on the run's memory.", _memory),
    Key("ask", "text or mapping", "Action: a question; the step is parked until somebody answers.",
        _struct(Ask, ASK, "question", "question")),
    Key("collect", "mapping", "Action: values that the workflow gives to whoever runs it; later ones see earlier ones.",
        _collect),
)  # fmt: skip
OUTPUT_KEYS = (
    Key("transform", "mapping", "What becomes of the output.", _struct(Transform, TRANSFORM, "")),
    Key("checks", "list of checks", "What the value must meet.", _checks),
    Key("args", "mapping", "Values for the texts and the code of the step.", read_arguments),
    Key("aliases", "mapping", "Other names under which the step sees the outputs of steps.", _aliases),
    Key("tags", "word or list", "Words by which conditions tell steps apart.", read_words),
    Key("events", "word or list", "Events by which conditions tell whether the step is wanted.", read_words),
    Key("group", "text", "The group in which reports show it.", non_empty(text, "`group`")),
)  # fmt: skip
OUTPUT_FIELDS = tuple(key.name for key in OUTPUT_KEYS)
INSIDE_TABLES = (SCRIPT, LOG, MEMORY, ASK, COMPUTED, TRANSFORM, CHECK, MEMORY_FILE)
