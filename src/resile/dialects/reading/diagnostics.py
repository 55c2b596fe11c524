"""Findings about a file: errors, warnings and notices with their places, and hints for unknown words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from resile.errors import Diagnostic, shorten
from resile.model.limits import DIAGNOSTICS_MAX

SUGGESTION_CANDIDATES_MAX = 2_000


class Place(Protocol):
    """Anything with a position."""

    @property
    def line(self) -> int:
        """The line, from 1."""

    @property
    def column(self) -> int:
        """The column, from 1."""

    @property
    def file(self) -> str:
        """The file, if it is not the one being read."""


class Diagnostics:
    """Collects findings; keeps the first `DIAGNOSTICS_MAX` errors, warnings and notices and counts the rest."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.left_out = 0

    @property
    def full(self) -> bool:
        """Is the limit of errors reached? Then callers need not compute hints."""
        return len(self.errors) >= DIAGNOSTICS_MAX

    def error(self, code: str, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Report a problem that keeps the file from running."""
        self._add(self.errors, "error", code, message, place, hint)

    def withdraw(self, place: Place) -> None:
        """Withdraw the "key must be text" error; callers that accept integer keys use this."""
        here = (place.line, place.column)
        self.errors = [e for e in self.errors if e.code != "key-type" or (e.line, e.column) != here]

    def warning(self, code: str, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Report a probable mistake."""
        self._add(self.warnings, "warning", code, message, place, hint)

    def notice(self, code: str, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Report a valid but unclear or ineffective setting."""
        self._add(self.warnings, "notice", code, message, place, hint)

    def _add(
        self, into: list[Diagnostic], severity: str, code: str, message: str, place: Place | None, hint: str
    ) -> None:
        """Store one finding, or only count it beyond the limit."""
        if len(into) >= DIAGNOSTICS_MAX:
            self.left_out += 1
            return
        file = (place.file if place is not None else "") or self.file
        line, column = (place.line, place.column) if place is not None else (0, 0)
        into.append(
            Diagnostic(severity=severity, code=code, message=message, file=file, line=line, column=column, hint=hint)
        )

    def findings(self) -> tuple[Diagnostic, ...]:
        """All stored findings in the order of the file; the last one has the number of those left out."""
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
        # Thin out long lists first: comparing a word with 100,000 names would take seconds.
        if abs(len(option) - len(word)) <= 3 and len(candidates) < SUGGESTION_CANDIDATES_MAX:
            candidates.setdefault(option.lower(), option)
    if lower in candidates:
        return candidates[lower]
    matches = difflib.get_close_matches(lower, candidates, n=1, cutoff=0.6)
    return candidates[matches[0]] if matches else ""


def did_you_mean(word: str, options: Iterable[str], noun: str = "") -> str:
    """A hint for an unknown word: the nearest option, else a few of the options."""
    known = list(options)
    # `max` in a table that has only `max_delay` means `max_delay`.
    near = nearest(word, known) or next((option for option in known if option.startswith(f"{word}_")), "")
    if near:
        return f"did you mean `{near}`?"
    if not known or not noun:
        return ""
    few = ", ".join(f"`{shorten(option)}`" for option in known[:10])
    return f"{noun}: {few}" + (f" and {len(known) - 10} more" if len(known) > 10 else "")
