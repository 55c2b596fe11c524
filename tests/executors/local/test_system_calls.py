"""The launcher's dealings with the system: who may connect to it."""

from __future__ import annotations

import os
import socket

import pytest

from resile.executors.local.launcher import system_calls

NOBODY = 65534


def connect_as(user: int, address: str) -> None:
    """Connect from a process of another user, which is over when this returns."""
    pid = os.fork()
    if not pid:
        try:
            os.setresuid(user, user, user)
            socket.socket(socket.AF_UNIX).connect(address)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_connection_of_another_user_is_refused() -> None:
    """The launcher starts commands for its own user and for root only."""
    if os.geteuid():
        pytest.skip("only root may become another user")
    address = f"\0resile-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(2)
        listener.setblocking(False)
        connect_as(NOBODY, address)
        assert system_calls.accept(listener.fileno()) == -1
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(address)
            accepted = system_calls.accept(listener.fileno())
            assert accepted >= 0
            os.close(accepted)
        assert system_calls.accept(listener.fileno()) == -1
