"""What becomes of the report about a call of a function."""

from __future__ import annotations

import pytest

from resile.core.state import new_state
from resile.engine.actions.function import outcome_of
from resile.executors.contract import Returned
from resile.model.failure import LogRange, Outcome, Usage
from tests.core.world import flow
from tests.engine.simulated import MemoryOutput

NOWHERE = LogRange("", 0, 0, 0, 0)


@pytest.mark.parametrize(("at", "seconds"), [(12.5, 2.5), (9.0, 0.0)])
def test_a_call_takes_the_time_between_its_start_and_its_end(at: float, seconds: float) -> None:
    """And none where the clock was set back in between."""
    report = Returned(1, 1, 10.0, at, b"", "", "", (), "", 0, 0.5, 7, NOWHERE)
    outcome = outcome_of(report, new_state(flow()), None, None, MemoryOutput())
    assert outcome == Outcome(0, None, Usage(seconds, 0.5, 7), None)


def test_a_call_that_raised_has_an_exit_code() -> None:
    """That of `SystemExit`, otherwise 1; the failure itself has only a code that was given."""
    for given, shown in ((0, 1), (3, 3)):
        report = Returned(
            1, 1, 10.0, 11.0, b"", "exit", "ValueError: x", ("ValueError",), "trace", given, 0.0, 0, NOWHERE
        )
        outcome = outcome_of(report, new_state(flow()), None, None, MemoryOutput())
        assert outcome.failure is not None
        assert (outcome.exit_code, outcome.failure.exit_code) == (shown, given or None)
        assert (outcome.failure.message, outcome.failure.stderr) == ("ValueError: x", "trace")
