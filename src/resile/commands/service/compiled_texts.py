"""Keeps the last workflows that were compiled from texts, because clients often submit the same text again.

    text, name, options --> workflow, definition        only the folder of the run differs each time

It keeps only workflows that depend on the text alone: native ones without findings, for which the front end looked at
no other file.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import Lock

import msgspec
from msgspec import Struct

from resile.commands.load import CompileOptions, Loaded, require_workflow
from resile.dialects.compile import compile_text
from resile.dialects.reading.beside import noting_files
from resile.model import codec
from resile.model.nested import steps_within
from resile.model.workflow import Child, FanOut, Function, Workflow

KEPT_MAX = 64
TEXT_CHARACTERS_MAX = 64 * 1024
# Actions for which a front end looks at files.
_LOOKING = frozenset((Child, FanOut, Function))


class _Kept(Struct, frozen=True):
    """A workflow, and the parts of its definition before and after the name of the folder."""

    workflow: Workflow
    before: bytes
    after: bytes


_kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
_lock = Lock()


def compile_alone(text: str, file: str, options: CompileOptions, folder: str, source: str) -> Loaded:
    """Compile a text that has no other files, for a run with this folder; raises WorkflowError.

    `source` is the hash of the text.
    """
    key = (source, file, options.dialect, options.profile, os.environ.get("RESILE_AGENT", ""))
    with _lock:
        known = _kept.get(key)
        if known is not None:
            _kept.move_to_end(key)
    if known is not None:
        workflow = msgspec.structs.replace(known.workflow, folder=folder)
        return Loaded(workflow, known.before + msgspec.json.encode(folder) + known.after, source=source)
    with noting_files() as noted:
        result = compile_text(text, file=file, folder=folder, dialect=options.dialect, profile=options.profile)
        workflow, findings = require_workflow(result)
    warnings = tuple(found for found in findings if found.severity == "warning")
    definition = codec.encode(workflow)
    if not (findings or noted) and len(text) <= TEXT_CHARACTERS_MAX and _is_pure(workflow):
        _keep(key, workflow, definition)
    return Loaded(workflow, definition, warnings, source=source)


def _is_pure(workflow: Workflow) -> bool:
    """Does the workflow depend on its text alone? A missing file that the front end looked for is a dependency, too."""
    found = steps_within((*workflow.steps, workflow.end))
    return workflow.dialect == "native" and not any(type(step.action) in _LOOKING for step in found)


def _keep(key: tuple[str, ...], workflow: Workflow, definition: bytes) -> None:
    """Keep a workflow if its definition names the folder exactly once."""
    parts = definition.split(msgspec.json.encode(workflow.folder))
    name = os.fsencode(os.path.basename(workflow.folder))
    if len(parts) != 2 or any(name in part for part in parts):
        return
    with _lock:
        _kept[key] = _Kept(workflow, *parts)
        while len(_kept) > KEPT_MAX:
            _kept.popitem(last=False)
