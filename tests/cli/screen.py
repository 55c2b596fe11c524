"""The screen of a terminal: what a person sees after a program has written text, colors and movements of the cursor."""

from __future__ import annotations

import re
from typing import NamedTuple

from resile.cli.display.output import width

_PIECE = re.compile(r"\x1b\[(?P<codes>[0-9;?]*)(?P<verb>[A-Za-z])|(?P<control>[\r\n])|(?P<text>[^\x1b\r\n]+)")


class Cell(NamedTuple):
    """One column of a line: a character with its colors, as the numbers of their codes."""

    character: str = " "
    codes: tuple[str, ...] = ()


class Screen:
    """Keeps every line that was written; `columns` may change while a program writes."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._codes: tuple[str, ...] = ()

    def feed(self, data: str) -> None:
        """Take what a program wrote; raises ValueError at a control character that no terminal should get."""
        place = 0
        for found in _PIECE.finditer(data):
            if found.start() != place:
                break
            place = found.end()
            if found["verb"]:
                self._obey(found["codes"], found["verb"])
            elif found["control"] == "\r":
                self._column = 0
            elif found["control"]:
                self._down()
            else:
                for character in found["text"]:
                    self._put(character)
        if place != len(data):
            raise ValueError(f"unexpected at {place}: {data[place : place + 20]!r}")

    def _put(self, character: str) -> None:
        if self._column + width(character) > self.columns:
            self._down()
            self._column = 0
        line = self._lines[self._row]
        line += [Cell()] * (self._column + 1 - len(line))
        line[self._column] = Cell(character, self._codes)
        self._column += width(character)

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])

    def _obey(self, codes: str, verb: str) -> None:
        """Do what a code asks for."""
        match verb:
            case "m":
                for code in (codes or "0").split(";"):
                    self._codes = () if code == "0" else (*self._codes, code)
            case "A":
                self._row = max(0, self._row - int(codes or 1))
            case "K":
                self._lines[self._row] = [] if codes == "2" else self._lines[self._row][: self._column]
            case "h" | "l" if codes == "?25":
                pass
            case _:
                raise ValueError(f"unexpected code {codes!r}{verb}")

    @property
    def lines(self) -> list[list[Cell]]:
        """The lines, without empty ones at the end."""
        last = max((number for number, line in enumerate(self._lines) if _text(line)), default=-1)
        return self._lines[: last + 1]

    @property
    def text(self) -> str:
        """What is on the screen, without colors."""
        return "".join(f"{_text(line)}\n" for line in self.lines)


def _text(line: list[Cell]) -> str:
    return "".join(cell.character for cell in line).rstrip()
