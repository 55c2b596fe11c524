-- Every lease of a run has a greater number than the ones before: executors refuse an engine with a lower one. The run
-- keeps the number of its last lease.
ALTER TABLE runs ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
