"""Sends a workflow to a server: the file, and the other files that it includes or reads.

The client compiles the file first, so that errors and inputs are the same as for a run on this machine. The server
compiles it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from resile.commands.load import STDIN, STDIN_NAME, Loaded, load, load_text, read_stdin
from resile.commands.start.call import Given, RunCall
from resile.dialects.reading.beside import noting_files
from resile.errors import ResileError
from resile.model.limits import INPUT_BYTES_MAX
from resile.model.nested import steps_within, workflows_within
from resile.model.workflow import FanOut, Workflow

_NOT_GIVEN = object()


def body_of(call: RunCall, priority: int, key: str) -> tuple[dict[str, Any], Loaded]:
    """The body of the request that starts a run, and the workflow that this process compiled."""
    _refuse_local(call)
    loaded, text, files = _read(call)
    limits, choice, options = call.limits, call.choice, call.compile_options
    body = {
        "text": text,
        "file": _name_of(call.path),
        "files": files,
        "dialect": options.dialect,
        "profile": options.profile,
        "inputs": given_values(loaded.workflow, call.inputs, are_others_known=False),
        "labels": call.labels,
        "priority": priority,
        "key": key,
        "first": choice.first,
        "only": choice.only,
        "skip": choice.skip,
        "max_loops": call.loops_max,
        "retry_max": call.retry_max,
        "failure_routing": call.failure_routing,
        "force": call.force,
        "max_parallel": limits.max_parallel or (None if loaded.workflow.max_parallel else limits.parallel_default),
        "cpus": limits.cpus,
        "memory_bytes": limits.memory_bytes,
        "gpus": limits.gpus,
    }
    return body, loaded


def _refuse_local(call: RunCall) -> None:
    """Refuse options that a server does not offer."""
    for given, what, hint in (
        (call.output, "--output", "the server's own --output says where the output of steps is"),
        (call.executor, "--executor", "write `executor` into the file, or leave it out: the server decides"),
        (call.base, "--base", "`resile run` without --server compares with the checkout here"),
    ):
        if given:
            raise ResileError("not-on-server", f"{what} is for runs on this machine", hint=hint)
    if call.workflow is not None or call.path.endswith(".py"):
        message = "a workflow in Python is not sent to a server: its code would run there"
        raise ResileError("not-on-server", message, hint="`resile run` without --server runs it")


def _read(call: RunCall) -> tuple[Loaded, str, dict[str, str]]:
    """The workflow, the text of its file, and, by paths below its folder, the other files that it uses."""
    with noting_files() as noted:
        if call.path == STDIN:
            data = read_stdin()
            loaded, folder = load_text(data, call.compile_options), os.getcwd()
        else:
            loaded = load(call.path, None, call.compile_options)
            folder = os.path.dirname(os.path.abspath(call.path))
            data = noted.pop(os.path.abspath(call.path))
    noted |= {path: _content(path) for path in _item_files(loaded.workflow, folder)}
    files = {}
    for path, content in noted.items():
        name = os.path.relpath(path, folder)
        if name.startswith(".."):
            message = f"{path} is not below the folder of the workflow, so it is not sent to the server"
            raise ResileError("not-on-server", message, where=path, hint="put it beside the file")
        files[name] = _text(content, path)
    return loaded, _text(data, call.path), files


def _item_files(workflow: Workflow, folder: str) -> Iterator[str]:
    """The files beside the workflow that have the items of its maps."""
    for flow in workflows_within(workflow):
        for step in steps_within(flow.steps):
            name = step.action.source.path if isinstance(step.action, FanOut) else ""
            path = os.path.join(flow.folder or folder, name)
            if name and "${" not in name and os.path.isfile(path):
                yield os.path.abspath(path)


def _content(path: str) -> bytes:
    """The content of a file; refuses a file that is too large."""
    with open(path, "rb") as file:
        data = file.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise ResileError("not-on-server", f"{path} has more than {INPUT_BYTES_MAX} bytes", where=path)
    return data


def _text(data: bytes, path: str) -> str:
    """The text of a file."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ResileError("not-on-server", f"{path} is not UTF-8, so it can't be sent", where=path) from error


def _name_of(path: str) -> str:
    """The name of the file in messages of the server: the caller's path if that is below this folder, else its end."""
    if path == STDIN:
        return STDIN_NAME
    parts = path.split("/")
    return path if all(part not in ("", ".", "..") for part in parts) else os.path.basename(path)


def given_values(workflow: Workflow, given: Given, *, are_others_known: bool) -> dict[str, Any]:
    """The values of the inputs that a caller gives, even if they equal the defaults.

    With `are_others_known` the run exists, and all its inputs have values. For a new run the caller must give every
    required input.
    """
    if not (workflow.inputs or given):
        return {}
    from resile.commands.start.inputs import read_inputs

    known = [name for name, declared in workflow.inputs.items() if are_others_known or not declared.required]
    found = read_inputs(workflow, given, dict.fromkeys(known, _NOT_GIVEN))
    return {name: value for name, value in found.items() if value is not _NOT_GIVEN}
