"""The version of a SQLite store. The files in migrations/ make its tables, one for each version.

    user_version    how many of MIGRATIONS have been applied
    application_id  marks the file as Resile's

Missing migrations are applied in one transaction together with the version number, so a database is never between two
versions. A database of a newer version is refused: this version can't know what its rows mean.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resile.store.errors import StoreError, StoreMissing, StoreTooNew
from resile.store.sqlite.connection import writing

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 0x52534C45  # "RSLE"

VERSION_1, VERSION_2, VERSION_3 = "1_runs_and_log.sql", "2_dead_letters.sql", "3_letters_by_fan_out.sql"
MIGRATIONS: tuple[str, ...] = (
    VERSION_1,
    VERSION_2,
    VERSION_3,
    "4_leases_by_boot.sql",
    "5_identity.sql",
    "6_fences.sql",
    "7_labels.sql",
    "8_servers.sql",
    "9_call_holders.sql",
)
# The oldest version that this Resile reads without a migration: missing columns have defaults.
READABLE = 3
WITH_IDENTITY = 5
WITH_SERVERS = 8


def version(db: apsw.Connection, path: str, newest: int) -> int:
    """How many migrations were applied to this database; refuses a foreign one, or one that is newer than `newest`.

    One statement asks for all of it: another process may be migrating the database between two.
    """
    found, owner, has_tables = db.execute(
        "SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id),"
        " EXISTS (SELECT 1 FROM sqlite_schema)"
    ).get
    if owner != APPLICATION_ID and (found or owner or has_tables):
        raise StoreError(
            "store-foreign",
            f"{path} is the database of another program",
            where=path,
            hint="name another file with --db or $RESILE_DB",
        )
    if found > newest:
        raise StoreTooNew(
            "store-too-new",
            f"{path} has schema version {found}; this Resile knows versions up to {newest}",
            where=path,
            hint="use the newer Resile that wrote it, or name another file with --db or $RESILE_DB",
        )
    return int(found)


def check(db: apsw.Connection, path: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Refuse to read a newer database, or one too old to be read without a migration: a reader must not migrate."""
    found = version(db, path, len(migrations))
    if found == 0:
        hint = "if it is a copy: what was written last is in the original's `-wal` file, so copy both"
        raise StoreMissing("no-store", f"{path} is empty: nothing has run yet", where=path, hint=hint)
    if found < READABLE:
        raise StoreError(
            "store-too-old",
            f"{path} has schema version {found} and is open for reading only; this Resile reads {READABLE} and later",
            where=path,
            hint="any command that writes, such as `resile run`, brings it up to date",
        )


def migrate(db: apsw.Connection, path: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Apply the missing migrations in one transaction; safe when several processes do it at once."""
    if version(db, path, len(migrations)) == len(migrations):
        return
    with writing(db, path):
        # Another process may have migrated it while this one waited for the lock.
        for missing in migrations[version(db, path, len(migrations)) :]:
            db.execute(statements(missing)).fetchall()
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(migrations)}")


def statements(migration: str) -> str:
    """The SQL of a migration: that of its file, if it names one."""
    if not migration.endswith(".sql"):
        return migration
    with open(os.path.join(os.path.dirname(__file__), "migrations", migration), encoding="utf-8") as file:
        return file.read()
