"""Where the stores under test keep their data: one place for each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from resile.store.contract import Store
from resile.store.memory import MemoryDatabase, MemoryStore
from resile.store.postgres.address import parse
from resile.store.postgres.store import PostgresStore
from resile.store.sqlite.store import SqliteStore
from tests.cluster import Cluster, private_cluster


class Place(Protocol):
    """One database that can be opened several times."""

    def open(self) -> Store:
        """Another opening of it."""

    def close(self) -> None:
        """Close every opening."""


class MemoryPlace:
    """A database in memory."""

    def __init__(self, _: Path) -> None:
        self.database = MemoryDatabase()
        self.stores: list[Store] = []

    def open(self) -> Store:
        """Another opening of it."""
        self.stores.append(MemoryStore(self.database))
        return self.stores[-1]

    def close(self) -> None:
        """Close every opening."""
        for store in self.stores:
            store.close()


class SqlitePlace:
    """A database file in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state" / "resile.db"
        self.stores: list[Store] = []

    def open(self) -> Store:
        """Another opening of it."""
        self.stores.append(SqliteStore(str(self.path)))
        return self.stores[-1]

    def close(self) -> None:
        """Close every opening."""
        for store in self.stores:
            store.close()


class PostgresPlace:
    """A schema of its own in the cluster of the test session."""

    cluster: ClassVar[Cluster]
    numbers = count(1)

    def __init__(self, _: Path) -> None:
        self.url = self.cluster.url(f"place_{next(self.numbers)}")
        self.stores: list[Store] = []

    def open(self) -> Store:
        """Another opening of it."""
        self.stores.append(PostgresStore(parse(self.url)))
        return self.stores[-1]

    def close(self) -> None:
        """Close every opening."""
        for store in self.stores:
            store.close()


PLACES: dict[str, type[MemoryPlace] | type[SqlitePlace] | type[PostgresPlace]] = {
    "memory": MemoryPlace,
    "sqlite": SqlitePlace,
    "postgres": PostgresPlace,
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for all tests of this session; each has a schema of its own."""
    with private_cluster() as made:
        PostgresPlace.cluster = made
        yield made


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each kind of store in turn."""
    if request.param == "postgres":
        request.getfixturevalue("cluster")
    made = PLACES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(place: Place) -> Store:
    """An empty store of each kind."""
    return place.open()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a SQLite database may be made."""
    return str(tmp_path / "state" / "resile.db")
