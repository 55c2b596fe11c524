"""`migrate`: prints or writes the native file, and lists on stderr where the translation had to choose a meaning."""

from __future__ import annotations

import sys

from resile.cli.display.output import Paint, plural, print_document, say, write_text
from resile.cli.display.output import escape_control_characters as escape
from resile.cli.display.problems import findings
from resile.cli.parse import Call
from resile.commands.load import CompileOptions
from resile.commands.migrate import migrate as migrate_file


def migrate(call: Call) -> int:
    """Translate one file."""
    (file,) = call.texts("FILE")
    out = call.text("out") or ""
    options = CompileOptions(call.text("dialect") or "", call.text("profile") or "")
    migration = migrate_file(file, out, options, call.flag("force"))
    if call.json:
        print_document(migration)
        return 0
    paint = Paint(call.color, sys.stderr)
    for line in findings(migration.differences, paint):
        say(line)
    if migration.text:
        write_text(migration.text)
    else:
        say(f"{escape(out)}: written, {plural(len(migration.differences), 'difference')} to know of")
    return 0
