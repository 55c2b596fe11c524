"""A server without slots of its own, and workers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.service import Server

from .process import WorkerProcess


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers in a folder of the test's own; they end with it."""
    started: list[Server] = []

    def start(*options: str, **env: str) -> Server:
        """Start one, which runs no step itself."""
        started.append(Server(tmp_path, "--slots", "0", *options, **env))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts workers of a server; they end with the test, and what they run does."""
    started: list[WorkerProcess] = []

    def start(server: Server, name: str, *options: str, wait: bool = True, **env: str) -> WorkerProcess:
        """Start one, and wait until the server knows it."""
        started.append(WorkerProcess(tmp_path, server, name, *options, **env))
        if wait:
            started[-1].wait_until_known()
        return started[-1]

    yield start
    for worker in started:
        worker.close()
