"""The step types `shell`, `validate`, `agent`, `write_file` and `noop`."""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.context import Defaults, NativeReading
from resile.dialects.native.step_types.contract import StepType
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, read_mapping, struct_reader, table
from resile.dialects.reading.values import (
    duration,
    integer,
    non_empty,
    number,
    one_of,
    only_true,
    template,
    text,
    texts,
    wrong,
)
from resile.languages.shell.quoting import plain_argv
from resile.model.workflow import Agent, Noop, Shell, Validate, WriteFile

COST_MAX = 1_000_000
TOKENS_MAX = 1_000_000_000
_SETS_ERREXIT = re.compile(r"(?:^|;)\s*set\s(.*\s)?(-[a-zA-Z]*e|-o\s+errexit)")
_CONTINUED = ("\\", "&&", "||", "|")
_MARKS = re.compile(r"\\.|['\"]|(?<!\S)#")
# A number after it is a shift of bits in arithmetic.
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?([A-Za-z_]\w*)")


def _shell(reading: NativeReading, _: str, node: Mapping, fields: dict[str, Any], inner: Defaults) -> Shell:
    """The command of a step."""
    command = node.entries["shell"][1]
    _record_references(reading, command, inner.program)
    errexit = stops_at_first_failure(reading, command, fields["shell"], inner)
    return Shell(fields["shell"], inner.program, fields.get("stdin", ""), errexit)


def _validate(reading: NativeReading, _: str, node: Mapping, fields: dict[str, Any], inner: Defaults) -> Validate:
    """The command of a check."""
    command = node.entries["validate"][1]
    _record_references(reading, command, inner.program)
    errexit = stops_at_first_failure(reading, command, fields["validate"], inner)
    return Validate(fields["validate"], inner.program, errexit)


def stops_at_first_failure(reading: NativeReading, node: Node, command: str, inner: Defaults) -> bool:
    """Does a command stop at the first line that fails? Lines count as written, before values are put in."""
    if not has_several_lines(command):
        return False
    if inner.errexit is False:
        if reading.errexit is False and goes_on_after_failure(command):
            message = "a command of several lines goes on after a line that fails, and the last one decides"
            reading.report.notice("tolerated", message, node, hint="`set -e` as its first line stops it there")
        return False
    if inner.errexit is None:
        message = "since 0.2 a command of several lines stops at the first line that fails"
        reading.report.notice("since-0.2", message, node, hint="`errexit: false` goes on, `errexit: true` says this")
    return True


def goes_on_after_failure(command: str) -> bool:
    """Can a line of this text fail without stopping it? Not in one command over several lines, nor after `set -e`."""
    commands, quote, is_open = 0, "", False
    lines = iter(map(str.strip, command.splitlines()))
    for line in lines:
        if not quote and _SETS_ERREXIT.search(line):
            return False
        if not quote and (not line or line.startswith("#")):
            continue
        commands += not is_open
        quote = _quote_after(line, quote)
        is_open = bool(quote) or line.endswith(_CONTINUED)
        body = None if quote else _HERE_DOCUMENT.search(line)
        while body is not None and next(lines, body[1]) != body[1]:
            pass
    return commands > 1


def _quote_after(line: str, quote: str) -> str:
    """The quotation mark that is open after a line, if one is."""
    for mark in _MARKS.findall(line):
        if not quote and mark == "#":
            break
        if not quote and len(mark) == 1:
            quote = mark
        elif quote and mark[-1] == quote and (len(mark) == 1 or quote == "'"):
            quote = ""
    return quote


def has_several_lines(command: str) -> bool:
    """Is a command written on several lines?"""
    return "\n" in command.strip()


def _record_references(reading: NativeReading, command: Node, program: str) -> None:
    mark = "${" if reading.language.has_references else "{{"
    if isinstance(command, Scalar) and mark in command.text:
        reading.refers(command, program)


def _agent(reading: NativeReading, _: str, __: Mapping, fields: dict[str, Any], ___: Defaults) -> Agent:
    settings = {field: value for field, value in reading.agent.items() if field != "timeout_seconds"}
    return Agent(**settings | fields["agent"])


def _prompt(reading: Reading, node: Node) -> Any:
    """A prompt, alone or with an agent of its own: fields of an Agent."""
    if not isinstance(node, Mapping):
        prompt = PROMPT.keys["prompt"].read(reading, node)
        return prompt if prompt is INVALID else {"prompt": prompt}
    fields = read_mapping(reading, node, PROMPT)
    if "prompt" not in node.entries:
        reading.report.error("value", "`agent` needs `prompt`", node)
    return fields if "prompt" in fields else INVALID


