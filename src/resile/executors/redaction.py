"""Replaces secrets with `***`: in a whole text, and in a stream that comes in pieces.

Overlapping secrets become one `***`, so no end of a secret shows beside another. A stream holds back only data that may
be the beginning of a secret.

A secret has many patterns (engine/secrets.py), and searching for each of them would take longer than producing the
output. So the search samples the text: for long patterns it takes the eight bytes at every 16th place and looks them up
in a table, which has the eight bytes at each of the first offsets of all patterns. At least one sample falls into each
pattern in the text. The search compares only the few patterns that have the sample, so its time hardly depends on the
number of secrets.

The search also finds a long base64 or hexadecimal pattern if line breaks interrupt it, as in the output of `base64` and
`xxd -p`.

Runs inside the launcher, so nothing is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Code = Literal["Q", "I"]

STARS = b"***"
# Kinds of samples: the bytes of a sample, the format by which a memoryview reads them, the distance of two samples.
KINDS: tuple[tuple[int, Code, int], ...] = ((8, "Q", 16), (8, "Q", 8), (4, "I", 4))
# Up to this number of patterns, searching for one after the other is faster than sampling.
FEW = 8
# The length from which a pattern counts as long. A line break may cut off a piece that is too short for a sample, but
# the rest of a long pattern is long enough.
LONG_BYTES = 23
# An encoded pattern also matches without this many first bytes: a stream may have passed on those before a line break.
SKIPPED_BYTES_MAX = 2

Range = tuple[int, int]


class Patterns:
    """The texts to redact, prepared for the search; false if there are none.

    An empty text in the list separates plain texts from encoded ones, which come after it.
    """

    def __init__(self, listed: Iterable[bytes]) -> None:
        every = list(listed)
        encoded = every[every.index(b"") :] if b"" in every else []
        texts = {text for text in every if text}
        self.breakable = frozenset(text for text in encoded if len(text) >= LONG_BYTES)
        self.samplers: list[Sampler] = []
        left = texts
        for width, code, step in KINDS:
            some = {text for text in left if len(text) >= step + width - 1}
            if len(some) > FEW or some & self.breakable:
                left = left - some
                self.samplers.append(Sampler(width, code, step, some, self.breakable))
        # The texts that `find` searches one after the other.
        self.others = tuple(left)
        self.starts = _starts_of(texts, 1, LONG_BYTES)
        self.start_bytes_max = max(map(len, self.starts), default=0)
        self.broken_starts = _starts_of(self.breakable, SKIPPED_BYTES_MAX + 1, 2 * LONG_BYTES)

    def __bool__(self) -> bool:
        return bool(self.others or self.samplers)

    def find(self, text: bytes, *, is_whole: bool = False) -> tuple[list[Range], int]:
        """The ranges of the text that contain secrets, and the position from which the rest may begin another secret.

        Ranges are in order, and overlapping ranges are joined. If a range goes beyond the position, `find` omits it and
        returns the range's start as the position. In a whole text the position is the end.
        """
        ranges: list[Range] = []
        undecided = len(text) if is_whole else self.begun_at(text)
        for secret in self.others:
            at = text.find(secret)
            while at >= 0:
                ranges.append((at, at + len(secret)))
                at = text.find(secret, at + 1)
        for sampler in self.samplers:
            for at, secret, offset in sampler.hits(text):
                start, end = locate(text, secret, at, offset, secret in self.breakable)
                if end > 0:
                    ranges.append((start, end))
                elif end == 0 and not is_whole:
                    undecided = min(undecided, start)
        merged: list[Range] = []
        for start, end in sorted(ranges):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        while merged and undecided < merged[-1][1]:
            undecided = min(undecided, merged.pop()[0])
        return merged, undecided

    def begun_at(self, text: bytes) -> int:
        """Where a short beginning of a secret starts at the end of the text; samples find longer beginnings."""
        undecided = length = len(text)
        for size in range(1, min(length, self.start_bytes_max) + 1):
            if text[-size:] in self.starts:
                undecided = length - size
        end = text[-LONG_BYTES:]
        # Encoded texts have no blanks, and their lines before a line break are long.
        if self.broken_starts and (b"\n" in end or b"\r" in end) and b" " not in end:
            tail = text[-4 * LONG_BYTES :]
            joined = tail.replace(b"\r", b"").replace(b"\n", b"")
            for size in range(SKIPPED_BYTES_MAX + 1, min(len(joined), 2 * LONG_BYTES) + 1):
                if joined[-size:] in self.broken_starts:
                    undecided = min(undecided, length - broken_length(tail, size))
        return undecided

    def redact(self, text: bytes) -> bytes:
        """The text with every secret replaced by `***`."""
        return replace(text, self.find(text, is_whole=True)[0])


def _starts_of(texts: Iterable[bytes], least: int, below: int) -> set[bytes]:
    """The proper beginnings of texts, from `least` bytes to fewer than `below`."""
    return {text[:size] for text in texts for size in range(least, min(len(text), below))}


class Sampler:
    """Finds candidates for patterns in a text, by samples of one kind."""

    def __init__(self, width: int, code: Code, step: int, texts: Iterable[bytes], breakable: frozenset[bytes]) -> None:
        self.width = width
        self.code = code
        self.step = step
        # The patterns that a sample belongs to, with its offset in them.
        self.places: dict[int, list[tuple[bytes, int]]] = {}
        for text in texts:
            # Each `step` bytes of text contain a sample; a line break may interrupt the first bytes.
            count = step + (LONG_BYTES if text in breakable else 0)
            for offset in range(min(count, len(text) - width + 1)):
                (sample,) = memoryview(text[offset : offset + width]).cast(code)
                self.places.setdefault(sample, []).append((text, offset))
        self.samples = frozenset(self.places)

    def hits(self, text: bytes) -> list[tuple[int, bytes, int]]:
        """(position in the text, pattern, offset in the pattern) for each sample that occurs in a pattern."""
        places, step = self.places, self.step
        whole = memoryview(text)[: len(text) - len(text) % self.width].cast(self.code)
        samples = whole[:: step // self.width].tolist()
        if self.samples.isdisjoint(samples):
            return []
        found = [(index * step, sample) for index, sample in enumerate(samples) if sample in places]
        return [(at, *place) for at, sample in found for place in places[sample]]


def locate(text: bytes, secret: bytes, at: int, offset: int, may_be_broken: bool) -> Range:
    """The range of a secret whose byte `offset` is at `at` in the text; the end is 0 if the text ends first, -1 if the
    secret is not there.
    """
    start = at - offset
    if start >= 0 and text.startswith(secret, start):
        return start, start + len(secret)
    if start >= 0 and secret.startswith(text[start:]):
        return start, 0
    if not may_be_broken:
        return 0, -1
    start = broken_start(text, secret, at, offset)
    return (start, broken_end(text, secret, at, offset)) if start >= 0 else (0, -1)


def broken_start(text: bytes, secret: bytes, at: int, offset: int) -> int:
    """The start of a secret that line breaks may interrupt: `offset` bytes of it are before `at`; -1 if not."""
    while offset:
        line = text.rfind(b"\n", 0, at) + 1
        size = min(offset, at - line)
        if text[at - size : at] != secret[offset - size : offset]:
            return at if offset <= SKIPPED_BYTES_MAX else -1
        at, offset = at - size, offset - size
        if offset and not line:
            return at if offset <= SKIPPED_BYTES_MAX else -1
        if offset:
            at = line - 1 - text.endswith(b"\r", 0, line - 1)
    return at


def broken_end(text: bytes, secret: bytes, at: int, offset: int) -> int:
    """The end of a secret that line breaks may interrupt, from byte `offset` at `at` on; 0 and -1 as in `locate`."""
    while True:
        end = text.find(b"\n", at)
        line = text[at : end if end >= 0 else len(text)].rstrip(b"\r")
        piece = secret[offset : offset + len(line)]
        if not line.startswith(piece):
            return -1
        offset += len(piece)
        if offset == len(secret):
            return at + len(piece)
        if end < 0:
            return 0
        at = end + 1


def broken_length(tail: bytes, size: int) -> int:
    """The length of the shortest end of a text that has `size` bytes besides line breaks."""
    length = size
    while len(tail[-length:].replace(b"\r", b"").replace(b"\n", b"")) < size:
        length += 1
    return length


def replace(text: bytes, ranges: list[Range]) -> bytes:
    """The text with `***` in place of these ranges."""
    pieces: list[bytes] = []
    done = 0
    for start, end in ranges:
        pieces += (text[done:start], STARS)
        done = end
    return b"".join(pieces) + text[done:] if pieces else text


class Stream:
    """One output stream of one attempt on its way to the disk."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self.held = b""

    def feed(self, data: bytes) -> bytes:
        """Add data; return the part that may be written now."""
        text = self.held + data
        ranges, decided = self.patterns.find(text)
        self.held = text[decided:]
        return replace(text[:decided], ranges)

    def finish(self) -> bytes:
        """End the stream; return the data that was held back."""
        text, self.held = self.held, b""
        return self.patterns.redact(text)
