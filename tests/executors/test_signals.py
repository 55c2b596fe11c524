"""The signals that ask a process to stop: which of them count."""

from __future__ import annotations

import signal

import pytest

from resile.executors import signals
from resile.executors.signals import StopSignals


def test_a_signal_that_repeats_the_last_one_at_once_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another signal counts at once, and the same one counts again after a moment, as a second Ctrl-C does."""
    monkeypatch.setattr(signals, "SAME_SECONDS", 1e9)
    stops = StopSignals()
    assert [stops.add(one) for one in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT)] == [True, False, True]
    monkeypatch.setattr(signals, "SAME_SECONDS", 0.0)
    assert stops.add(signal.SIGINT)
