"""A module with a function that is called like one elsewhere."""

from __future__ import annotations

from resile import step


@step(rules=[{"types": [LookupError]}])
def odd(number: int) -> int:
    """Its argument."""
    return number
