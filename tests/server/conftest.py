"""Servers for tests: one that many tests share, and new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .service import Api, Server


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without tokens; tests use runs of their own on it."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def api(shared_server: Server) -> Api:
    """Requests to the server that tests share."""
    return shared_server.api


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers in a folder of the test's own; they end with it."""
    started: list[Server] = []

    def start(*options: str, **env: str) -> Server:
        """Start one."""
        started.append(Server(tmp_path, *options, **env))
        return started[-1]

    yield start
    for server in started:
        server.close()
