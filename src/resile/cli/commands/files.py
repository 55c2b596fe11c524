"""`init`, `check`, `migrate`, `schema`, `version`: the commands that need no database."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from resile.cli.display.output import (
    Page,
    answer,
    command_hint,
    escape,
    place_of,
    plural,
    print_document,
    say,
    shell_quote,
    write_bytes,
    write_text,
)
from resile.cli.display.problems import EXIT_USAGE, annotate, findings
from resile.cli.parse import Call
from resile.commands.documents.answers import CheckedFile, CheckReport, Versions
from resile.commands.load import CompileOptions
from resile.commands.load import check as check_files
from resile.version import __version__


def check(call: Call) -> int:
    """Compile files and report their errors; nothing runs."""
    document = check_files(call.texts("FILE"), CompileOptions(call.word("dialect"), call.word("profile")))
    answer(call, document, _check_lines)
    annotate([found for file in document.files for found in file.diagnostics])
    return 0 if all(file.ok for file in document.files) else EXIT_USAGE


def _check_lines(document: CheckReport, page: Page) -> Iterator[str]:
    for file in document.files:
        yield from findings(file.diagnostics, page)
        yield from page.wrap(_verdict(file, page), "  ")


def _verdict(file: CheckedFile, page: Page) -> str:
    """The result of one file, in one line."""
    name = page.paint("bold", escape(file.file))
    errors = sum(finding.severity == "error" for finding in file.diagnostics)
    dialect = f"{file.dialect} ({file.why})" if file.dialect else "no dialect that is known"
    if not file.ok:
        return f"{name}: {page.paint('red', plural(errors, 'error'))}, {dialect}"
    return f"{name}: {page.paint('green', 'ok')}, {plural(file.steps, 'step')}, {dialect}"


def migrate(call: Call) -> int:
    """Print or write the native file, and list on stderr where the translation had to choose a meaning."""
    from resile.commands.migrate import migrate as migrate_file

    out = call.word("out")
    options = CompileOptions(call.word("dialect"), call.word("profile"))
    migration = migrate_file(call.word("FILE"), out, options, call.flag("force"))
    if call.json:
        print_document(migration)
        return 0
    for line in findings(migration.differences, Page(call.color, sys.stderr)):
        say(line)
    if migration.text:
        write_text(migration.text)
    else:
        say(f"{escape(out)}: written, {plural(len(migration.differences), 'difference')} to know of")
    return 0


def init(call: Call) -> int:
    """Write the file, and say how to run it."""
    from resile.commands.files.init import FILE
    from resile.commands.files.init import init as write_first

    written = write_first(call.text("FILE") or FILE, force=call.flag("force"))
    run = command_hint(f"run {shell_quote(written.file)}", place_of(call))
    return answer(call, written, lambda found, _: [f"{escape(found.file)}: written; `{run}` runs it"])


def schema(call: Call) -> int:
    """Print the JSON Schema of the native file."""
    import msgspec

    from resile.commands.files.schema import native_schema

    data = msgspec.json.encode(native_schema())
    write_bytes((data if call.json else msgspec.json.format(data, indent=2)) + b"\n")
    return 0


def version(call: Call) -> int:
    """Show the versions that matter in a bug report."""
    from apsw import sqlite_lib_version

    python = ".".join(str(part) for part in sys.version_info[:3])
    found = Versions(resile=__version__, python=python, sqlite=sqlite_lib_version())
    lines = [f"Resile {found.resile}", f"Python {found.python}", f"SQLite {found.sqlite}"]
    return answer(call, found, lambda *_: lines)
