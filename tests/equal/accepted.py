"""The differences between the two versions that are meant.

Each row is (files, places, reason): two patterns as a shell knows them, `*` being any text, for the name of a file and
the place of a difference as `make equal` prints them. A row that no difference needs is reported when everything was
compared, so that it leaves this table.

    ("examples/*", "run.jobs.*.attempts", "the retries of a map are counted by item"),
"""

from __future__ import annotations

ACCEPTED: tuple[tuple[str, str, str], ...] = ()
