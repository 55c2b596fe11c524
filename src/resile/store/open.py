"""Finds the store: the meaning of `--db`, $RESILE_DB and the defaults.

PATH, sqlite:///PATH      a SQLite file (sqlite:////abs/path is absolute, as in other tools)
postgresql://HOST/NAME    a schema of a PostgreSQL database (`?schema=`, else `resile`)
memory:                   a store in memory, lost at exit
(none)                    $RESILE_DB, else $XDG_STATE_HOME/resile/resile.db, else ~/.local/state/resile/resile.db
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from resile.store.errors import StoreError

if TYPE_CHECKING:
    from resile.store.postgres.address import Address
    from resile.store.server_tables import SharedStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_MEMORY = ("memory:", ":memory:")


def open_store(url_or_path: str | None = None, *, readonly: bool = False, verify: bool = True) -> SharedStore:
    """Open the store that the caller named, or the user's default store.

    Without `verify`, open it even if it lost events.
    """
    address = _postgres(url_or_path)
    if address is not None:
        from resile.store.postgres.store import PostgresStore

        return PostgresStore(address, readonly=readonly)
    path = _path(url_or_path)
    if path == default_path():
        _refuse_shared_state(os.path.dirname(path), create=not readonly)
    if path is None:
        from resile.store.memory import MemoryStore

        return MemoryStore()
    from resile.store.sqlite.store import SqliteStore

    return SqliteStore(path, readonly=readonly, verify=verify)


def exists(url_or_path: str | None = None) -> bool:
    """Does the store exist already? A store in memory never does."""
    address = _postgres(url_or_path)
    if address is not None:
        from resile.store.postgres.schema import exists

        return exists(address)
    path = _path(url_or_path)
    return path is not None and os.path.exists(path)


def database_file(url_or_path: str | None = None) -> str | None:
    """The path of a store that is a file; None for another one."""
    if _postgres(url_or_path) is not None:
        return None
    return _path(url_or_path)


def default_output(url_or_path: str | None = None) -> str:
    """The folder for the output of steps: $RESILE_OUTPUT_DIR, else `output` beside the store.

    A PostgreSQL database has no folder on this machine, so its output goes into the user's state folder, below the name
    of the database. If the database does not exist yet, this creates it, because only then it has a name.
    """
    given = os.environ.get("RESILE_OUTPUT_DIR")
    if given:
        return given
    if _postgres(url_or_path) is not None:
        store = open_store(url_or_path)
        try:
            return os.path.join(os.path.dirname(default_path()), "output", store.identity())
        finally:
            store.close()
    return os.path.join(os.path.dirname(_path(url_or_path) or ""), "output")


def _postgres(url_or_path: str | None) -> Address | None:
    """The address of a PostgreSQL store; None for another one."""
    named = url_or_path or os.environ.get("RESILE_DB") or ""
    if not named.startswith(_POSTGRES):
        return None
    try:
        import psycopg as _  # noqa: F401
    except ImportError as error:
        hint = "pip install 'resile[postgres]'"
        raise StoreError("store-unsupported", "a store in PostgreSQL needs the package psycopg", hint=hint) from error
    from resile.store.postgres.address import parse

    return parse(named)


def _path(url_or_path: str | None) -> str | None:
    """The path of the database file; None for a store in memory."""
    named = url_or_path or os.environ.get("RESILE_DB") or ""
    if not named:
        return default_path()
    if named in _MEMORY:
        return None
    if named.startswith(_SQLITE):
        named = named[len(_SQLITE) :]
    elif "://" in named:
        scheme = named.partition("://")[0]
        hint = "name a file, as PATH or sqlite:///PATH, or a database, as postgresql://HOST/NAME"
        raise StoreError("store-unsupported", f"no store is opened by addresses of the kind {scheme}://", hint=hint)
    path = os.path.expanduser(named)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StoreError("path-no-text", f"the path of the database is no UTF-8: {path!a}") from None
    return path


def default_path() -> str:
    """The user's default store; as the XDG standard says, a relative folder is ignored."""
    given = os.environ.get("XDG_STATE_HOME", "")
    state = given if os.path.isabs(given) else os.path.expanduser("~/.local/state")
    return os.path.join(state, "resile", "resile.db")


def _refuse_shared_state(folder: str, *, create: bool) -> None:
    """Refuse a state folder that belongs to another user, or that others can write.

    The folder of a database that the caller names is not checked.
    """
    from resile.model.folders import claim_folder, refuse_shared

    other = "; or name another database with --db"
    if create:
        claim_folder(folder, other)
    elif os.path.lexists(folder):
        refuse_shared(folder, other)
