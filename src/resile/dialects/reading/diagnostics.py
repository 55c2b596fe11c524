"""What the front ends share, and the door through which every file comes in.

    compile_file(path) -> Source -> tree.parse -> detect -> front end -> Compiled      (detect.py)
                                        |                      |
                                        +---- Diagnostics <----+      several findings at once, capped

A front end reads mappings by tables: each key is one row with its reader and its documentation, so a key can't
be accepted without being documented, and an unknown one is an error that names the nearest known one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from resile.dialects.formats.yaml import Mapping, Node, Scalar, describe, parse
from resile.errors import Diagnostic, shorten
from resile.model.limits import DIAGNOSTICS_MAX, FILE_BYTES_MAX

if TYPE_CHECKING:
    from os import PathLike

    from resile.model.workflow import Workflow

SUGGESTION_CANDIDATES_MAX = 2_000


class Source(Struct, frozen=True):
    """A file to compile; paths inside it are relative to `folder`. `profile` is the one of its environments to take."""

    file: str
    data: bytes
    folder: str
    profile: str = ""


class Compiled(Struct, frozen=True):
    """What came of a file: the workflow where there is no error, every finding, and how it was recognised."""

    workflow: Workflow | None
    diagnostics: tuple[Diagnostic, ...]
    dialect: str = ""
    why: str = ""


class Place(Protocol):
    """Anything that knows where it stands."""

    @property
    def line(self) -> int:
        """The line, from 1."""

    @property
    def column(self) -> int:
        """The column, from 1."""


class Diagnostics:
    """Collects findings; keeps the first `DIAGNOSTICS_MAX` errors, warnings and notices and counts the rest."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.left_out = 0

    @property
    def full(self) -> bool:
        """Is there no room for another error? Then working out its hint is wasted time."""
        return len(self.errors) >= DIAGNOSTICS_MAX

    def error(self, code: str, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Something that keeps the file from running."""
        self._add(self.errors, "error", code, message, place, hint)

    def withdraw(self, place: Place) -> None:
        """Take back what was said of a key that is no text, by whoever knows that it may be a number."""
        here = (place.line, place.column)
        self.errors = [e for e in self.errors if e.code != "key-type" or (e.line, e.column) != here]

    def warning(self, code: str, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Something that is probably not meant."""
        self._add(self.warnings, "warning", code, message, place, hint)

    def notice(self, code: str, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Something that is meant, and could be said better."""
        self._add(self.warnings, "notice", code, message, place, hint)

    def _add(
        self, into: list[Diagnostic], severity: str, code: str, message: str, place: Place | None, hint: str
    ) -> None:
        """Keep one finding, or count it."""
        if len(into) >= DIAGNOSTICS_MAX:
            self.left_out += 1
            return
        line, column = (place.line, place.column) if place is not None else (0, 0)
        into.append(
            Diagnostic(
                severity=severity, code=code, message=message, file=self.file, line=line, column=column, hint=hint
            )
        )

    def findings(self) -> tuple[Diagnostic, ...]:
        """Everything kept, in the order of the file; the last one says how many were left out."""
        kept = self.errors + self.warnings[: DIAGNOSTICS_MAX - len(self.errors)]
        left_out = self.left_out + len(self.errors) + len(self.warnings) - len(kept)
        kept.sort(key=lambda finding: (finding.line, finding.column))
        if left_out:
            message = f"{left_out} more findings are not shown"
            severity = "error" if self.errors else "warning"
            kept.append(Diagnostic(severity=severity, code="more", message=message, file=self.file))
        return tuple(kept)


def nearest(word: str, options: Iterable[str]) -> str:
    """The option that was probably meant, or an empty text."""
    import difflib

    lower = word.lower()
    candidates: dict[str, str] = {}
    for option in options:
        # Long lists are thinned first: comparing a word with 100,000 names would take seconds.
        if abs(len(option) - len(word)) <= 3 and len(candidates) < SUGGESTION_CANDIDATES_MAX:
            candidates.setdefault(option.lower(), option)
    if lower in candidates:
        return candidates[lower]
    matches = difflib.get_close_matches(lower, candidates, n=1, cutoff=0.6)
    return candidates[matches[0]] if matches else ""


def did_you_mean(word: str, options: Iterable[str], noun: str = "") -> str:
    """A hint for a word that is not known: the nearest option, else a few of those that exist."""
    known = list(options)
    near = nearest(word, known)
    if near:
        return f"did you mean `{near}`?"
    if not known or not noun:
        return ""
    few = ", ".join(f"`{shorten(option)}`" for option in known[:10])
    return f"{noun}: {few}" + (f" and {len(known) - 10} more" if len(known) > 10 else "")


class Reading:
    """One file being read: where findings go, and the texts whose `${...}` are checked once all names are known.

    `owner` is the step of the workflow whose keys are being read, or an empty text; `depth` counts the handlers
    around. Inside one, `beside` names the commands before this one; `in_repair`: there is a failure to speak of.
    """

    def __init__(self, source: Source, report: Diagnostics) -> None:
        self.source = source
        self.report = report
        self.owner = ""
        self.depth = 0
        self.in_repair = False
        self.beside: tuple[str, ...] = ()
        self.texts: list[Text] = []

    def refers(self, node: Scalar, program: str = "") -> None:
        """Keep a text that may refer to values; `program` is the shell that reads it."""
        self.texts.append(Text(self.owner, node, program, self.depth > 0, self.in_repair, self.beside))


class Text(Struct, frozen=True, gc=False):
    """A text that may refer to values, where it is rendered, and the shell that reads it, if one does."""

    owner: str
    node: Scalar
    program: str = ""
    is_inside: bool = False
    in_repair: bool = False
    beside: tuple[str, ...] = ()


Reader = Callable[[Reading, Node], Any]
INVALID: Any = object()
"""What a reader returns after it has reported an error."""


class Key(Struct, frozen=True):
    """One accepted key: how it is read, into which field, and its documentation."""

    name: str
    kind: str
    doc: str
    read: Reader
    field: str = ""


class Table(Struct, frozen=True):
    """The keys of one kind of mapping."""

    name: str
    doc: str
    keys: dict[str, Key]


def table(name: str, doc: str, *rows: Key) -> Table:
    """A table of these rows."""
    return Table(name, doc, {row.name: row for row in rows})


def read_mapping(reading: Reading, node: Node, known: Table) -> dict[str, Any]:
    """The fields of a mapping whose keys are rows of `known`; what can't be read is reported and left out."""
    if not isinstance(node, Mapping):
        reading.report.error("type", f"{known.name} must be a mapping, not {describe(node)}", node)
        return {}
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        row = known.keys.get(name)
        if row is None:
            _unknown_key(reading, key, known)
            continue
        field = row.field or name
        if field in names:
            reading.report.error("conflict", f"`{name}` and `{names[field]}` say the same thing", key)
            continue
        names[field] = name
        result = row.read(reading, value)
        if result is not INVALID:
            fields[field] = result
    return fields


def _unknown_key(reading: Reading, key: Scalar, known: Table) -> None:
    """Report a key that is not accepted, with the nearest known one."""
    if not reading.report.full:
        message = f"{known.name} has no key `{shorten(key.text)}`"
        reading.report.error("unknown-key", message, key, hint=did_you_mean(key.text, known.keys, "keys"))
    else:
        reading.report.error("unknown-key", "", key)


def describe_keys() -> list[tuple[str, str, str, str]]:
    """Every accepted native key as (mapping, key, type, meaning): the reference page is made of this."""
    from resile.dialects.native.keys.steps import TABLES

    return [(known.name, key.name, key.kind, key.doc) for known in TABLES for key in known.keys.values()]


def compile_file(path: str | PathLike[str], *, dialect: str = "", profile: str = "") -> Compiled:
    """Compile the workflow file at `path`; whatever is wrong with it, or with the path, is a finding.

    `dialect` says for which system it is written, where its shape must not decide.
    """
    import os

    file = os.fspath(path)
    report = Diagnostics(file)
    data = _read_file(file, report)
    if data is None:
        return Compiled(None, report.findings())
    return _compile(Source(file, data, os.path.dirname(os.path.abspath(file)), profile), report, dialect)


def compile_text(
    text: str | bytes, *, file: str = "workflow.yaml", folder: str = ".", dialect: str = "", profile: str = ""
) -> Compiled:
    """Compile a workflow that is already in memory."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return _compile(Source(file, data, folder, profile), Diagnostics(file), dialect)


def _read_file(file: str, report: Diagnostics) -> bytes | None:
    """The bytes of a file, at most one more than is allowed; None after a report."""
    try:
        with open(file, "rb") as stream:
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
    return did_you_mean(os.path.basename(file), names)


def _compile(source: Source, report: Diagnostics, dialect: str) -> Compiled:
    """Parse, detect the dialect, hand over to its front end."""
    from resile.dialects.detect import ENDINGS, compile_with, detect

    with _garbage_collector_paused():
        ending = source.file[source.file.rfind(".") :].lower() if "." in source.file else ""
        if ending in ENDINGS and dialect in ("", ENDINGS[ending]):
            name = ENDINGS[ending]
            workflow = compile_with(name, source, None, report)
            return Compiled(workflow, report.findings(), name, f"its name ends in {ending}")
        variants: list[Mapping] = []
        root = _parsed_json(source.data, report) if ending == ".json" else parse(source.data, report, variants)
        if root is None:
            return Compiled(None, report.findings())
        name, why = (dialect, "--dialect says so") if dialect else detect(root, report)
        if not name:
            return Compiled(None, report.findings())
        if variants and name != "prodigy":
            tag = f"!{next(iter(variants[0].entries))}"
            report.error("yaml", f"the tag `{shorten(tag)}` is not known here", variants[0], hint="leave the tag out")
            return Compiled(None, report.findings(), name, why)
        if source.profile and name != "prodigy":
            report.error("profile", f"files of {name} have no profiles", root, hint="leave --profile out")
        workflow = compile_with(name, source, root, report)
        return Compiled(None if report.errors else workflow, report.findings(), name, why)


def _parsed_json(data: bytes, report: Diagnostics) -> Node | None:
    """JSON is nearly YAML: only its escapes for characters beyond U+FFFF are not."""
    from resile.dialects.formats.json5 import parse_json5

    return parse_json5(data, report)


@contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """A file makes many objects and no cycles: collecting while they are made triples the time."""
    import gc

    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
