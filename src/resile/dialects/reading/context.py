"""The state of reading a file: its bytes and folder, its findings, and its texts with references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from resile.dialects.formats.nodes import Scalar
from resile.dialects.reading.diagnostics import Diagnostics, Place
from resile.languages.native import NATIVE
from resile.model.rules import NOWHERE, Origin

if TYPE_CHECKING:
    from resile.languages.contract import Language


class Source(Struct, frozen=True):
    """A file to compile; paths in it are relative to `folder`. `profile` selects one of its environments."""

    file: str
    data: bytes
    folder: str
    profile: str = ""


class Reading:
    """State of reading one file: its findings, and texts whose `${...}` are checked once all names are known.

    `owner` is the step whose keys are being read, or an empty text; `depth` counts the handlers around it. In a
    handler, `beside` names the earlier commands, and `in_repair` means that `${error...}` has a value. `language` is
    the template language of the texts. `is_checked` marks a tree from a front end that has already checked its names
    and texts.
    """

    is_checked = False

    def __init__(self, source: Source, report: Diagnostics) -> None:
        self.source = source
        self.report = report
        self.owner = ""
        self.depth = 0
        self.in_repair = False
        self.beside: tuple[str, ...] = ()
        self.texts: list[Text] = []
        self.language: Language[Any] = NATIVE

    def origin(self, place: Place) -> Origin:
        """The origin of a position; it has a file only if that is not the file being read.

        Front ends use line 0 for values that are not in the user's file.
        """
        if not place.line:
            return NOWHERE
        return Origin(place.line, place.column, "" if place.file == self.source.file else place.file)

    def refers(self, node: Scalar, program: str = "") -> None:
        """Record a text that may have references; `program` is the shell that reads it, if any."""
        self.texts.append(Text(self.owner, node, program, self.depth > 0, self.in_repair, self.beside))


class Text(Struct, frozen=True, gc=False):
    """A text that may have references, the step that renders it, and the shell that reads it, if any."""

    owner: str
    node: Scalar
    program: str = ""
    is_inside: bool = False
    in_repair: bool = False
    beside: tuple[str, ...] = ()
