"""Draws what a terminal shows as SVG: real runs of one workflow, in a real terminal, with the times set to zero.

    pictures() --> {"live": "<svg…", "summary": …, "status": …, "explain": …}

A picture refers to nothing outside itself: the reader's own monospaced font draws the text, and every piece of it has a
fixed place and width, so that columns stay in line whatever that font is.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.cli.program import Program
from tests.cli.screen import Cell, Screen
from tests.cli.terminal import Terminal

NAMES = ("live", "summary", "status", "explain")
COLUMNS = 80
CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN = 8.4, 19, 14, 14
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
BACKGROUND, TEXT = "#1b1f27", "#d7dce5"
# The colors of a terminal, by their codes; bold and dim text have none of their own.
COLORS = {"31": "#ff7b85", "32": "#8fd694", "33": "#f0c674", "36": "#7fc8f8"}
BOLD, DIM = "1", "2"
TIMES = ((re.compile(r"\d\d:\d\d:\d\d"), "00:00:00"), (re.compile(r"\b\d+\.\d s\b"), "0.0 s"))

FLOW = """\
resile: 1
name: release
max_parallel: 4
steps:
  fetch:
    shell: test -e cache || { touch cache; echo "connection reset" >&2; exit 75; }
    retry: {max: 3, backoff: 10ms}
  format:
    needs: [fetch]
    shell: test -e tidy || { echo "2 lines are too long" >&2; exit 3; }
    on_failure: {shell: "read go < gate; touch tidy", max_attempts: 2}
  test:
    needs: [fetch]
    shell: echo "collected 12 tests"; read go < gate; echo "test_login failed" >&2; exit 1
  publish:
    needs: [format, test]
    shell: echo published
"""


@cache
def pictures() -> dict[str, str]:
    """All pictures, by name: a workflow while it runs, and after it has failed."""
    with TemporaryDirectory() as folder:
        program = Program(Path(folder))
        program.write(FLOW, "release.yaml")
        gate = program.gate("gate")
        with Terminal(program, "run", "release.yaml", columns=COLUMNS, lines=40) as terminal:
            # Both wait at the gate: the repair of `format`, and `test`.
            terminal.until("format/on_failure")
            live = _last_picture(terminal)
            gate.open(times=2)
            terminal.end()
        shown = {"live": ("resile run release.yaml", live)}
        for name, verb in (("summary", "resume"), ("status", "status"), ("explain", "explain")):
            command = "resile run release.yaml" if name == "summary" else f"resile {verb} 1"
            with Terminal(program, verb, "1", columns=COLUMNS, lines=40) as terminal:
                terminal.end()
                shown[name] = (command, _screen_of(terminal.raw))
    return {name: svg(command, screen) for name, (command, screen) in shown.items()}


def _last_picture(terminal: Terminal) -> Screen:
    """What the live view shows, after some more whole pictures."""
    for _ in range(3):
        before = len(terminal.raw)
        while "format/on_failure" not in terminal.raw[before:]:
            terminal.read_more()
    return _screen_of(terminal.raw)


def _screen_of(raw: str) -> Screen:
    screen = Screen(COLUMNS)
    screen.feed(raw)
    return screen


def svg(command: str, screen: Screen) -> str:
    """A screen below the command that filled it, as one SVG document."""
    prompt = [Cell(letter, (DIM,)) for letter in "$ "] + [Cell(letter, (BOLD,)) for letter in command]
    lines = [prompt, *map(_without_times, screen.lines)]
    width = round(2 * MARGIN + COLUMNS * CELL_WIDTH)
    height = 2 * MARGIN + len(lines) * LINE_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>What `{escape(command)}` shows</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        f'<g font-family="{FONTS}" font-size="{FONT_SIZE}" fill="{TEXT}" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        parts += _pieces(line, MARGIN + (number + 1) * LINE_HEIGHT - 5)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _without_times(line: list[Cell]) -> list[Cell]:
    """A line whose times are zero, each as long as it was."""
    text = "".join(cell.character for cell in line)
    for pattern, mask in TIMES:
        text = pattern.sub(mask, text)
    return [cell._replace(character=letter) for cell, letter in zip(line, text, strict=True)]


def _pieces(line: list[Cell], y: int) -> list[str]:
    """The text elements of a line: one for each word or run of words that has the same colors."""
    found: list[str] = []
    column = 0
    for codes, group in groupby(line, key=lambda cell: cell.codes):
        cells = "".join(cell.character for cell in group)
        for piece in re.finditer(r"\S+(?: \S+)*", cells):
            x = round(MARGIN + (column + piece.start()) * CELL_WIDTH, 1)
            length = round(len(piece[0]) * CELL_WIDTH, 1)
            found.append(f'<text x="{x}" y="{y}" textLength="{length}"{_style(codes)}>{escape(piece[0])}</text>')
        column += len(cells)
    return found


def _style(codes: tuple[str, ...]) -> str:
    """The attributes of text with these codes."""
    fill = next((f' fill="{COLORS[code]}"' for code in reversed(codes) if code in COLORS), "")
    return fill + (' font-weight="bold"' if BOLD in codes else "") + (' opacity="0.65"' if DIM in codes else "")
