"""Which store is meant: paths, addresses, the environment, and the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from resile.store.errors import StoreError, StoreMissing
from resile.store.memory import MemoryStore
from resile.store.open import default_output, exists, open_store
from resile.store.sqlite.store import SqliteStore


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the person who runs the tests is used."""
    for name in ("RESILE_DB", "RESILE_OUTPUT_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def opened(name: str | None) -> str:
    """The file that a name opens."""
    store = open_store(name)
    assert isinstance(store, SqliteStore)
    store.close()
    assert Path(store.path).is_file()
    return store.path


def test_paths_and_addresses_name_files(tmp_path: Path) -> None:
    """A path is taken as it is; an address is relative with three slashes and absolute with four."""
    assert opened("here.db") == "here.db"
    assert opened("sqlite:///there.db") == "there.db"
    assert opened(f"sqlite:///{tmp_path}/far.db") == f"{tmp_path}/far.db"
    assert opened("~/home.db") == f"{tmp_path}/home/home.db"


def test_the_default_is_one_store_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First $RESILE_DB, then the state folder of the session, then the one below home."""
    assert opened(None) == f"{tmp_path}/home/.local/state/resile/resile.db"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert opened(None) == f"{tmp_path}/home/.local/state/resile/resile.db"
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")
    assert opened(None) == f"{tmp_path}/state/resile/resile.db"
    monkeypatch.setenv("RESILE_DB", f"sqlite:///{tmp_path}/mine.db")
    assert opened(None) == f"{tmp_path}/mine.db"
    assert opened("given.db") == "given.db"


def test_a_store_in_memory_leaves_no_file(tmp_path: Path) -> None:
    """Both spellings open a store of its own."""
    for name in ("memory:", ":memory:"):
        assert isinstance(open_store(name), MemoryStore)
        assert not exists(name)
    assert list(tmp_path.iterdir()) == []


def test_other_databases_are_refused() -> None:
    """An unknown kind is named, and the hint says which there are."""
    with pytest.raises(StoreError, match="mysql://") as refused:
        open_store("mysql://h/db")
    assert refused.value.code == "store-unsupported"
    assert "postgresql://HOST/NAME" in refused.value.hint


def test_reading_does_not_make_a_store(tmp_path: Path) -> None:
    """A missing store is an error to a reader, and `exists` says so before."""
    assert not exists("gone.db")
    with pytest.raises(StoreMissing):
        open_store("gone.db", readonly=True)
    assert list(tmp_path.iterdir()) == []
    opened("gone.db")
    assert exists("gone.db")


def test_output_lies_beside_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the environment says where."""
    assert default_output("some/where/resile.db") == "some/where/output"
    assert default_output("resile.db") == "output"
    assert default_output("memory:") == "output"
    monkeypatch.setenv("RESILE_OUTPUT_DIR", "elsewhere")
    assert default_output("some/where/resile.db") == "elsewhere"
