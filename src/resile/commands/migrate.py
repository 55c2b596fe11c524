"""`migrate`: translates a file of any dialect to a native file that behaves the same, and reports the differences.

The writer (dialects/native/writer) compiles the native text again and compares it before it returns it. A diagnostic of
the old file becomes a comment in the new one and an entry in the report: it shows where a meaning had to be decided.
"""

from __future__ import annotations

import os

from msgspec import UNSET

from resile.commands.documents.answers import Migration
from resile.commands.load import CompileOptions, compile_any, require_workflow
from resile.errors import ResileError
from resile.model.folders import put_in_place


def migrate(path: str, out: str = "", options: CompileOptions = CompileOptions(), force: bool = False) -> Migration:
    """Translate a file; write the text to `out` if given, where no file may exist unless `force` is set."""
    from resile.dialects.native.writer.document import emit

    result = compile_any(path, options)
    (workflow, _), found = require_workflow(result), result.diagnostics
    folder = os.path.dirname(os.path.abspath(out)) if out else ""
    if out and os.path.exists(out) and not force:
        raise ResileError("exists", f"{out} is there already", where=out, hint="--force writes over it")
    text = emit(workflow, found, folder)
    if out:
        with open(f"{out}.part", "w", encoding="utf-8") as file:
            file.write(text)
            put_in_place(file, f"{out}.part", out)
    differences = [finding for finding in found if finding.severity != "error"]
    return Migration(out=out or None, differences=differences, text=UNSET if out else text)
