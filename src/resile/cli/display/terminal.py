"""Text for a terminal: colors and line ends pass, every other control character is shown as its code.

    harmless(text)                  one whole text: an escape shows as `\\x1b`, a lone return begins a new line
    Harmless().feed(data), .end()   output that comes in pieces, which may end in the middle of a character or a color

A terminal obeys what it is sent: a program can set its title and clipboard, move its cursor, hide text and make it
answer with keystrokes. Names, values and output come from outside, so everything that a command prints passes through
here. A pipe gets the bytes.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

COLOR_CHARACTERS_MAX = 60
RESET = "\x1b[0m"
_COLOR = rf"\x1b\[[0-9;:]{{0,{COLOR_CHARACTERS_MAX}}}m"
# The last part are the characters that change the direction of text.
_CONTROLS = rf"{_COLOR}|\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
# What may continue in the next piece.
_OPEN = rf"(?:\x1b(?:\[[0-9;:]{{0,{COLOR_CHARACTERS_MAX}}})?|\r)\Z"


def harmless(text: str, *, is_colored: bool = True) -> str:
    """The text without the control characters that a terminal would obey; colors stay where they are wanted."""
    if text.isprintable():
        return text
    import re

    def code_of(found: re.Match[str]) -> str:
        control = found[0]
        if len(control) > 1 and control != "\r\n":
            return control if is_colored else ""
        if control in ("\r\n", "\r"):
            return "\n"
        return f"\\x{ord(control):02x}" if control < "\x7f" else f"\\u{ord(control):04x}"

    return re.sub(_CONTROLS, code_of, text)


class Harmless:
    """Makes the output of one attempt harmless, piece by piece."""

    def __init__(self, *, is_colored: bool) -> None:
        self._is_colored = is_colored
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""
        self._has_color = False

    def feed(self, data: bytes, *, is_last: bool = False) -> str:
        """The text of the next piece, as far as it is complete."""
        import re

        text = self._rest + self._decoder.decode(data, is_last)
        unfinished = None if is_last else re.search(_OPEN, text)
        self._rest = "" if unfinished is None else unfinished[0]
        text = harmless(text.removesuffix(self._rest), is_colored=self._is_colored)
        self._has_color = self._has_color or "\x1b" in text
        return text

    def end(self) -> str:
        """The last text; it ends the colors, so that the next line does not have them."""
        return self.feed(b"", is_last=True) + (RESET if self._has_color else "")
