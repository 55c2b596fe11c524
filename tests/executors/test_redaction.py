"""Redaction: a stream cut anywhere gives what the whole text gives, and no sample is missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resile.executors.redaction import LONG_BYTES, Patterns, Stream

letters = st.text(alphabet="abc", min_size=1, max_size=5).map(str.encode)
# Of every length around those at which the search changes its way, and more than a few of them.
longer = st.lists(st.text("ab", min_size=5, max_size=30).map(str.encode), min_size=1, max_size=12)
pieces = st.lists(st.text("abx\n", max_size=40).map(str.encode), max_size=8)


def streamed(patterns: Patterns, parts: list[bytes]) -> bytes:
    """What a stream gives for a text in parts."""
    stream = Stream(patterns)
    return b"".join([*map(stream.feed, parts), stream.finish()])


def redact_slowly(text: bytes, secrets: list[bytes]) -> bytes:
    """The text with every secret replaced, as simply as it can be written."""
    hidden = [False] * len(text)
    ends = set()
    for at in range(len(text)):
        for secret in secrets:
            if text.startswith(secret, at):
                hidden[at : at + len(secret)] = [True] * len(secret)
                ends.add(at + len(secret))
    inner = [
        any(text.startswith(secret, at) for secret in secrets for at in range(max(0, cut - len(secret) + 1), cut))
        for cut in range(len(text))
    ]
    made = b""
    for at in range(len(text)):
        if not hidden[at]:
            made += text[at : at + 1]
        elif not (at and hidden[at - 1] and inner[at]):
            made += b"***"
    return made


@given(st.lists(letters, min_size=1, max_size=3), st.lists(st.text("abcx", max_size=6).map(str.encode), max_size=8))
def test_a_stream_is_redacted_like_the_whole(secrets: list[bytes], parts: list[bytes]) -> None:
    """However the text is cut into reads, the result is that of the text in one piece."""
    patterns = Patterns(secrets)
    assert streamed(patterns, parts) == patterns.redact(b"".join(parts))


@given(longer, pieces, st.data())
def test_no_pattern_avoids_the_samples(secrets: list[bytes], parts: list[bytes], data: st.DataObject) -> None:
    """A text with secrets of any length in any place is redacted as by comparing every secret with every place."""
    for secret in data.draw(st.lists(st.sampled_from(secrets), max_size=3)):
        parts.insert(data.draw(st.integers(0, len(parts))), secret)
    patterns, text = Patterns(secrets), b"".join(parts)
    assert patterns.redact(text) == redact_slowly(text, secrets)
    assert streamed(patterns, parts) == patterns.redact(text)


@given(st.lists(letters, min_size=1, max_size=3), st.text("abcx", max_size=30).map(str.encode))
def test_no_secret_is_left(secrets: list[bytes], text: bytes) -> None:
    """No secret stands in what is left between the stars."""
    left = Patterns(secrets).redact(text).split(b"***")
    assert not any(secret in part for part in left for secret in secrets)


def test_overlapping_secrets_leave_no_end() -> None:
    """Two secrets that share letters in the text become one find."""
    assert Patterns([b"abcd", b"cdef"]).redact(b"-abcdef-") == b"-***-"


def test_without_secrets_nothing_is_looked_for() -> None:
    """No patterns are false, so that the launcher passes output on as it is."""
    assert not Patterns([])
    assert not Patterns([b""])
    assert Patterns([b"a"])
    assert Patterns([b"", b"encoded"])


ENCODED = b"aGVsbG8gd29ybGQsIHRoaXMgaXMgYSBsb25nIHNlY3JldCB0aGF0IGlzIHdyYXBwZWQ"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("cut", [None, 0, 1, 5])
def test_line_breaks_hide_no_encoded_secret(end: bytes, cut: int | None) -> None:
    """Wherever lines break an encoded secret, and wherever the stream is cut around that, all but two letters go."""
    patterns = Patterns([b"", ENCODED])
    for first in range(len(ENCODED) + 1):
        text = b"A" * 20 + ENCODED[:first] + end + ENCODED[first : first + 60] + end + ENCODED[first + 60 :] + b"=\n"
        place = 20 + first + len(end) - 1 + (cut or 0)
        made = streamed(patterns, [text[:place], text[place:]]) if cut is not None else patterns.redact(text)
        allowed = {b"A" * 20 + ENCODED[:kept] + gap + b"***" for kept in (0, 1, 2) for gap in (b"", b"\r", end)}
        assert any(made.startswith(start) for start in allowed), (first, made)
        assert made.rstrip(b"=\r\n").endswith(b"***"), (first, made)


def test_an_ordinary_line_is_not_held_back() -> None:
    """A line that ends like the beginning of an encoded secret is written at once."""
    stream = Stream(Patterns([b"", ENCODED]))
    assert stream.feed(b"the end is aG\n") == b"the end is aG\n"
    assert stream.feed(b"A" * 70 + ENCODED[:2] + b"\n") == b"A" * 70 + ENCODED[:2] + b"\n"
    assert stream.feed(b"A" * 70 + ENCODED[:3] + b"\n") == b"A" * 70
    assert stream.feed(b"plain\n") == ENCODED[:3] + b"\nplain\n"


def test_a_short_encoded_secret_is_found_in_one_line_only() -> None:
    """Lines are never broken so early."""
    short = ENCODED[: LONG_BYTES - 1]
    patterns = Patterns([b"", short])
    assert patterns.redact(b"-" + short + b"-") == b"-***-"
    assert patterns.redact(short[:9] + b"\n" + short[9:]) == short[:9] + b"\n" + short[9:]
