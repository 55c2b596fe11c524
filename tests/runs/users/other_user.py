"""A second user on this machine: a real process with another uid, which tries things."""

from __future__ import annotations

import os
import pickle
import pwd
from collections.abc import Callable
from typing import TypeVar

import pytest

OTHER = pwd.getpwnam("nobody").pw_uid
T = TypeVar("T")


def require_root() -> None:
    """Skip a test that needs a second user where this user can't become one; CI runs as root and must not skip it."""
    if os.geteuid():
        assert os.environ.get("CI") != "true", "CI runs these tests as root"
        pytest.skip("only root may become another user")


def as_other(attempt: Callable[[], T]) -> T | str:
    """What the attempt returns in a process of the other user, or the name of the error that it raises."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(read)
            os.setgroups([])
            os.setresgid(OTHER, OTHER, OTHER)
            os.setresuid(OTHER, OTHER, OTHER)
            try:
                result: object = attempt()
            except OSError as error:
                result = type(error).__name__
            with open(write, "wb") as file:
                pickle.dump(result, file)
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(data)  # type: ignore[no-any-return]
