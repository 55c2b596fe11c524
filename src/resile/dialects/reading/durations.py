"""Durations and sizes as people write them: `1h30m`, `500ms`, `4GiB`. A bare number is seconds, or bytes."""

from __future__ import annotations

import re

from resile.model.limits import DURATION_SECONDS_MAX

MEMORY_BYTES_MAX = 2**60

_SECONDS: dict[str, float] = {
    **dict.fromkeys(("ms", "msec", "millis"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_PART = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]+)")
_BARE = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgtp]?)(i?b)?")


def duration_seconds(value: object, *, zero: bool = False) -> float:
    """Parse a duration to seconds; raises ValueError with the problem."""
    seconds = _parts(value) if isinstance(value, str) else _number(value)
    if seconds < 0:
        raise ValueError("is negative")
    if seconds == 0 and not zero:
        raise ValueError("is zero")
    if seconds > DURATION_SECONDS_MAX:
        raise ValueError(f"is longer than {DURATION_SECONDS_MAX / 86_400:.0f} days")
    return seconds


def _number(value: object) -> float:
    """A bare number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError("is not a duration")
    # Compare before converting: an int of a thousand digits has no float.
    return float(min(max(value, -1), DURATION_SECONDS_MAX + 1))


def _parts(text: str) -> float:
    """Humantime: numbers with units, added up."""
    rest = text.strip().lower()
    if _BARE.fullmatch(rest):
        return float(rest)
    if rest.startswith("-"):
        raise ValueError("is negative")
    if not rest:
        raise ValueError("is empty")
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or part[2] not in _SECONDS:
            raise ValueError("is not a duration")
        total += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return total


def memory_bytes(value: object) -> int:
    """Parse a size to bytes (`512m`, `4g`, `4GiB`; powers of 1024); raises ValueError with the problem."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip().lower())
        if match is None:
            raise ValueError("is negative" if value.strip().startswith("-") else "is not a size")
        count = int(float(match[1]) * 1024 ** _POWERS[match[2]]) if "." in match[1] or match[2] else int(match[1])
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    else:
        raise ValueError("is not a size")
    if count <= 0:
        raise ValueError("is negative" if count < 0 else "is zero")
    if count > MEMORY_BYTES_MAX:
        raise ValueError("is more than any machine has")
    return count
