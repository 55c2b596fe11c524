"""`check`: compile files and report their errors, without running anything."""

from __future__ import annotations

import sys

from resile.cli.display.output import Paint, plural, print_document, write_text
from resile.cli.display.output import escape_control_characters as escape
from resile.cli.display.problems import EXIT_USAGE, findings
from resile.cli.parse import Call
from resile.commands.documents.answers import CheckedFile
from resile.commands.load import CompileOptions
from resile.commands.load import check as check_files


def check(call: Call) -> int:
    """Check every file given."""
    options = CompileOptions(call.text("dialect") or "", call.text("profile") or "")
    document = check_files(call.texts("FILE"), options)
    if call.json:
        print_document(document)
    else:
        paint = Paint(call.color, sys.stdout)
        lines: list[str] = []
        for file in document.files:
            lines += findings(file.diagnostics, paint)
            lines.append(_verdict(file, paint))
        write_text("\n".join(lines) + "\n")
    return 0 if all(file.ok for file in document.files) else EXIT_USAGE


def _verdict(file: CheckedFile, paint: Paint) -> str:
    """The result of one file, in one line."""
    name = paint("bold", escape(file.file))
    errors = sum(finding.severity == "error" for finding in file.diagnostics)
    dialect = f"{file.dialect} ({file.why})" if file.dialect else "no dialect that is known"
    if not file.ok:
        return f"{name}: {paint('red', plural(errors, 'error'))}, {dialect}"
    return f"{name}: {paint('green', 'ok')}, {plural(file.steps, 'step')}, {dialect}"
