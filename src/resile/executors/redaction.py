"""Replaces secrets with `***`: in a whole text, and in a stream that comes in pieces.

A secret is a value, and each of its lines of four characters or more. Overlapping secrets become one `***`, so no
end of a secret shows beside another. A stream holds back only data that may be the beginning of a secret.

Runs inside the launcher, so nothing is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LINE_CHARACTERS_MIN = 4
STARS = b"***"


def patterns_of(values: Iterable[bytes]) -> tuple[bytes, ...]:
    """The texts to redact: each value, and each of its lines that is long enough."""
    found = dict.fromkeys(value for value in values if value)
    for value in list(found):
        for line in value.splitlines():
            if len(line.decode("utf-8", "replace")) >= LINE_CHARACTERS_MIN:
                found[line] = None
    return tuple(found)


def find_secrets(text: bytes, secrets: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """The ranges of the text that contain secrets, in order; overlapping ranges become one."""
    ranges = []
    for secret in secrets:
        at = text.find(secret)
        while at >= 0:
            ranges.append((at, at + len(secret)))
            at = text.find(secret, at + 1)
    ranges.sort()
    merged: list[tuple[int, int]] = []
    for start, end in ranges:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def redact(text: bytes, secrets: tuple[bytes, ...]) -> bytes:
    """The text with every secret replaced by `***`."""
    pieces: list[bytes] = []
    done = 0
    for start, end in find_secrets(text, secrets):
        pieces += (text[done:start], STARS)
        done = end
    return b"".join(pieces) + text[done:] if pieces else text


class Stream:
    """One output stream of one attempt on its way to the disk."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self.secrets = secrets
        self.held = b""

    def feed(self, data: bytes) -> bytes:
        """Add data; return the part that may be written now."""
        text = self.held + data
        decided = self.decided_length(text)
        self.held = text[decided:]
        return redact(text[:decided], self.secrets)

    def finish(self) -> bytes:
        """End the stream; return the data that was held back."""
        text, self.held = self.held, b""
        return redact(text, self.secrets)

    def decided_length(self, text: bytes) -> int:
        """The length of the decided part: the rest may be the beginning of a secret, or is part of one."""
        decided = len(text)
        for secret in self.secrets:
            at = max(0, len(text) - len(secret) + 1)
            while (at := text.find(secret[:1], at)) >= 0:
                if secret.startswith(text[at:]):
                    decided = min(decided, at)
                    break
                at += 1
        if decided < len(text):
            for start, end in find_secrets(text, self.secrets):
                if start < decided < end:
                    return start
        return decided
