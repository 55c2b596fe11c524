"""How long a rule waits before each retry."""

from __future__ import annotations

import zlib

import pytest

from resile.core.recovery.backoff import delay_seconds
from resile.model.rules import Backoff


def waits(backoff: Backoff, count: int = 5) -> list[float]:
    """The waits before the first retries."""
    return [delay_seconds(backoff, retry, "step") for retry in range(1, count + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff("fixed", 2.0), [2.0, 2.0, 2.0, 2.0, 2.0]),
        (Backoff("linear", 1.0, increment_seconds=0.5), [1.5, 2.0, 2.5, 3.0, 3.5]),
        (Backoff("exponential", 1.0, multiplier=3.0), [1.0, 3.0, 9.0, 27.0, 81.0]),
        (Backoff("exponential", 1.0, multiplier=1.0), [1.0, 1.0, 1.0, 1.0, 1.0]),
        (Backoff("fibonacci", 2.0), [2.0, 2.0, 4.0, 6.0, 10.0]),
    ],
)
def test_each_kind_grows_in_its_way(backoff: Backoff, expected: list[float]) -> None:
    """The wait before the n-th retry follows from the kind of the backoff."""
    assert waits(backoff) == expected


@pytest.mark.parametrize("kind", ["linear", "exponential", "fibonacci"])
def test_no_wait_is_longer_than_the_longest(kind: str) -> None:
    """`max_delay` caps every wait, however many retries there were."""
    backoff = Backoff(kind, 1.0, increment_seconds=1.0, multiplier=2.0, delay_seconds_max=7.0)  # type: ignore[arg-type]
    assert delay_seconds(backoff, 1000, "step") == 7.0


def test_jitter_adds_a_share_that_the_name_and_the_number_fix() -> None:
    """The share comes from a hash, so the same retry of the same step always waits for the same time."""
    share = zlib.crc32(b"step/3") / 0xFFFFFFFF
    assert 0.0 < share < 1.0
    backoff = Backoff("exponential", 1.0, multiplier=2.0, jitter=0.5)
    assert delay_seconds(backoff, 3, "step") == 4.0 + 4.0 * 0.5 * share
    assert delay_seconds(backoff, 3, "other") != delay_seconds(backoff, 3, "step")


def test_jitter_can_be_a_share_of_the_first_wait() -> None:
    """With `jitter_of: initial` later waits vary as little as the first one."""
    share = zlib.crc32(b"step/3") / 0xFFFFFFFF
    backoff = Backoff("exponential", 1.0, multiplier=2.0, jitter=0.5, jitter_of="initial")
    assert delay_seconds(backoff, 3, "step") == 4.0 + 1.0 * 0.5 * share


def test_jitter_goes_no_further_than_the_longest_wait() -> None:
    """The cap holds for the wait with its jitter."""
    backoff = Backoff("fixed", 4.0, jitter=1.0, delay_seconds_max=4.0)
    assert waits(backoff, 3) == [4.0, 4.0, 4.0]
