"""What all documents share: their version, and how they write a time."""

from __future__ import annotations

import time

from msgspec import Struct


class Document(Struct, frozen=True, kw_only=True):
    """A document that a command prints; `version` rises when a field goes or changes its meaning."""

    version: int = 1


def timestamp(at: float) -> str:
    """A time in UTC, to the millisecond, as ISO 8601 writes it."""
    milliseconds = round(at * 1000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{text}.{milliseconds % 1000:03d}Z"


def optional_timestamp(at: float | None) -> str | None:
    """A time that may be unknown, as ISO 8601 writes it."""
    return None if at is None else timestamp(at)
