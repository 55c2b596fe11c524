"""How long to wait before a retry. Pure: the jitter follows from a hash of the name of the step or the item."""

from __future__ import annotations

from resile.model.rules import Backoff


def delay_seconds(backoff: Backoff, retry: int, identity: str) -> float:
    """The wait before the `retry`-th retry (from 1); `identity` and the number fix its jitter."""
    match backoff.kind:
        case "fixed":
            delay = backoff.initial_seconds
        case "linear":
            delay = backoff.initial_seconds + retry * backoff.increment_seconds
        case "exponential":
            delay = _power(backoff.initial_seconds, backoff.multiplier, retry - 1, backoff.delay_seconds_max)
        case "fibonacci":
            delay = backoff.initial_seconds * _fibonacci(retry)
    if backoff.jitter:
        import zlib

        share = zlib.crc32(f"{identity}/{retry}".encode("utf-8", "surrogateescape")) / 0xFFFFFFFF
        delay += (delay if backoff.jitter_of == "delay" else backoff.initial_seconds) * backoff.jitter * share
    return min(delay, backoff.delay_seconds_max)


def _power(initial: float, multiplier: float, exponent: int, ceiling: float) -> float:
    """initial * multiplier ** exponent, capped at the ceiling before it can overflow."""
    delay = initial
    for _ in range(exponent):
        delay *= multiplier
        if delay >= ceiling or multiplier == 1.0:
            break
    return delay


def _fibonacci(number: int) -> int:
    """1, 1, 2, 3, 5 …"""
    a, b = 1, 1
    for _ in range(number - 1):
        a, b = b, a + b
    return a
