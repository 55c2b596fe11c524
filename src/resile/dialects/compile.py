"""The entry of every workflow file: parse it, detect its dialect, hand the tree to that dialect's front end.

compile_file(path) -> Source -> formats -> detect -> front end -> Compiled
                                   |                    |
                                   +--- Diagnostics <---+      several findings at once, capped
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from resile.dialects.detect import ENDINGS, compile_with, detect, looks_native
from resile.dialects.formats.nodes import Mapping, Node
from resile.dialects.formats.yaml import Repeat, parse, refuse_repeats
from resile.dialects.reading.beside import open_beside
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.errors import Diagnostic, is_utf8, shorten
from resile.model.limits import FILE_BYTES_MAX

if TYPE_CHECKING:
    from os import PathLike

    from resile.model.workflow import Workflow


_LAST_COUNTS = ("noetl",)
"""Systems whose own parser takes the last of several values of a key; the others refuse such a file."""


class Compiled(Struct, frozen=True):
    """The result of compiling a file: the workflow if there is no error, all findings, and how it was recognised.

    `is_clear` is false for a file of another system that could be meant as a native one.
    """

    workflow: Workflow | None
    diagnostics: tuple[Diagnostic, ...]
    dialect: str = ""
    why: str = ""
    is_clear: bool = True


def compile_file(path: str | PathLike[str], *, dialect: str = "", profile: str = "") -> Compiled:
    """Compile the workflow file at `path`; problems with the file or the path become findings.

    `dialect` names the system that the file is written for; if it is empty, its shape decides.
    """
    import os

    file = os.fspath(path)
    report = Diagnostics(file)
    data = _read_file(file, report)
    if data is None:
        return Compiled(None, report.findings())
    place = os.path.abspath(file)
    if not is_utf8(place):
        report.error(
            "encoding", f"the path {shorten(ascii(place), 200)} is not UTF-8 text", hint="rename that file or folder"
        )
        return Compiled(None, report.findings())
    return _compile(Source(file, data, os.path.dirname(place), profile), report, dialect)


def compile_text(
    text: str | bytes, *, file: str = "workflow.yaml", folder: str = ".", dialect: str = "", profile: str = ""
) -> Compiled:
    """Compile a workflow that is already in memory."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return _compile(Source(file, data, folder, profile), Diagnostics(file), dialect)


def _read_file(file: str, report: Diagnostics) -> bytes | None:
    """Read the bytes of a file, at most one more than is allowed; return None after a report."""
    try:
        with open_beside(file) as stream:
            return stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        report.error("file", f"there is no file `{shorten(file, 200)}`", hint=_sibling(file))
    except IsADirectoryError:
        report.error("file", f"`{shorten(file, 200)}` is a folder", hint="name the workflow file in it")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        report.error("file", f"`{shorten(file, 200)}` can't be read: {reason}")
    return None


def _sibling(file: str) -> str:
    """A hint that names a file of nearly this name in the same folder."""
    import os

    try:
        names = os.listdir(os.path.dirname(file) or ".")
    except (OSError, ValueError):
        return ""
    from difflib import get_close_matches

    # The stems must be alike too: a common ending alone makes two names similar.
    stem = os.path.splitext(os.path.basename(file))[0]
    near = [name for name in names if get_close_matches(stem, [os.path.splitext(name)[0]])]
    return did_you_mean(os.path.basename(file), near)


def _compile(source: Source, report: Diagnostics, dialect: str) -> Compiled:
    """Parse a file, detect its dialect, and call that front end."""
    with _garbage_collector_paused():
        ending = source.file[source.file.rfind(".") :].lower() if "." in source.file else ""
        if ending in ENDINGS and dialect in ("", ENDINGS[ending]):
            name = ENDINGS[ending]
            workflow = compile_with(name, source, None, report)
            return Compiled(workflow, report.findings(), name, f"its name ends in {ending}")
        variants: list[Mapping] = []
        repeats: list[Repeat] = []
        if ending == ".json":
            root = _parsed_json(source.data, report)
        else:
            root = parse(source.data, report, variants, repeats)
        if root is None:
            return Compiled(None, report.findings())
        name, why = (dialect, "--dialect says so") if dialect else detect(root, report)
        if name in _LAST_COUNTS:
            _take_last(repeats, report)
        else:
            refuse_repeats(repeats, report)
        if not name:
            return Compiled(None, report.findings())
        if variants and name != "prodigy":
            tag = f"!{next(iter(variants[0].entries))}"
            report.error("yaml", f"the tag `{shorten(tag)}` is not known here", variants[0], hint="leave the tag out")
            return Compiled(None, report.findings(), name, why)
        if source.profile and name != "prodigy":
            report.error("profile", f"files of {name} have no profiles", root, hint="leave --profile out")
        workflow = compile_with(name, source, root, report)
        is_clear = bool(dialect) or not looks_native(root, name)
        return Compiled(None if report.errors else workflow, report.findings(), name, why, is_clear)


def _take_last(repeats: list[Repeat], report: Diagnostics) -> None:
    """Give keys that a mapping has twice their last value, with a warning."""
    for repeat in repeats:
        repeat.mapping.entries[repeat.key.text] = (repeat.key, repeat.value)
        first = repeat.first
        message = f"the key `{shorten(repeat.key.text)}` is here twice: this one counts, not the one at "
        report.warning("duplicate-key", f"{message}{first.line}:{first.column}", repeat.key, hint="keep one of them")


def _parsed_json(data: bytes, report: Diagnostics) -> Node | None:
    """Parse JSON with the JSON5 parser: YAML lacks JSON's escapes for characters beyond U+FFFF."""
    from resile.dialects.formats.json5 import parse_json5

    return parse_json5(data, report)


@contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """Pause the garbage collector: parsing makes many objects and no cycles, and collecting would triple the time."""
    import gc

    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
