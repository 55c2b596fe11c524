"""Launchers that this process started and has to reap."""

from __future__ import annotations

from resile.executors.local import prestart
from resile.executors.local.processes import read_process

from .driver import lives, wait_for


def test_a_launcher_is_reaped_when_it_has_exited_and_not_before() -> None:
    """One that runs is remembered; after its exit no trace of it is left in the process table."""
    launcher = prestart.prestart()
    prestart.reap()
    assert lives(launcher.pid)
    launcher.socket.close()
    wait_for(lambda: not lives(launcher.pid))
    assert read_process(launcher.pid) is not None
    prestart.reap()
    assert read_process(launcher.pid) is None
