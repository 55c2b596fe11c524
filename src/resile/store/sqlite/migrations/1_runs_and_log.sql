-- Each big table is clustered by its key: WITHOUT ROWID keeps a run's rows together and needs no second tree. The log
-- has no columns for time and kind: `event ->> 'at'` and `event ->> 'type'` give them, and generated columns would be
-- computed at every insert.

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
