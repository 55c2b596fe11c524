"""Files of environment variables that a workflow names, read when a run starts or resumes.

    NAME=value    export NAME="value"    # a comment

A run also reads the files of the workflows inside its own; the outer workflow overrides the inner ones. The values
override the caller's environment, and the workflow's `env` overrides them. They are not stored with the run.
"""

from __future__ import annotations

import os
import re

from resile.errors import ResileError
from resile.model.limits import INPUT_BYTES_MAX
from resile.model.nested import workflows_within
from resile.model.workflow import Workflow

_LINE = r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)"


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
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
