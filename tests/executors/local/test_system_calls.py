"""The launcher's socket: who may connect to it, and to whom an engine connects."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from resile.errors import ResileError
from resile.executors.local.launcher import system_calls
from tests.executors.local.driver import Driver, sh
from tests.runs.users.other_user import OTHER, as_other, require_root


def test_a_connection_of_another_user_is_refused() -> None:
    """The launcher starts commands for its own user and for root only."""
    require_root()
    address = f"\0resile-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(2)
        listener.setblocking(False)
        assert as_other(lambda: socket.socket(socket.AF_UNIX).connect(address)) is None
        assert system_calls.accept(listener.fileno()) == -1
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(address)
            accepted = system_calls.accept(listener.fileno())
            assert accepted >= 0
            os.close(accepted)
        assert system_calls.accept(listener.fileno()) == -1


def test_a_socket_of_another_user_is_refused(tmp_path: Path) -> None:
    """An engine sends its environment to a launcher of its own user only, also if it is root."""
    require_root()
    folder = os.fsencode(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(folder + b"/" + system_calls.SOCKET_NAME)
        # The kernel notes the user who calls listen.
        os.seteuid(OTHER)
        listener.listen(1)
        os.seteuid(0)
        with pytest.raises(PermissionError):
            system_calls.connect(folder)
        listener.listen(1)
        connection = system_calls.connect(folder)
        assert connection is not None
        connection.close()


def test_an_executor_does_not_talk_to_a_launcher_of_another_user(tmp_path: Path) -> None:
    """While the run's launcher lives but another user listens on its socket, a resume ends with an error at once."""
    require_root()
    driver = Driver(tmp_path)
    driver.executor.start([sh(1, "exec sleep 60")])
    pid = driver.started(1).pid
    driver.executor.close()
    path = tmp_path / "launcher" / "socket"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.seteuid(OTHER)
        listener.listen(1)
        os.seteuid(0)
        with pytest.raises(ResileError) as caught:
            Driver(tmp_path)
        listener.setblocking(False)
        peer, _ = listener.accept()
        assert peer.recv(1) == b""
        peer.close()
    assert (caught.value.code, caught.value.where) == ("launcher_foreign", str(path))
    os.kill(pid, signal.SIGKILL)


def test_a_folder_that_is_gone_has_no_launcher(tmp_path: Path) -> None:
    """An engine whose folder of the launcher was deleted finds none, and starts one."""
    assert system_calls.connect(os.fsencode(tmp_path / "gone")) is None
