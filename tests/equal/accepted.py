"""The differences between the two versions that are meant.

Each row is (files, places, reason): two patterns as a shell knows them, `*` being any text, for the name of a file and
the place of a difference as `make equal` prints them. A row that no difference needs is reported when everything was
compared, so that it leaves this table.

    ("examples/*", "run.jobs.*.attempts", "the retries of a map are counted by item"),
"""

from __future__ import annotations

ACCEPTED: tuple[tuple[str, str, str], ...] = (
    ("*", "migrated.*", "`migrate` puts keys that only other systems have under `ir`, and writes keys in table order"),
    ("*", "run.version", "every JSON document has a version"),
    ("*", "run.jobs_omitted", "a run's document counts the jobs that it leaves out"),
    ("*", "run.*rule", "a rule is an object with its place and its text"),
    ("docs/guides/python.md#*", "*", "the page shows classes of options and other things that the old version lacks"),
    ("tests/dialects/native/model_keys.py:*", "*", "texts with keys under `ir`, which the old version lacks"),
    ("tests/dialects/visor/test_workflows.py:147", "*", "a text with keys under `ir`, which the old version lacks"),
)
