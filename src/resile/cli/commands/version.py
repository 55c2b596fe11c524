"""`version`: which Resile, Python and SQLite this is."""

from __future__ import annotations

import sys

from resile.cli.display.output import print_document, write_text
from resile.cli.parse import Call
from resile.version import __version__


def version(call: Call) -> int:
    """Show the versions that matter in a bug report."""
    from apsw import sqlite_lib_version

    from resile.commands.documents.answers import Versions

    python = ".".join(str(part) for part in sys.version_info[:3])
    found = Versions(resile=__version__, python=python, sqlite=sqlite_lib_version())
    if call.json:
        print_document(found)
    else:
        write_text(f"Resile {found.resile}\nPython {found.python}\nSQLite {found.sqlite}\n")
    return 0
