"""Shared by all documents: their version, the format of times, and the inputs of a run."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct

HIDDEN = "***"


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


def public_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a run as documents show them: a value whose name looks like that of a secret is hidden."""
    from resile.engine.secrets import looks_secret

    return {name: HIDDEN if looks_secret(name) else _public(value) for name, value in inputs.items()}


def _public(value: Any) -> Any:
    """A value of an input, with the same done to what is inside it."""
    if isinstance(value, dict):
        return public_inputs(value)
    return [_public(item) for item in value] if isinstance(value, list) else value
