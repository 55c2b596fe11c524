"""Shared by all documents: their version, and the format of times."""

from __future__ import annotations

import time

from msgspec import Struct


class Document(Struct, frozen=True, kw_only=True):
    """A document that a command prints; `version` rises when a field is removed or changes its meaning."""

    version: int = 1


def timestamp(at: float) -> str:
    """A time in UTC, to the millisecond, in ISO 8601."""
    milliseconds = round(at * 1000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{text}.{milliseconds % 1000:03d}Z"


def optional_timestamp(at: float | None) -> str | None:
    """A time that may be unknown, in ISO 8601."""
    return None if at is None else timestamp(at)
