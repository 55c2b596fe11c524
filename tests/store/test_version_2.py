"""Dead letters that a store of version 2 kept: those of maps inside of others are told apart, and can't be retried."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from resile.store.sqlite import schema
from tests.runs.ladder.flows import Flows

# The map `inner` stands in the run itself and in each item of `outer`, and all of its items fail. Version 2 went on
# after failed items, so its runs have letters of the inner maps only, and the file asks for that.
FLOW = """
resile: 1
name: nest
steps:
  inner: {map: {input: [7], error_policy: {continue_on_failure: true}, steps: [{shell: test -e fixed}]}}
  outer:
    map:
      input: [[1, 2], [3]]
      steps:
        inner:
          map:
            input: "echo '${item}'"
            error_policy: {continue_on_failure: true}
            steps: [{shell: test -e fixed}]
"""
DOWN = """
INSERT INTO dead_letters
    SELECT run, job, idx, step, step || '[' || idx || ']', reason, signature, failure_count, first_at, last_at,
        eligible, item, history
    FROM dead_letters_of_version_3;
DROP TABLE dead_letters_of_version_3;
DROP TABLE kept_scopes;
ALTER TABLE leases DROP COLUMN number;
ALTER TABLE leases DROP COLUMN expires_boot_seconds;
ALTER TABLE runs DROP COLUMN fence;
ALTER TABLE runs DROP COLUMN labels;
DROP INDEX runs_key;
ALTER TABLE runs DROP COLUMN key;
ALTER TABLE requests DROP COLUMN result;
DROP TABLE submissions;
DROP TABLE announcements;
DROP TABLE tokens;
DROP TABLE calls;
DROP TABLE claims;
DROP TABLE identity;
PRAGMA user_version = 2;
"""


@pytest.fixture
def flows(tmp_path: Path) -> Flows:
    """A run with nested letters, in a database as version 2 would have left it."""
    flows = Flows(tmp_path)
    flows.run(FLOW.lstrip())
    db = apsw.Connection(flows.program.env["RESILE_DB"])
    _, create, rest = schema.statements(schema.VERSION_2).partition("CREATE TABLE dead_letters")
    db.execute(f"ALTER TABLE dead_letters RENAME TO dead_letters_of_version_3; {create}{rest}{DOWN}").fetchall()
    db.close()
    return flows


def kept(flows: Flows) -> list[tuple[str, int, bool]]:
    """Name, value and whether it may be retried, of each letter."""
    found = flows.program.json("dlq", "list", "1")["dead_letters"]
    return [(letter["item_id"], letter["item_data"], letter["reprocess_eligible"]) for letter in found]


def nested(flows: Flows) -> list[int]:
    """The jobs of the map in the items of `outer`, by item."""
    jobs = flows.program.json("status", "1")["jobs"]
    found = {job["scope"]: job["id"] for job in jobs if job["step"] == "inner" and job["scope"] != "root"}
    return [found["outer[0]"], found["outer[1]"]]


def test_letters_of_one_name_are_told_apart(flows: Flows) -> None:
    """The run's own keep their names and are retried; the others have their job's number, and are left alone."""
    (flows.folder / "fixed").touch()
    assert flows.program.json("dlq", "retry", "1")["succeeded"] == 1
    first, second = nested(flows)
    left = [(f"inner#{first}[0]", 1, False), (f"inner#{first}[1]", 2, False), (f"inner#{second}[0]", 3, False)]
    assert sorted(kept(flows)) == sorted(left)
    assert flows.program.json("dlq", "show", "1", f"inner#{first}[1]")["item_data"] == 2
    assert flows.program.json("dlq", "purge", "1", "--yes")["purged"] == 3


@pytest.mark.parametrize("words", [(), ("--force",), ("--dry-run",)])
def test_letters_whose_place_is_unknown_are_refused(flows: Flows, words: tuple[str, ...]) -> None:
    """In one sentence, with what to do; and nothing has happened to them."""
    (flows.folder / "fixed").touch()
    flows.program.json("dlq", "retry", "1")
    before = kept(flows)
    done = flows.program.call("dlq", "retry", "1", *words, code=2)
    message = "an older Resile kept dead letters of inner without what was around it, so they can't be retried"
    hint = "`resile rerun 1` runs the whole map again, `resile dlq purge 1` removes them"
    assert done.stderr == f"resile: error: {message}\n  hint: {hint}\n"
    assert kept(flows) == before


def test_force_does_not_leave_them_out_in_silence(flows: Flows) -> None:
    """Who asks for all letters of a map hears that some of them can't be retried, before anything runs."""
    done = flows.program.call("dlq", "retry", "1", "--force", code=2)
    assert "can't be retried" in done.stderr
    assert [may for _, _, may in kept(flows)].count(True) == 1
