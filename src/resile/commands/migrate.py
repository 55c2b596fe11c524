"""`migrate`: a file of any dialect as a native file that behaves the same, and what is worth knowing about it.

The native text is compiled again and compared before it is given out (dialects/emit.py). A finding that the old file
has stands as a comment in the new one, and in the report: it tells where a meaning had to be decided.
"""

from __future__ import annotations

import os

from msgspec import UNSET

from resile.commands.documents.answers import Migration
from resile.commands.load import CompileOptions, compile_any, require_workflow
from resile.errors import ResileError


def migrate(path: str, out: str = "", options: CompileOptions = CompileOptions(), force: bool = False) -> Migration:
    """Translate a file; with `out` the text is written there, where nothing stands unless `force` allows it."""
    from resile.dialects.native.writer.document import emit

    result = compile_any(path, options)
    workflow, found = require_workflow(result), result.diagnostics
    folder = os.path.dirname(os.path.abspath(out)) if out else ""
    if out and os.path.exists(out) and not force:
        raise ResileError("exists", f"{out} is there already", where=out, hint="--force writes over it")
    text = emit(workflow, found, folder)
    if out:
        _write(out, text)
    differences = [finding for finding in found if finding.severity != "error"]
    return Migration(out=out or None, differences=differences, text=UNSET if out else text)


def _write(path: str, text: str) -> None:
    """The file, whole or not at all."""
    beside = f"{path}.part"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)
