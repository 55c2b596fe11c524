"""Durations and sizes."""

from __future__ import annotations

import pytest

from resile.dialects.reading.durations import duration_seconds, memory_bytes


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("1h30m", 5400.0), ("1d", 86_400.0), ("1w", 604_800.0),
        ("1 h 5 sec", 3605.0), ("1.5h", 5400.0), ("30", 30.0), (30, 30.0), (0.25, 0.25), ("2 Minutes", 120.0),
        ("366d", 366 * 86_400.0),
    ],
)  # fmt: skip
def test_durations(written: object, seconds: float) -> None:
    """A number is seconds, a text adds up its parts."""
    assert duration_seconds(written) == seconds


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (-1, "is negative"), ("-1s", "is negative"), (-0.5, "is negative"), (0, "is zero"), ("0s", "is zero"),
        ("", "is empty"), ("5x", "is not a duration"), ("ten", "is not a duration"), ("1h 30", "is not a duration"),
        (True, "is not a duration"), (float("nan"), "is not a duration"), (float("inf"), "longer than 366 days"),
        ("367d", "longer than 366 days"), (10**400, "longer than 366 days"), ("9" * 50 + "s", "is not a duration"),
        (None, "is not a duration"), ("1h-5m", "is not a duration"),
    ],
)  # fmt: skip
def test_durations_refused(written: object, problem: str) -> None:
    """What is no duration, or a senseless one, is refused with the reason."""
    with pytest.raises(ValueError, match=problem):
        duration_seconds(written)


def test_zero_where_it_makes_sense() -> None:
    """No grace time is a grace time."""
    assert duration_seconds(0, zero=True) == 0.0


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("512m", 512 * 1024**2), ("4g", 4 * 1024**3), ("4GiB", 4 * 1024**3), ("4 GB", 4 * 1024**3), ("1.5k", 1536),
        ("100", 100), ("100b", 100), (4096, 4096), ("2T", 2 * 1024**4),
    ],
)  # fmt: skip
def test_sizes(written: object, count: int) -> None:
    """Units are powers of 1024, a number is bytes."""
    assert memory_bytes(written) == count


@pytest.mark.parametrize(
    ("written", "problem"),
    [("", "is not a size"), ("4x", "is not a size"), (-1, "is negative"), ("-4g", "is negative"), (0, "is zero"),
     (True, "is not a size"), (1.5, "is not a size"), ("9999999999p", "more than any machine")],
)  # fmt: skip
def test_sizes_refused(written: object, problem: str) -> None:
    """What is no size, or a senseless one, is refused with the reason."""
    with pytest.raises(ValueError, match=problem):
        memory_bytes(written)
