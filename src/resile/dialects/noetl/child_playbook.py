"""Playbooks that steps call: a file relative to this one, or the file in its folder with this `metadata.path`.

The step waits for that playbook and inherits its verdict. The playbook gets the values of its workload, and all other
arguments of the step.
"""

from __future__ import annotations

import os
import re
from typing import Any

from resile.dialects.formats.nodes import Node, Scalar
from resile.dialects.native.child_workflow import compile_child
from resile.dialects.native.nodes import word
from resile.dialects.noetl.values import NoetlReading, name
from resile.dialects.reading.beside import open_beside
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID
from resile.errors import shorten
from resile.languages.jinja.templates import is_template
from resile.model.workflow import Noop, Step

FILES_LOOKED_AT_MAX = 1_000
HEAD_BYTES = 8 * 1024
_ENDINGS = (".yaml", ".yml")
_METADATA = re.compile(rb"^metadata:(.*?)(?=^[^\s#]|\Z)", re.MULTILINE | re.DOTALL)
_PATH = re.compile(rb"""(?:^|[{,])[ \t]*path:[ \t]*["']?([^\s"'#,}]+)""", re.MULTILINE)


def read_playbook(reading: NoetlReading, node: Node, fields: dict[str, Any]) -> dict[str, Any] | None:
    """Read the playbook that a step calls, as keys of a native step; None after a report.

    It is compiled here, because its own file decides which step gives its value and which secrets it needs.
    """
    path = name(reading, node)
    if path is INVALID:
        return None
    if is_template(path):
        message = f"`{shorten(path)}`: a value never decides on what runs"
        reading.report.error("value", message, node, hint="write the path out")
        return None
    folder = reading.source.folder
    file = _find_file(folder, path)
    if not file:
        hint = (
            did_you_mean(path, _files_by_path(folder))
            or "a file relative to this one, or a `metadata.path` in its folder"
        )
        reading.report.error("playbook", f"there is no playbook `{shorten(path, 120)}`", node, hint=hint)
        return None
    relative = os.path.relpath(file, folder)
    workflow = compile_child(reading.native, relative, node, is_counted=False)
    if workflow is None:
        return None
    result = str(fields.get("return_step", ""))
    steps = [step.name for step in workflow.steps]
    if result and result.lower() != "end" and result not in steps:
        hint = did_you_mean(result, steps, "its steps")
        reading.report.error("value", f"`{shorten(path)}` has no step `{shorten(result)}`", node, hint=hint)
        return None
    if not result and isinstance(node, Scalar) and _gives_value(workflow.end):
        result = "end"
    reading.children[relative] = workflow
    named = "end" if result.lower() == "end" else result
    called = {"called": {"path": path}, **({"result": named} if named else {})}
    return {"workflow": word(relative, node), **called}


def _gives_value(end: Step) -> bool:
    """Does a playbook have an `end` of its own that does more than mark where it ends?"""
    return bool(end.origin.line) and (not isinstance(end.action, Noop) or bool(end.args or end.effects))


def _find_file(folder: str, path: str) -> str:
    """Find the file of a playbook by its path; an empty text if there is none."""
    for ending in ("", *_ENDINGS):
        file = os.path.join(folder, path + ending)
        if os.path.isfile(file):
            return file
    return _files_by_path(folder).get(path.strip("/"), "")


def _files_by_path(folder: str) -> dict[str, str]:
    """List the playbooks of a folder by their `metadata.path`."""
    found: dict[str, str] = {}
    try:
        names = sorted(os.listdir(folder))[:FILES_LOOKED_AT_MAX]
    except OSError:
        return {}
    for file in names:
        if file.endswith(_ENDINGS) and os.path.isfile(os.path.join(folder, file)):
            path = _read_path(os.path.join(folder, file))
            if path:
                found.setdefault(path.strip("/"), os.path.join(folder, file))
    return found


def _read_path(file: str) -> str:
    """Read the `metadata.path` from the head of a file."""
    try:
        with open_beside(file) as opened:
            head = opened.read(HEAD_BYTES)
    except OSError:
        return ""
    metadata = _METADATA.search(head)
    found = _PATH.search(metadata[1]) if metadata is not None else None
    return found[1].decode("utf-8", "replace") if found is not None else ""
