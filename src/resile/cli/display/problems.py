"""Reports errors to the user: message, place, remedy; a traceback only on request.

ResileError     exit 2; with --json its document on stdout
OSError         exit 2, the system's message and the file
anything else   exit 70, one line that says how to get the traceback
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from resile.cli.display.output import Page, escape, plural, print_document, say
from resile.errors import Diagnostic, ResileError
from resile.model.limits import FILE_BYTES_MAX

EXIT_USAGE = 2
EXIT_UNEXPECTED = 70
SOURCE_COLUMNS_MAX = 72
PLACES_SHOWN_MAX = 8


def report(error: Exception, *, json: bool, debug: bool) -> int:
    """Print an error; return the exit code."""
    if isinstance(error, OSError) and error.strerror:
        error = _refused_by_system(error)
    expected = isinstance(error, ResileError)
    if os.environ.get("RESILE_TRACEBACK") or (debug and not expected):
        from traceback import format_exception

        say("".join(format_exception(error)).rstrip())
    if not isinstance(error, ResileError):
        message = f"{type(error).__name__}: {error}"
        error = ResileError("unexpected", message, hint="RESILE_TRACEBACK=1 shows the traceback")
    if json:
        print_document(_document_of(error))
    say(_render(error, Page("auto", sys.stderr)))
    annotate(error.diagnostics)
    return EXIT_USAGE if expected else EXIT_UNEXPECTED


def _document_of(error: ResileError) -> object:
    """An error as a JSON document."""
    from resile.commands.documents.answers import ErrorDocument, ErrorText

    text = ErrorText(error.code, error.message, error.where, error.hint)
    return ErrorDocument(error=text, diagnostics=list(error.diagnostics))


def _refused_by_system(error: OSError) -> ResileError:
    """An OSError in the system's words; a clearer message if the current folder is gone."""
    name = "" if error.filename is None else os.fsdecode(error.filename)
    message = f"{name}: {error.strerror}" if name else str(error.strerror)
    if not name and not _has_folder():
        message = "the current folder does not exist any more"
    refused = ResileError("system", message, where=name)
    refused.__cause__ = error
    return refused


def _has_folder() -> bool:
    """Does the current folder still exist?"""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _render(error: ResileError, page: Page) -> str:
    """An error as text: its findings one by one, then the message with where and hint."""
    lines = findings(error.diagnostics, page)
    label = f"resile: {page.paint('red', 'error')}"
    if error.diagnostics:
        errors = sum(found.severity == "error" for found in error.diagnostics)
        return "\n".join([*lines, f"{label}: {plural(errors, 'error')}; nothing was run"])
    where = "" if error.where in error.message else f"{error.where}: "
    lines += page.wrap(f"{label}: {where}{escape(error.message)}", "    ")
    if error.hint:
        lines += page.wrap(f"  hint: {escape(error.hint)}", "    ")
    return "\n".join(lines)


def annotate(diagnostics: Sequence[Diagnostic]) -> None:
    """Print the errors and warnings of a file as annotations, inside GitHub Actions."""
    if diagnostics and os.environ.get("GITHUB_ACTIONS") == "true":
        from resile.cli.reports import finding_lines

        for line in finding_lines(diagnostics):
            say(line)


def findings(diagnostics: Sequence[Diagnostic], page: Page) -> list[str]:
    """Each diagnostic with its line of the file and a caret below the column; a notice once, with its other places."""
    sources: dict[str, list[str]] = {}
    lines: list[str] = []
    repeated: dict[tuple[str, str], list[Diagnostic]] = {}
    for found in diagnostics:
        if found.severity == "notice":
            repeated.setdefault((found.file, found.message), []).append(found)
    for found in diagnostics:
        first, *others = repeated.get((found.file, found.message), [found])
        if found.severity == "notice" and found is not first:
            continue
        color = "red" if found.severity == "error" else "yellow"
        severity = page.paint(color, found.severity)
        place = page.paint("bold", found.where)
        lines += page.wrap(f"{place}: {severity}: {escape(found.message)} [{found.code}]", "    ")
        lines += _excerpt(found, sources, page)
        if others and found is first:
            places = ", ".join(f"{other.line}:{other.column}" for other in others[:PLACES_SHOWN_MAX])
            more = f" and {len(others) - PLACES_SHOWN_MAX} more" if len(others) > PLACES_SHOWN_MAX else ""
            lines += page.wrap(f"  also at: {places}{more}", "    ")
        if found.hint:
            lines += page.wrap(f"  hint: {escape(found.hint)}", "    ")
    return lines


def _excerpt(found: Diagnostic, sources: dict[str, list[str]], page: Page) -> list[str]:
    """The line of a diagnostic and a caret, if the file can be read; long lines are cut around the column."""
    if found.file not in sources:
        sources[found.file] = _read_lines(found.file)
    source = sources[found.file]
    text = source[found.line - 1].replace("\t", " ").rstrip() if 0 < found.line <= len(source) else ""
    if not text or not text.isprintable():
        return []
    column = max(found.column - 1, 0)
    number = str(found.line)
    room = min(SOURCE_COLUMNS_MAX, max(page.columns - len(number) - 5, 1))
    first = max(0, column - room // 2) if len(text) > room else 0
    lines = [f"  {page.paint('dim', number + ' |')} {text[first : first + room]}"]
    if found.column:
        caret = " " * (column - first) + page.paint("red", "^")
        lines.append(f"  {' ' * len(number)} {page.paint('dim', '|')} {caret}")
    return lines


def _read_lines(path: str) -> list[str]:
    """The lines of a file; none if it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
