-- A letter's key becomes the name of its fan-out, which stays the same in every execution; the number of its job does
-- not. Version 2 did not store the scopes around an inner map: such letters are named by their job (`inner#7`), have no
-- scope (0), and can't be redriven. The jobs of the root scope have the lowest numbers.

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
