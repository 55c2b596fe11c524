-- A database has a random name, which the files of its runs carry. Runs of earlier versions have none. A copy of a
-- database gets another name as soon as it and the original begin different runs under one number.

CREATE TABLE identity (
    first_run INTEGER PRIMARY KEY,  -- from this run on
    id TEXT NOT NULL                -- 16 hex digits
);
INSERT INTO identity SELECT ifnull(max(id), 0) + 1, lower(hex(randomblob(8))) FROM runs;
