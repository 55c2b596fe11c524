"""The command of a job, rewritten for bash.

    invocation_script command       the script comes first, on the same line unless it ends with a line break
    ${files.input.N}                the path, quoted for its place; the job reads (or writes) that file
    ${user_data.input.N}            the data as JSON, quoted; without data, the stdout of the job that produces it
    torc user-data get ${…N}        the id of the data; so is ${user_data.output.N} of data that the file does not give
    torc …                          a program on the PATH, if a text of the file calls it (cli/torc.py)
    TORC_JOB_NAME and the like      set from Resile's variables, because commands read them

Every other `${...}` belongs to bash. If it looks like a reference of Resile, it is escaped or refused: no text of a
Torc file gets a value that Torc would not give it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from shlex import quote

from resile.dialects.formats.nodes import Scalar
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import Place
from resile.dialects.torc.dependencies import REFERENCE, Dependencies
from resile.dialects.torc.jobs import Datum, Job
from resile.errors import shorten
from resile.languages.references import MISSING, ValueRefused, names, path_of
from resile.languages.shell.quoting import render_shell

_PASSED_ON = ("WORKFLOW_ID", "JOB_NAME", "OUTPUT_DIR", "ATTEMPT_ID", "API_URL")
# A server knows a job by its number among the jobs of all runs.
_JOB_ID = "TORC_JOB_ID=$((${#RESILE_API_URL} ? RESILE_WORKFLOW_ID << 32 | RESILE_JOB_ID : RESILE_JOB_ID))"
# On the first line of the command, so that bash reports the line numbers of the file.
ENVIRONMENT = f"export {' '.join(f'TORC_{name}=$RESILE_{name}' for name in _PASSED_ON)} {_JOB_ID}; "
_CALLS_TORC = re.compile(r"\btorc\b[^\n;|&]*\b(?:user-data|jobs)\b")
_BEFORE_ID = re.compile(r"\btorc\b[^\n;|&]*\buser-data\s+(?:get|update)\s+[\"']?\Z")
# Where the folder can't be made, on a worker's machine for example, bash and its children know it all the same.
_FUNCTION = 'torc() { "$RESILE_PYTHON" -P -m resile.cli.torc "$@"; }; export -f torc'
_SHIM = '#!/bin/sh\nexec "$RESILE_PYTHON" -P -m resile.cli.torc "$@"\n'
_ON_PATH = 'export PATH="$torc_bin:$PATH"; '
USER_DATA_BYTES_MAX = 100_000
_OURS = ("env", "steps", "execution")
_OURS_IN_REPAIRS = ("error", "shell")


def command_of(reading: Reading, job: Job, known: Dependencies) -> str:
    """The command of a job, for bash."""
    text = _join_script(reading, job)
    values: dict[str, str] = {}
    later: dict[str, str] = {}

    def make_hole(found: re.Match[str]) -> str:
        """Replace a reference of Torc with a plain one, so that its value is quoted for its place."""
        name = f"torc_value_{len(values) + len(later)}"
        kind, way, called = found.groups()
        if kind == "files":
            values[name] = known.files.get(called, "")
        elif (datum := known.user_data.get(called)) is None:
            values[name] = ""
        elif _BEFORE_ID.search(text[: found.start()]) or (way == "output" and datum.text is None):
            values[name] = str(datum.number)
        elif datum.text is not None:
            values[name] = datum.text
        else:
            later[name] = _output_of_producer(reading, job, known, way, called)
        return f"${{{name}}}"

    text = escape_for_bash(reading, REFERENCE.sub(make_hole, text), job.at("command"))
    if values:
        try:
            text = render_shell(text, lambda name: values.get(name, MISSING), "bash")
        except ValueRefused as problem:
            reading.report.error("value", str(problem), job.at("command"))
    for name, reference in later.items():
        text = text.replace(f"${{{name}}}", reference)
    return ENVIRONMENT + known.torc_on_path + text


def torc_on_path(reading: Reading, texts: Iterable[str], user_data: dict[str, Datum], at: Place) -> str:
    """The shell code that puts `torc` on the PATH, if one of these texts calls it."""
    if not any(_CALLS_TORC.search(text) for text in texts):
        return ""
    records = "{" + ",".join(_record_of(name, datum) for name, datum in user_data.items()) + "}"
    # No `${…}` of the data is a reference; a dollar occurs in texts alone.
    records = records.replace("$", "\\u0024")
    if len(records.encode()) > USER_DATA_BYTES_MAX:
        message = f"the user data has more than {USER_DATA_BYTES_MAX} bytes, too many for `torc` in commands"
        reading.report.error("limit", message, at, hint="keep large data in files")
    make = f'mkdir -p "$torc_bin" 2>/dev/null && printf %s {quote(_SHIM)} > "$torc_bin/$$" && chmod +x "$torc_bin/$$"'
    return (
        f"export TORC_USER_DATA={quote(records)}; "
        'torc_bin="$RESILE_OUTPUT_DIR/torc/bin"; '
        f'[ -x "$torc_bin/torc" ] || {{ {make} && mv "$torc_bin/$$" "$torc_bin/torc"; }} || {{ {_FUNCTION}; }}; '
        f"{_ON_PATH}"
    )


def without_surroundings(command: str) -> str:
    """The command of a job without what comes before it in every job of the file, all user data among it."""
    _, found, own = command.partition(_ON_PATH)
    return own if found else command


def _record_of(name: str, datum: Datum) -> str:
    """A piece of user data as `torc` finds it, as JSON by its id."""
    is_ephemeral = _json(datum.is_ephemeral)
    return f'"{datum.number}":{{"name":{_json(name)},"is_ephemeral":{is_ephemeral},"data":{datum.text or "null"}}}'


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _join_script(reading: Reading, job: Job) -> str:
    """Join the invocation script and the command of a job."""
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


def _output_of_producer(reading: Reading, job: Job, known: Dependencies, way: str, name: str) -> str:
    """The reference to the output of the job that produces user data without `data`."""
    if any(
        "user-data update" in known.jobs[other].texts["command"] for other in known.writers["user_data"].get(name, ())
    ):
        message = f"the job that writes the user data `{shorten(name)}` updates it by `torc user-data update`"
        hint = f"read it in the command: torc -f json user-data get ${{user_data.input.{name}}}"
        reading.report.error("value", message, job.at("command"), hint=hint)
        return ""
    producers = [other for other in known.writers["user_data"].get(name, ()) if other != job.name]
    if way == "output" or len(producers) != 1:
        message = f"the user data `{shorten(name)}` has no `data` to put into the command"
        hint = "give it `data`, or let one other job have it as `output_user_data`: its stdout is the data then"
        reading.report.error("value", message, job.at("command"), hint=hint)
        return ""
    mark = '"' if "'" in producers[0] else "'"
    return f"${{steps[{mark}{producers[0]}{mark}].output}}"


def escape_for_bash(reading: Reading, text: str, node: Scalar, *, in_repair: bool = False) -> str:
    """Escape text for bash that Resile would read as a reference."""
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
            # Bash ignores a blank in an index; Resile then sees no reference.
            out += [text[at:offset], f"${{{name.replace('[', '[ ', 1)}}}"]
            at = offset + len(name) + 3
        elif len(path) == 1 and path[0] in ("inputs", "execution", "error"):
            # The first element of a plain variable is its value.
            out += [text[at:offset], f"${{{name}[0]}}"]
            at = offset + len(name) + 3
    return "".join(out) + text[at:]


def script_of(commands: list[str]) -> str:
    """The script that runs commands one after the other, up to the first that fails."""
    if len(commands) == 1:
        return commands[0]
    return "\n".join(f"bash -c {quote(command)} || exit" for command in commands)


def script_of_all(scripts: list[str]) -> str:
    """The script that runs all of these scripts; it fails if one of them failed."""
    if len(scripts) == 1:
        return scripts[0]
    lines = [f"bash -c {quote(script)} || status=$?" for script in scripts]
    return "\n".join(["status=0", *lines, "exit $status"])


def escape_references(path: str) -> str:
    """Escape references in a path, which is taken literally."""
    return path.replace("${", "\\${") if "${" in path else path
