-- What servers share: the runs that they drive, announcements of all runs in one order, tokens, answers to calls with an
-- idempotency key, and which worker has which attempt. A run may have a key of its caller's.

ALTER TABLE runs ADD COLUMN key TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX runs_key ON runs (key) WHERE key != '';

-- What became of a request, as JSON; null where its caller does not ask.
ALTER TABLE requests ADD COLUMN result TEXT;

CREATE TABLE submissions (
    run INTEGER PRIMARY KEY REFERENCES runs (id),
    priority INTEGER NOT NULL,
    due_at REAL,                -- null: only a request makes it due
    since REAL NOT NULL
);
CREATE INDEX submissions_due ON submissions (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE announcements (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs (id),
    note TEXT NOT NULL
);
CREATE INDEX announcements_run ON announcements (run);

CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL
) WITHOUT ROWID;

CREATE TABLE calls (
    key TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    at REAL NOT NULL,
    answer BLOB                 -- null while the call is at work
) WITHOUT ROWID;
CREATE INDEX calls_at ON calls (at);

CREATE TABLE claims (
    run INTEGER NOT NULL REFERENCES runs (id),
    epoch INTEGER NOT NULL,
    job INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker TEXT NOT NULL,
    token TEXT NOT NULL,
    at REAL NOT NULL,
    memory_bytes INTEGER NOT NULL,
    PRIMARY KEY (run, epoch, job, attempt)
) WITHOUT ROWID;
CREATE INDEX claims_worker ON claims (worker);
