"""The step types that run inside the engine: `script`, `log`, `memory`, `ask` and `collect`.

Texts stay as written: the engine renders them in the workflow's template language when an attempt starts.
"""

from __future__ import annotations

from typing import Any, get_args

from resile.dialects.formats.nodes import Mapping, Node
from resile.dialects.native.step_types.contract import StepType
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, read_mapping, struct_reader, table
from resile.dialects.reading.values import code, non_empty, one_of, read_data, template, text, true_or_false, wrong
from resile.errors import shorten
from resile.model.builtin_actions import Ask, Collect, Computed, Log, LogLevel, Memory, MemoryOperation, Script

_TAKES_KEY = ("get", "set", "append", "increment", "delete")
_TAKES_VALUE = ("set", "append", "increment")


def _memory(reading: Reading, node: Node) -> Any:
    """Read one memory operation, with exactly the keys that it takes."""
    action = _read_operation(reading, node)
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
            fields = read_mapping(reading, value, _COMPUTED)
            found += [Computed(name, code=fields["code"])] if "code" in fields else []
            if "code" not in value.entries:
                reading.report.error("value", f"`{shorten(name)}` needs `code`, or a template", value)
        elif (template_text := template(reading, value)) is not INVALID:
            found.append(Computed(name, template_text))
    return Collect(tuple(found)) if len(found) == len(node.entries) else INVALID


def _write_collect(action: Collect, _: object, __: object) -> dict[str, Any]:
    return {"collect": {each.name: {"code": each.code} if each.code else each.template for each in action.values}}


_SCRIPT = table(
    "script", "JavaScript that the engine runs; the step's output is its return value.",
    Key("code", "code", "The body of a function.", code),
    Key("namespace", "text", "The part of the run's memory that it sees; `default` by default.",
        non_empty(text, "`namespace`")),
)  # fmt: skip
_LOG = table(
    "log", "A message for the log.",
    Key("message", "text", "The text of the message.", template),
    one_of("level", "`info` by default.", *get_args(LogLevel)),
    true_or_false("with_outputs", "`true`: add the outputs of the steps that it needs."),
)  # fmt: skip
_MEMORY = table(
    "memory", "One operation on the run's memory.",
    one_of("operation", "The operation.", *get_args(MemoryOperation)),
    Key("key", "text", "The name of the value.", non_empty(template, "`key`")),
    Key("namespace", "text", "The part of the memory; `default` by default.", non_empty(text, "`namespace`")),
    Key("value", "data", "The value to store; its texts may refer to values.", read_data),
    Key("code", "code", "JavaScript that computes the value to store.", code),
)  # fmt: skip
ASK_KEYS = table(
    "ask", "A question for a person; the step waits, parked, until `resile answer RUN STEP TEXT`.",
    Key("question", "text", "The text of the question.", non_empty(template, "the question")),
    Key("default", "text", "The value of an empty answer.", text),
)  # fmt: skip
_COMPUTED = table(
    "a collected value", "A value that code computes; a plain text is a template.",
    Key("code", "code", "The body of a function that returns the value.", code),
)  # fmt: skip
_read_operation = struct_reader(Memory, _MEMORY, "", "operation")

SCRIPT = StepType(
    Key("script", "code or mapping", "Action: JavaScript that the engine runs; it may write the run's memory.",
        struct_reader(Script, _SCRIPT, "code", "code")),
    Script, short="code", makes_commits=False
)  # fmt: skip
LOG = StepType(
    Key("log", "text or mapping", "Action: a message.", struct_reader(Log, _LOG, "message", "message")),
    Log, short="message", makes_commits=False
)  # fmt: skip
MEMORY = StepType(
    Key("memory", "mapping", "Action: an operation on the run's memory.", _memory), Memory, makes_commits=False
)
ASK = StepType(
    Key("ask", "text or mapping", "Action: a question; the step waits, parked, until `resile answer` answers it.",
        struct_reader(Ask, ASK_KEYS, "question", "question")),
    Ask, short="question", makes_commits=False
)  # fmt: skip
COLLECT = StepType(
    Key("collect", "mapping", "Action: the outputs of the workflow; later ones see earlier ones.",
        _collect),
    Collect,
    write=_write_collect,
    makes_commits=False,
)  # fmt: skip
ASK_RULE = "ask"
"""The text of the rule by which a question waits for its answer."""
BUILTIN_TABLES = (_SCRIPT, _LOG, _MEMORY, _COMPUTED)
