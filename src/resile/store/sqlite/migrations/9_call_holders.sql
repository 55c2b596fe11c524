-- Which process is at work on a call: once it is gone another may carry the call out.
ALTER TABLE calls ADD COLUMN holder TEXT NOT NULL DEFAULT '';
