"""Files of environment variables that a workflow names, and the caller's file of credentials, read before a run.

    NAME=value    export NAME="value"    # a comment

A run also reads the files of the workflows inside its own; the outer workflow overrides the inner ones. The values
override the caller's environment, and the workflow's `env` overrides them. They are not stored with the run.

    my_api: {token: …}      pg_local: {host: …, user: …, password: …, database: …}      (`--credentials FILE`, YAML)

A run gets only the credentials that it declares as secrets, under the names of their variables, here `$MY_API_TOKEN`;
the environment overrides them. If a database has no `dsn`, Resile makes one from its other fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from resile.errors import ResileError
from resile.model.limits import INPUT_BYTES_MAX
from resile.model.nested import workflows_within
from resile.model.workflow import Workflow

CREDENTIALS = "RESILE_CREDENTIALS"
"""The environment variable with the path of the file of credentials; steps do not get it."""
TOKEN_VARIABLE = "RESILE_TOKEN"
"""The environment variable with the caller's right to use a server; steps do not get it."""
# The parts of a connection string, and the fields of a credential that may hold each part.
_PARTS = {
    "host": ("host", "db_host"),
    "port": ("port", "db_port"),
    "dbname": ("database", "dbname", "db_name"),
    "user": ("user", "username", "db_user"),
    "password": ("password", "db_password"),
    "sslmode": ("sslmode",),
}
_LINE = r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)"


def environment_of(workflow: Workflow, caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of a workflow's steps: the caller's, its files, its credentials; without the caller's token."""
    return without_callers_own(add_credentials(workflow, {**caller, **load_env_files(workflow)}))


def without_callers_own(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without the caller's token and without the path of the caller's file of credentials."""
    found = dict(env)
    for name in (CREDENTIALS, TOKEN_VARIABLE):
        found.pop(name, None)
    return found


def load_env_files(workflow: Workflow) -> dict[str, str]:
    """The variables from the files of a workflow and of those inside it; the outermost overrides."""
    values: dict[str, str] = {}
    for one in reversed(list(workflows_within(workflow))):
        values |= _own_files(one)
    return values


def _own_files(workflow: Workflow) -> dict[str, str]:
    """The variables of all files of one workflow; a later file overrides, a missing file is an error before the run."""
    values: dict[str, str] = {}
    for name in workflow.env_files:
        import re

        for number, line in enumerate(_lines(workflow, name), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            match = re.fullmatch(_LINE, text, re.ASCII)
            if match is None or "\0" in text:
                hint = "a line is NAME=value, or a comment that starts with #"
                message = "this is not NAME=value"
                raise ResileError("env-file", message, where=f"{name}:{number}:1", hint=hint)
            values[match[1]] = _value(match[2])
    return values


def _lines(workflow: Workflow, name: str) -> list[str]:
    """The lines of one file; its path is relative to the workflow's folder."""
    try:
        with open(os.path.join(workflow.folder, name), "rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        message = f"env file {name!r}: {error.strerror}"
        raise ResileError("env-file", message, where=workflow.file, hint="it lies beside the workflow file") from error
    if len(data) > INPUT_BYTES_MAX:
        raise ResileError("env-file", f"env file {name!r} has more than {INPUT_BYTES_MAX} bytes", where=workflow.file)
    return data.decode("utf-8", "surrogateescape").splitlines()


def _value(text: str) -> str:
    """A value without its quotes; a comment may follow an unquoted one."""
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    import re

    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()


def add_credentials(workflow: Workflow, env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the secrets that a file of credentials has, and without the name of the file."""
    found = dict(env)
    found.pop(CREDENTIALS, None)
    if not env.get(CREDENTIALS):
        return found
    known = _read_credentials(env[CREDENTIALS])
    for one in workflows_within(workflow):
        for name, secret in one.secrets.items():
            entry, _, field = name.partition(".")
            value = known.get(entry, {}).get(field)
            if value is not None and secret.env:
                found.setdefault(secret.env, value)
    return found


def _read_credentials(file: str) -> dict[str, dict[str, str]]:
    """Read a file of credentials; every value is a text, as it is written."""
    import yaml

    try:
        with open(file, "rb") as stream:
            data: Any = yaml.load(stream.read(INPUT_BYTES_MAX), getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except OSError as error:
        raise ResileError("credentials", f"the credentials can't be read: {error.strerror}", where=file) from error
    except yaml.YAMLError as error:
        # The message of the parser would show a line of the file.
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ResileError("credentials", "the credentials are no YAML", where=f"{file}{place}") from None
    if not isinstance(data, dict) or not all(isinstance(fields, dict) for fields in data.values()):
        hint = "name: {token: …}"
        raise ResileError("credentials", "the credentials must map names to their fields", where=file, hint=hint)
    return {name: _with_dsn({k: v for k, v in fields.items() if isinstance(v, str)}) for name, fields in data.items()}


def _with_dsn(fields: dict[str, str]) -> dict[str, str]:
    """Add the connection string of a database, and its password under its usual name."""
    parts = {part: fields[name] for part, names in _PARTS.items() for name in reversed(names) if name in fields}
    if "host" not in parts:
        return fields
    escaped = {part: value.replace("\\", "\\\\").replace("'", "\\'") for part, value in parts.items()}
    dsn = " ".join(f"{part}='{value}'" for part, value in escaped.items())
    return {"dsn": dsn, **({"password": parts["password"]} if "password" in parts else {}), **fields}
