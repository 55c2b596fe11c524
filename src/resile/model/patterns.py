"""Regular expressions from workflow files: they are matched in a time that grows only with the text.

    compile_pattern(source)   a Pattern; raises PatternRefused for what is no pattern, or needs to go back in the text

The engine is RE2, so that no pattern can hang a run, and the same text gives the same answer on every machine and in
every replay. `^` and `$` match at every line. `\\d`, `\\w`, `\\s` and `\\b` mean ASCII characters. Lookaround and
back references do not exist.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

PATTERN_CHARACTERS_MAX = 4_000
PATTERNS_KEPT = 1_024
_MEMORY_BYTES_MAX = 8 * 1024 * 1024
# What Python writes in another way than RE2; the first alternative keeps an escaped backslash together.
_ELSEWHERE = r"\\\\|\\Z|\\u([0-9a-fA-F]{4})|(?<!\\)\{,([0-9]+)\}"
_GOES_BACK = r"\(\?(?:[=!]|<[=!]|P=|\()|\\[1-9]|[*+?}]\+|\(\?>"


class PatternRefused(ValueError):
    """A text is no pattern that can be matched in linear time."""


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def search(self, text: str) -> bool:
        """Does the pattern occur in the text?"""
        return self._compiled.search(text.encode("utf-8", "surrogatepass")) is not None

    def fullmatch(self, text: str) -> bool:
        """Does the pattern match the whole text?"""
        return self._compiled.fullmatch(text.encode("utf-8", "surrogatepass")) is not None


@lru_cache(maxsize=PATTERNS_KEPT)
def compile_pattern(source: str, *, by_line: bool = True) -> Pattern:
    """Compile a pattern; raises PatternRefused."""
    import re2

    if len(source) > PATTERN_CHARACTERS_MAX:
        raise PatternRefused(f"it has more than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    text = f"{'(?m)' if by_line else ''}{re.sub(_ELSEWHERE, _in_re2, source)}"
    try:
        return Pattern(re2.compile(text.encode("utf-8", "surrogatepass"), options=options))
    except re2.error as error:
        if re.search(_GOES_BACK, source):
            raise PatternRefused("lookaround, back references and possessive parts could take for ever") from None
        said = error.args[0] if error.args else ""
        message = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise PatternRefused(message.replace("(?m)", "", 1)) from None


def _in_re2(found: re.Match[str]) -> str:
    """RE2's form of what Python writes in another way."""
    if found[0] == "\\Z":
        return r"\z"
    if found[1]:
        return f"\\x{{{found[1]}}}"
    return f"{{0,{found[2]}}}" if found[2] else found[0]
