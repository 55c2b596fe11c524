"""Where the store is: what `--db`, $RESILE_DB and the defaults mean.

PATH, sqlite:///PATH      a SQLite file (sqlite:////abs/path is absolute, as other tools read it)
memory:                   nothing is kept
nothing                   $RESILE_DB, else $XDG_STATE_HOME/resile/resile.db, else ~/.local/state/resile/resile.db
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from resile.store.errors import StoreError

if TYPE_CHECKING:
    from resile.store.contract import Store

_SQLITE = "sqlite:///"
_MEMORY = ("memory:", ":memory:")


def open_store(url_or_path: str | None = None, *, readonly: bool = False) -> Store:
    """Open the store that the caller named, or the user's own."""
    path = _path(url_or_path)
    if path is None:
        from resile.store.memory import MemoryStore

        return MemoryStore()
    from resile.store.sqlite.store import SqliteStore

    return SqliteStore(path, readonly=readonly)


def exists(url_or_path: str | None = None) -> bool:
    """Is there a store already? One in memory never is."""
    path = _path(url_or_path)
    return path is not None and os.path.exists(path)


def default_output(url_or_path: str | None = None) -> str:
    """The folder for the output of steps: $RESILE_OUTPUT_DIR, else `output` beside the store."""
    given = os.environ.get("RESILE_OUTPUT_DIR")
    if given:
        return given
    return os.path.join(os.path.dirname(_path(url_or_path) or ""), "output")


def _path(url_or_path: str | None) -> str | None:
    """The file that is meant; None for a store in memory."""
    named = url_or_path or os.environ.get("RESILE_DB") or ""
    if not named:
        return os.path.join(_state_folder(), "resile", "resile.db")
    if named in _MEMORY:
        return None
    if named.startswith(_SQLITE):
        named = named[len(_SQLITE) :]
    elif "://" in named:
        raise _refusal(named.partition("://")[0])
    return os.path.expanduser(named)


def _state_folder() -> str:
    """Where programs keep a user's state; the standard says to ignore a value that is not absolute."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return given if os.path.isabs(given) else os.path.expanduser("~/.local/state")


def _refusal(scheme: str) -> StoreError:
    """Why an address of this kind opens nothing."""
    hint = "name a file, as PATH or sqlite:///PATH"
    if scheme in ("postgresql", "postgres"):
        return StoreError("store-unsupported", "this version of Resile does not store in PostgreSQL", hint=hint)
    return StoreError("store-unsupported", f"no store is opened by addresses of the kind {scheme}://", hint=hint)
