"""The version of a PostgreSQL store. The files in migrations/ make its tables, one for each version.

`migrate` applies the missing migrations and updates the table `schema_version` in one transaction, under an advisory
lock. So if several processes open a new store at once, one of them creates it, and no process ever sees it between two
versions. A schema of a newer version or with tables of another program is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from psycopg import sql

from resile.store.errors import StoreError, StoreMissing, StoreTooNew
from resile.store.postgres.address import Address
from resile.store.postgres.session import Connection, Session

MIGRATIONS: tuple[str, ...] = ("1_tables.sql", "2_servers.sql", "3_call_holders.sql")
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('resile ' || %s, 0))"
_VERSION = "schema_version"


def version(db: Connection, address: Address, newest: int) -> int | None:
    """How many migrations were applied to this schema; None if there is none. Refuses a foreign or newer one."""
    found = db.execute(
        "SELECT (SELECT oid FROM pg_namespace WHERE nspname = %s),"
        " (SELECT count(*) FROM pg_tables WHERE schemaname = %s), to_regclass(quote_ident(%s) || '.' || %s)",
        (address.schema, address.schema, address.schema, _VERSION),
    ).fetchone()
    assert found is not None
    namespace, tables, ours = found
    if ours is None:
        if tables:
            raise StoreError(
                "store-foreign",
                f"the schema {address.schema} of {address.shown} has tables of another program",
                where=address.shown,
                hint="name another schema with ?schema=",
            )
        return None if namespace is None else 0
    row = db.execute(f"SELECT version FROM {_VERSION}").fetchone()
    number = 0 if row is None else int(row[0])
    if number > newest:
        raise StoreTooNew(
            "store-too-new",
            f"{address.shown} has schema version {number}; this Resile knows versions up to {newest}",
            where=address.shown,
            hint="use the newer Resile that wrote it, or name another schema with ?schema=",
        )
    return number


def exists(address: Address) -> bool:
    """Is there a store at this address?"""
    session = Session(address, readonly=True)
    try:
        return bool(session.read(lambda db: version(db, address, len(MIGRATIONS))))
    finally:
        session.close()


def check(session: Session, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Refuse a schema that is newer or missing; a reader must not create it."""
    if not session.read(lambda db: version(db, session.address, len(migrations))):
        shown = session.address.shown
        hint = "nothing has run with it yet"
        raise StoreMissing("no-store", f"there is no Resile schema in {shown}", where=shown, hint=hint)


def migrate(session: Session, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Apply the missing migrations; safe when several processes do it at once."""
    address, newest = session.address, len(migrations)
    if session.read(lambda db: version(db, address, newest)) == newest:
        return

    def apply(db: Connection) -> None:
        db.execute(_LOCK, (address.schema,))
        # Another process may have migrated it while this one waited for the lock.
        found = version(db, address, newest)
        if found is None:
            db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.schema)))
        if not found:
            db.execute(f"CREATE TABLE {_VERSION} (version bigint NOT NULL)")
            db.execute(f"INSERT INTO {_VERSION} VALUES (0)")
        for missing in migrations[found or 0 :]:
            db.execute(statements(missing))
        db.execute(f"UPDATE {_VERSION} SET version = %s", (newest,))

    session.write(apply)


def statements(migration: str) -> str:
    """The SQL of a migration: the content of the file that it names, or the migration itself if it is SQL."""
    if not migration.endswith(".sql"):
        return migration
    with open(os.path.join(os.path.dirname(__file__), "migrations", migration), encoding="utf-8") as file:
        return file.read()
