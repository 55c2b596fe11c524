"""The file that is being read: its bytes and folder, its findings, and the texts in it that refer to values."""

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
    """A file to compile; paths inside it are relative to `folder`. `profile` is the one of its environments to take."""

    file: str
    data: bytes
    folder: str
    profile: str = ""


class Reading:
    """One file being read: where findings go, and the texts whose `${...}` are checked once all names are known.

    `owner` is the step of the workflow whose keys are being read, or an empty text; `depth` counts the handlers
    around. Inside one, `beside` names the commands before this one; `in_repair`: there is a failure to speak of.
    `language` is that of the file's texts. A tree that `is_checked` comes from a front end that has looked at its names
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
        """The origin of a place, with its file where that is another than the one that is read.

        A front end puts what its file does not say at line 0.
        """
        if not place.line:
            return NOWHERE
        return Origin(place.line, place.column, "" if place.file == self.source.file else place.file)

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
