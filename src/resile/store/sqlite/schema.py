"""The tables of a SQLite store, and the migrations from older versions.

    user_version    how many of MIGRATIONS have been applied
    application_id  marks the file as Resile's

Missing migrations are applied in one transaction together with the version number, so a database is never between two
versions. A database of a newer version is refused: this version can't know what its rows mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resile.store.errors import StoreError, StoreMissing, StoreTooNew
from resile.store.sqlite.connection import writing

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 0x52534C45  # "RSLE"

# Each big table is clustered by its key: WITHOUT ROWID keeps a run's rows together and needs no second tree. The log
# has no columns for time and kind: `event ->> 'at'` and `event ->> 'type'` give them, and generated columns would be
# computed at every insert.
VERSION_1 = """
CREATE TABLE definitions (
    hash TEXT PRIMARY KEY,
    body NOT NULL               -- canonical JSON as text, or zlib of it as a blob where it is large
) WITHOUT ROWID;

CREATE TABLE compiled (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    definition TEXT NOT NULL REFERENCES definitions (hash)
);
CREATE INDEX compiled_definition ON compiled (definition);

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow TEXT NOT NULL,
    dialect TEXT NOT NULL,
    definition TEXT NOT NULL REFERENCES definitions (hash),
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    output TEXT NOT NULL,
    directory TEXT NOT NULL,
    summary TEXT NOT NULL
);
CREATE INDEX runs_definition ON runs (definition);

CREATE TABLE log (
    run INTEGER NOT NULL REFERENCES runs (id),
    seq INTEGER NOT NULL,
    event TEXT NOT NULL,
    notes TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE jobs (
    run INTEGER NOT NULL REFERENCES runs (id),
    id INTEGER NOT NULL,
    step TEXT NOT NULL,
    scope TEXT NOT NULL,
    status INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    exit_code INTEGER,
    recovered INTEGER NOT NULL,
    tolerated INTEGER NOT NULL,
    cause TEXT,
    started_at REAL,
    ended_at REAL,
    PRIMARY KEY (run, id)
) WITHOUT ROWID;

CREATE TABLE attempts (
    run INTEGER NOT NULL REFERENCES runs (id),
    job INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    started_at REAL,
    ended_at REAL,
    exit_code INTEGER,
    wall_seconds REAL NOT NULL,
    cpu_seconds REAL NOT NULL,
    rss_bytes_max INTEGER NOT NULL,
    segment TEXT,
    out_offset INTEGER,
    out_length INTEGER,
    err_offset INTEGER,
    err_length INTEGER,
    failure TEXT,
    pid INTEGER NOT NULL,
    PRIMARY KEY (run, job, epoch, attempt)
) WITHOUT ROWID;

CREATE TABLE snapshots (
    run INTEGER PRIMARY KEY REFERENCES runs (id),
    seq INTEGER NOT NULL,
    format INTEGER NOT NULL,
    state BLOB NOT NULL
);

CREATE TABLE leases (
    run INTEGER PRIMARY KEY REFERENCES runs (id),
    token TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started TEXT NOT NULL,
    since REAL NOT NULL,
    expires_at REAL NOT NULL
);

CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs (id),
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX requests_waiting ON requests (run, id) WHERE NOT taken;
"""

# The log's key becomes one number, run and seq together: its rows are then in the leaves of a tree whose other pages
# hold numbers only, and appending to a run writes one page, where a key of two columns rewrote several. Letters are
# looked up by their key only; other queries scan the letters of one run as a stream.
VERSION_2 = """
ALTER TABLE log RENAME TO log_of_version_1;
CREATE TABLE log (
    place INTEGER PRIMARY KEY,  -- run << 36 | seq
    event TEXT NOT NULL,
    notes TEXT NOT NULL
);
INSERT INTO log SELECT run << 36 | seq, event, notes FROM log_of_version_1 ORDER BY run, seq;
DROP TABLE log_of_version_1;

CREATE TABLE dead_letters (
    run INTEGER NOT NULL REFERENCES runs (id),
    job INTEGER NOT NULL,
    idx INTEGER NOT NULL,       -- of the item, in the input
    step TEXT NOT NULL,
    item_id TEXT NOT NULL,
    correlation_id TEXT AS (run || ':' || item_id),
    reason TEXT NOT NULL,
    signature TEXT NOT NULL,
    failure_count INTEGER NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    eligible INTEGER NOT NULL,
    item TEXT NOT NULL,
    history TEXT NOT NULL,
    PRIMARY KEY (run, job, idx)
) WITHOUT ROWID;
"""

# A letter's key becomes the name of its fan-out, which stays the same in every execution; the number of its job does
# not. Version 2 did not store the scopes around an inner map: such letters are named by their job (`inner#7`), have no
# scope (0), and can't be redriven. The jobs of the root scope have the lowest numbers.
VERSION_3 = """
ALTER TABLE dead_letters RENAME TO dead_letters_of_version_2;
CREATE TABLE dead_letters (
    run INTEGER NOT NULL REFERENCES runs (id),
    name TEXT NOT NULL,         -- of the fan-out among all of the run: outer[3]/inner
    idx INTEGER NOT NULL,       -- of the item, in the input
    map TEXT NOT NULL,          -- the name without the items around it: outer/inner
    step TEXT NOT NULL,
    job INTEGER NOT NULL,
    scope INTEGER NOT NULL,     -- 0 where it is not known
    item_id TEXT AS (name || '[' || idx || ']'),
    correlation_id TEXT AS (run || ':' || name || '[' || idx || ']'),
    reason TEXT NOT NULL,
    signature TEXT NOT NULL,
    failure_count INTEGER NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    eligible INTEGER NOT NULL,
    item TEXT NOT NULL,
    history TEXT NOT NULL,
    PRIMARY KEY (run, name, idx)
) WITHOUT ROWID;
INSERT INTO dead_letters
    WITH placed AS (
        SELECT *, substr(item_id, 1, length(item_id) - length(idx) - 2) AS short,
            job = min(job) OVER (PARTITION BY run, item_id)
                AND (run, job) IN (SELECT run, id FROM jobs WHERE scope = 'root') AS is_own
        FROM dead_letters_of_version_2
    )
    SELECT run, iif(is_own, short, short || '#' || job), idx, short, step, job, is_own,
        reason, signature, failure_count, first_at, last_at, eligible AND is_own, item, history
    FROM placed;
DROP TABLE dead_letters_of_version_2;

CREATE TABLE kept_scopes (
    run INTEGER NOT NULL REFERENCES runs (id),
    scope INTEGER NOT NULL,
    outer_scope INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run, scope)
) WITHOUT ROWID;
"""

MIGRATIONS: tuple[str, ...] = (VERSION_1, VERSION_2, VERSION_3)


def version(db: apsw.Connection, path: str, newest: int) -> int:
    """How many migrations were applied to this database; refuses a foreign one, or one that is newer than `newest`."""
    found, owner = int(db.pragma("user_version")), int(db.pragma("application_id"))
    if owner != APPLICATION_ID and (found or owner or db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get):
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
    return found


def check(db: apsw.Connection, path: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Refuse a database of any other version for reading: reading must not migrate it."""
    found = version(db, path, len(migrations))
    if found == 0:
        hint = "if it is a copy: what was written last is in the original's `-wal` file, so copy both"
        raise StoreMissing("no-store", f"{path} is empty: nothing has run yet", where=path, hint=hint)
    if found < len(migrations):
        raise StoreError(
            "store-too-old",
            f"{path} has schema version {found} and is open for reading only; this Resile reads {len(migrations)}",
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
            db.execute(missing).fetchall()
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(migrations)}")
