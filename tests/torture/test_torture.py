"""A few rounds of `make torture` in every run of the slow suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torture.cases import FAKETIME
from tests.torture.places import can_mount
from tests.torture.rounds import play


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 16))
def test_a_round_of_torture_ends_well(number: int, tmp_path: Path) -> None:
    """Whatever happened in the round, no effect was doubled, no output changed, and every run ended."""
    assert (can_mount() and FAKETIME) or os.environ.get("CI") != "true", "CI needs root, loop devices and libfaketime"
    happened, faults = play(f"1/{number}", tmp_path / "round")
    assert faults == [], happened
