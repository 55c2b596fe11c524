"""A rule in JSON: its position in the file and its text."""

from __future__ import annotations

from msgspec import Struct

_PLACED = r"(?s)(.+?):(\d+):(\d+) (.*)"


class RuleReference(Struct, frozen=True, gc=False):
    """The position and text of a rule; the position is null for a rule that is not written in a file."""

    file: str | None
    line: int | None
    column: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.line is None else f"{self.file}:{self.line}:{self.column} {self.text}"


def parse_rule(text: str) -> RuleReference:
    """Parse `file:line:column text`, the form in which the core writes rules into routes and events."""
    import re

    found = re.fullmatch(_PLACED, text)
    if found is None:
        return RuleReference(None, None, None, text)
    file, line, column, rest = found.groups()
    return RuleReference(file, int(line), int(column), rest)
