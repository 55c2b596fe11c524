"""What all suites share: signals that processes must not inherit, and examples that are the same in every run.

Hypothesis draws the same examples each time, so that a suite is green or red for everybody alike; a search for new
ones is `HYPOTHESIS_PROFILE=search make test`, and what it finds becomes an `@example`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from resile.core.transitions import refuse_unlisted_transitions

settings.register_profile("same", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

refuse_unlisted_transitions()

# `nohup` and a shell's `&` hand on ignored signals, and a test that sends one would wait in vain.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_failed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the name of a failed test."""
    if report.failed:
        _failed.append(report.nodeid)


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the names of failed tests into the file that RESILE_FAILED_TESTS names; `.ci/run` reads it.

    Only a session that ran all its tests writes it: after a crash or a kill, the result of the others is not known.
    """
    names = os.environ.get("RESILE_FAILED_TESTS")
    if names and exitstatus == pytest.ExitCode.TESTS_FAILED and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(names).write_text("".join(f"{name}\n" for name in _failed))
