"""The command of a job as bash gets it.

    invocation_script command       the script stands in front, on the same line unless it ends its own
    ${files.input.N}                the path, quoted for its place; the job reads (or writes) that file
    ${user_data.input.N}            the data as JSON, quoted; without data what its job wrote to stdout
    TORC_JOB_NAME and its kin       set from ours, because commands and what they call read them

Every other `${...}` belongs to bash. Where it looks like a value of Resile it is written so that it does not, or
refused: text of a Torc file never gets a value that Torc would not give it.
"""

from __future__ import annotations

import re
from shlex import quote
from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Scalar
from resile.dialects.reading.context import Reading
from resile.dialects.torc.jobs import Datum, Job, Names
from resile.errors import shorten
from resile.languages.references import MISSING, ValueRefused, names, path_of
from resile.languages.shell.quoting import render_shell
from resile.model.workflow import Shell

_TOLD = ("WORKFLOW_ID", "JOB_ID", "JOB_NAME", "OUTPUT_DIR", "ATTEMPT_ID", "API_URL")
# On the line of the command itself, so that bash counts its lines as the file does.
ENVIRONMENT = "export " + " ".join(f"TORC_{name}=$RESILE_{name}" for name in _TOLD) + "; "
_REFERENCE = re.compile(r"\$\{(files|user_data)\.(input|output)\.([^}\n]*)\}")
_OURS = ("env", "steps", "execution")
_OURS_IN_REPAIRS = ("error", "shell")
_LISTS = {"files": "{}_files", "user_data": "{}_user_data"}


class Named(Struct, frozen=True):
    """What commands can name: paths, user data, and which job puts out which data."""

    files: dict[str, str]
    user_data: dict[str, Datum]
    producers: dict[str, list[str]]


def add_referred(found: Names, job: Job, named: Named) -> None:
    """A job that names a file or data in its command lists it, too."""
    for word in ("invocation_script", "command"):
        for kind, way, name in _REFERENCE.findall(job.texts.get(word, "")):
            known: dict[str, Any] = named.files if kind == "files" else named.user_data
            if name not in known:
                what = "file" if kind == "files" else "user data"
                found.unknown(name, job.at(word), known, what)
            else:
                job.lists.setdefault(_LISTS[kind].format(way), {})[name] = job.at(word)


def command_of(reading: Reading, job: Job, named: Named) -> Shell:
    """What a job runs."""
    text = _joined(reading, job)
    values: dict[str, str] = {}
    later: dict[str, str] = {}

    def hole(found: re.Match[str]) -> str:
        """A name for a value, which the quoting of shell texts understands."""
        name = f"torc_value_{len(values) + len(later)}"
        kind, way, called = found.groups()
        if kind == "files":
            values[name] = named.files.get(called, "")
        elif (datum := named.user_data.get(called)) is None or datum.text is not None:
            values[name] = datum.text or "" if datum is not None else ""
        else:
            later[name] = _given_later(reading, job, named, way, called)
        return f"${{{name}}}"

    text = for_bash(reading, _REFERENCE.sub(hole, text), job.at("command"))
    if values:
        try:
            text = render_shell(text, lambda name: values.get(name, MISSING), "bash")
        except ValueRefused as problem:
            reading.report.error("value", str(problem), job.at("command"))
    for name, reference in later.items():
        text = text.replace(f"${{{name}}}", reference)
    return Shell(ENVIRONMENT + text, "bash")


def _joined(reading: Reading, job: Job) -> str:
    """The script and the command."""
    script, command = job.texts.get("invocation_script", ""), job.texts["command"]
    if not script.strip():
        return command
    if script.endswith("\n"):
        return script + command
    if script.rpartition("\n")[2].lstrip().startswith("#"):
        message = (
            "`invocation_script` ends in a comment, which would hide the command: the command stands on a new line"
        )
        hint = "end it with a line break"
        if "\\n" in script:
            hint = "`\\n` is a backslash and an n here: the whole script is one comment"
        reading.report.warning("comment", message, job.at("invocation_script"), hint=hint)
        return f"{script}\n{command}"
    return f"{script} {command}"


def _given_later(reading: Reading, job: Job, named: Named, way: str, name: str) -> str:
    """The output of the job that gives a piece of user data without `data`."""
    producers = [other for other in named.producers.get(name, ()) if other != job.name]
    if way == "output" or len(producers) != 1:
        message = f"the user data `{shorten(name)}` has no `data` to put into the command"
        hint = "give it `data`, or let one other job have it as `output_user_data`: its stdout is the data then"
        reading.report.error("value", message, job.at("command"), hint=hint)
        return ""
    mark = '"' if "'" in producers[0] else "'"
    return f"${{steps[{mark}{producers[0]}{mark}].output}}"


def for_bash(reading: Reading, text: str, node: Scalar, *, in_repair: bool = False) -> str:
    """A text in which nothing that is meant for bash can be taken for a value of Resile."""
    if "${" not in text:
        return text
    out: list[str] = []
    at = 0
    ours = (*_OURS, *_OURS_IN_REPAIRS) if in_repair else _OURS
    for name, offset in names(text):
        path = path_of(name)
        by_number = len(path) > 1 and isinstance(path[1], int)
        if len(path) > 1 and not by_number and (path[0] in ours or ":-" in name):
            message = f"`${{{shorten(name)}}}` is no variable of Torc, and bash has no such name"
            reading.report.error("reference", message, node, hint="a variable of the environment is `$NAME`")
        elif by_number and ":-" in name:
            # An index with a blank means the same to bash, and nothing to us.
            out += [text[at:offset], f"${{{name.replace('[', '[ ', 1)}}}"]
            at = offset + len(name) + 3
        elif len(path) == 1 and path[0] in ("inputs", "execution", "error"):
            # The first element of a plain variable is its value.
            out += [text[at:offset], f"${{{name}[0]}}"]
            at = offset + len(name) + 3
    return "".join(out) + text[at:]


def script_of(commands: list[str]) -> str:
    """Commands that run one after the other, each for itself; the script fails where one of them did."""
    if len(commands) == 1:
        return commands[0]
    lines = [f"bash -c {quote(command)} || status=$?" for command in commands]
    return "\n".join(["status=0", *lines, "exit $status"])