def read_agent(reading: Reading, node: Node) -> Any:
    """The agent of a workflow: its settings, with the command as words."""
    if isinstance(node, Scalar) and node.value is not None:
        command = _agent_command(reading, node)
        return INVALID if command is INVALID else {"command": command}
    return read_mapping(reading, node, AGENT_SETTINGS)


def _agent_command(reading: Reading, node: Node) -> Any:
    """The words of an agent's command: a list, or a text of plain words."""
    if isinstance(node, Sequence):
        words = [word for word, _ in texts(non_empty(text, "a word of the command"))(reading, node)]
    else:
        command = text(reading, node)
        if command is INVALID:
            return INVALID
        words = list(plain_argv(command) or ())
    return tuple(words) or wrong(reading, node, "the words of a command", "command: [claude, -p]")


def read_mode(reading: Reading, node: Node) -> Any:
    """Read the permissions of a file: octal, with or without a leading zero, quoted or not."""
    digits = node.text.removeprefix("0o") if isinstance(node, Scalar) else ""
    if 3 <= len(digits) <= 4 and set(digits) <= set("01234567"):
        return int(digits, 8)
    return wrong(reading, node, "permissions such as 644 or 0755")


AGENT_SETTINGS = table(
    "agent", "The command line of an agent.",
    Key("command", "text or list of words", "The command to call; `claude -p` by default.", _agent_command),
    one_of("prompt", "How the agent gets the prompt; as the last argument by default.", "argument", "stdin",
        field="prompt_by"),
    Key("max_cost", "number", "An answer that reports a higher cost has failed.", number(0.000001, COST_MAX),
        "cost_max"),
    Key("max_tokens", "whole number", "An answer that reports more tokens has failed.", integer(1, TOKENS_MAX),
        "tokens_max"),
    Key("timeout", "duration", "The time for each prompt, for steps without a `timeout`.", duration, "timeout_seconds"),
)  # fmt: skip
PROMPT = table(
    "agent, of a step", "A prompt for an agent of its own.",
    Key("prompt", "text", "The prompt.", non_empty(template, "the prompt")),
    one_of("prompt_by", "How the agent gets the prompt.", "argument", "stdin"),
    *(AGENT_SETTINGS.keys[word] for word in ("command", "max_cost", "max_tokens")),
)  # fmt: skip
FILE = table(
    "write_file", "A file made from text.",
    Key("path", "path", "The path, relative to the step's folder; no value leads out of the folder it stands in.",
        non_empty(template, "`path`")),
    Key("content", "text", "The content of the file.", template),
    one_of("format", "`json`: the content must be JSON, and is formatted; `yaml`: it must be YAML.",
        "text", "json", "yaml"),
    Key("mode", "permissions", "The permissions in octal; 644 by default.", read_mode),
)  # fmt: skip

SHELL = StepType(
    Key("shell", "command", "Action: a command for the shell; plain words run without one.",
        non_empty(text, "`shell`")),
    Shell,
    build=_shell,
    write=lambda action, _, __: {"shell": action.command} | ({"stdin": action.stdin} if action.stdin else {}),
    beside=("shell_program", "stdin", "errexit"),
)  # fmt: skip
VALIDATE = StepType(
    Key("validate", "command", "Action: a command that checks; its failure is of the kind `check`.",
        non_empty(text, "`validate`")),
    Validate,
    build=_validate,
    write=lambda action, _, __: {"validate": action.command},
    beside=("shell_program", "errexit"),
)  # fmt: skip
AGENT = StepType(
    Key("agent", "prompt or mapping", "Action: a prompt for the workflow's agent, or for one of its own.", _prompt),
    Agent,
    PROMPT,
    "prompt",
    _agent,
    aliases=(Key("claude", "as `agent`", "The same as `agent`.", _prompt, "agent"),),
)
WRITE_FILE = StepType(
    Key("write_file", "mapping", "Action: a file made from text; it appears whole or not at all.",
        struct_reader(WriteFile, FILE, "", "path", "content", called="`write_file`")),
    WriteFile, FILE, makes_commits=False
)  # fmt: skip
NOOP = StepType(
    Key("noop", "true", "Action: nothing; a point where steps meet.", only_true),
    Noop,
    build=lambda *_: Noop(),
    write=lambda *_: {"noop": True},
    makes_commits=False,
)
