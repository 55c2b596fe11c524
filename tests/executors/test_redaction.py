"""Redaction: a stream cut anywhere gives what the whole text gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resile.executors.local.redaction import Stream, patterns_of, redact

letters = st.text(alphabet="abc", min_size=1, max_size=5).map(str.encode)


@given(st.lists(letters, min_size=1, max_size=3), st.lists(st.text("abcx", max_size=6).map(str.encode), max_size=8))
def test_a_stream_is_redacted_like_the_whole(secrets: list[bytes], pieces: list[bytes]) -> None:
    """However the text is cut into reads, the result is that of the text in one piece."""
    found = patterns_of(secrets)
    stream = Stream(found)
    assert b"".join([*map(stream.feed, pieces), stream.finish()]) == redact(b"".join(pieces), found)


@given(st.lists(letters, min_size=1, max_size=3), st.text("abcx", max_size=30).map(str.encode))
def test_no_secret_is_left(secrets: list[bytes], text: bytes) -> None:
    """No secret stands in what is left between the stars."""
    left = redact(text, patterns_of(secrets)).split(b"***")
    assert not any(secret in part for part in left for secret in secrets)


def test_overlapping_secrets_leave_no_end() -> None:
    """Two secrets that share letters in the text become one find."""
    assert redact(b"-abcdef-", patterns_of([b"abcd", b"cdef"])) == b"-***-"


def test_short_lines_of_a_secret_are_not_looked_for() -> None:
    """Lines below four characters would turn ordinary text into stars; the value itself always counts."""
    assert patterns_of([b"abc\nlong enough", b"xy"]) == (b"abc\nlong enough", b"xy", b"long enough")


def test_a_line_of_four_characters_is_long_enough() -> None:
    """Four characters count and three do not, however many bytes they have."""
    assert patterns_of([b"abcd\nxyz"]) == (b"abcd\nxyz", b"abcd")
    assert patterns_of(["äöüß\näöü".encode()]) == ("äöüß\näöü".encode(), "äöüß".encode())
