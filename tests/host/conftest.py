"""Where hosts find their runs: a SQLite file, or a schema of a PostgreSQL of the test session."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster import Cluster, private_cluster

from .harness import Hosts

_numbers = count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for all tests of this session; each has a schema of its own."""
    with private_cluster() as made:
        yield made


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Hosts on a SQLite database."""
    made = Hosts(tmp_path, str(tmp_path / "resile.db"))
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def hosts_on_any(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    """Hosts on each database in turn."""
    database = str(tmp_path / "resile.db")
    if request.param == "postgres":
        database = request.getfixturevalue("cluster").url(f"hosts_{next(_numbers)}")
    made = Hosts(tmp_path, database)
    yield made
    made.close()
