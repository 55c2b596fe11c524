"""What a machine has for the steps of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from resile.engine import resources


@pytest.fixture
def one_processor() -> Iterator[None]:
    """Let this process run on one processor only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_processor")
def test_one_processor_runs_one_step_at_a_time() -> None:
    """Unless the caller says otherwise."""
    assert resources.measure(None, None, None, None).parallel == 1
    assert resources.measure(3, None, None, None).parallel == 3
