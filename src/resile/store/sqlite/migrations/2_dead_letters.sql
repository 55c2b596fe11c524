-- The log's key becomes one number, run and seq together: its rows are then in the leaves of a tree whose other pages
-- hold numbers only, and appending to a run writes one page, where a key of two columns rewrote several. Letters are
-- looked up by their key only; other queries scan the letters of one run as a stream.

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
