"""`migrate`: the native file on stdout or in a file, and on stderr where a meaning had to be decided."""

from __future__ import annotations

import sys

import msgspec

from resile.cli.display.output import Paint, plural, print_document, say, write_text
from resile.cli.display.output import escape_control_characters as escape
from resile.cli.display.problems import findings
from resile.cli.parse import Call
from resile.commands.load import CompileOptions
from resile.commands.migrate import migrate as migrate_file
from resile.errors import Diagnostic


def migrate(call: Call) -> int:
    """Translate one file."""
    (file,) = call.texts("FILE")
    out = call.text("out") or ""
    options = CompileOptions(call.text("dialect") or "", call.text("profile") or "")
    migrated = migrate_file(file, out, options, call.flag("force"))
    document = migrated.document
    if call.json:
        print_document(document if out else {**document, "text": migrated.text})
        return 0
    found = tuple(msgspec.convert(item, Diagnostic) for item in document["differences"])
    paint = Paint(call.color, sys.stderr)
    for line in findings(found, paint):
        say(line)
    if out:
        say(f"{escape(out)}: written, {plural(len(found), 'difference')} to know of")
    else:
        write_text(migrated.text)
    return 0
