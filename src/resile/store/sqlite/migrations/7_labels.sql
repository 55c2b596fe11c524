-- What a caller noted about a run, to find it again: names and values, as a JSON object.
ALTER TABLE runs ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
