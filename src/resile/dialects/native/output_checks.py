"""Checks of `{{ ... }}` in commands: a warning where a second interpreter reads the value as code.

Such a template can write any text, so only its outputs are judged, with its statements left out.
"""

from __future__ import annotations

import re

from resile.dialects.native.context import NativeReading
from resile.dialects.native.reference_checks import place_in
from resile.dialects.reading.context import Text
from resile.errors import shorten

_OUTPUT = r"\{%.*?%\}|\{\{-?(.*?)-?\}\}"


def check_outputs(reading: NativeReading) -> None:
    """Check the outputs in the commands of every scope."""
    reported: set[tuple[int, int]] = set()
    for scope in reading.scopes:
        for text in scope.texts:
            if text.program and "{{" in text.node.text:
                _check_command(reading, text, reported)


def _check_command(reading: NativeReading, text: Text, reported: set[tuple[int, int]]) -> None:
    """Warn of each output that a second interpreter reads; files of handlers may be shared, so each place once."""
    from resile.languages.shell.grammar import read
    from resile.languages.shell.hints import HINTS, complaint
    from resile.languages.shell.lexer import Hole

    outputs: list[str] = []

    def write(found: re.Match[str]) -> str:
        """A reference in place of the output; nothing for a statement."""
        if found[1] is None:
            return ""
        outputs.append(found[0])
        return f"${{resile_output_{len(outputs) - 1}}}"

    command = re.sub(_OUTPUT, write, text.node.text, flags=re.DOTALL)
    lines = reading.source.data.decode("utf-8").split("\n")
    for hole in read(command, text.program):
        if not isinstance(hole, Hole) or not hole.second or not hole.name.startswith("resile_output_"):
            continue
        number = int(hole.name.rpartition("_")[2])
        written = outputs[number]
        place = place_in(lines, text.node, written, outputs[:number].count(written))
        if (place.line, place.column) not in reported:
            reported.add((place.line, place.column))
            message = f"`{shorten(written)}`: {complaint(hole.second)}"
            hint = HINTS[hole.second].replace("${…}", written)
            reading.report.warning("second-shell", message, place, hint=hint)
