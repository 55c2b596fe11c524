"""`recover`: a plan with its evidence, grants for one job alone, ceilings, rounds, the hook, exit codes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import pytest

from resile.api.run import EventListener
from resile.commands.recovery.planning import RecoveryOptions, plan_round
from resile.commands.recovery.rounds import carry_out
from resile.commands.run import reset
from resile.commands.start.call import ResourceLimits
from resile.engine.replay import fold_log, row_of
from resile.errors import ResileError
from resile.store.contract import Lease
from resile.store.lease import boot_seconds
from resile.store.open import open_store
from tests.cli.program import Program

# The shell itself needs more than 1 MiB; nothing is enforced, so the exit code decides when it has enough.
NEEDS = """\
resile: 1
name: needs
steps:
  first: {shell: 'true'}
  hungry:
    needs: [first]
    shell: echo try >> effects; test -e fed
    resources: {memory: 1m, enforce: false}
  like: {shell: 'true', resources: {memory: 1m, enforce: false}}
  broken: {shell: 'echo no such table >&2; exit 3'}
  after: {shell: 'echo after >> effects', needs: [hungry]}
  both: {shell: 'true', needs: [hungry, broken]}
"""
SLOW = """\
resile: 1
name: slow
steps:
  slow: {shell: 'echo try >> effects; sleep 0.7', timeout: 0.4s}
"""
MIB = 1 << 20


def dump(program: Program) -> dict[str, list[Any]]:
    """Every row of every table of the database."""
    with sqlite3.connect(f"file:{program.folder / 'resile.db'}?mode=ro", uri=True) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def entry(plan: list[dict[str, Any]], step: str) -> dict[str, Any]:
    """The entry of a step in a plan."""
    (found,) = [one for one in plan if one["step"] == step]
    return found


def effects(program: Program) -> list[str]:
    """What the steps left behind."""
    return (program.folder / "effects").read_text().splitlines()


class Overtaken:
    """A store in which somebody resets the run just before this process gets its lease."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_overtaken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire_lease(self, run: int, now: float, seconds: float) -> Lease:
        """The lease, after the reset."""
        reset(self._store, run, failed_only=True)
        self.is_overtaken = True
        lease: Lease = self._store.acquire_lease(run, now, seconds)
        return lease


def test_a_dry_run_says_what_would_happen_and_changes_nothing(program: Program) -> None:
    """The plan has diagnosis, evidence, grants and what runs again; the database is the same in every row."""
    program.call("run", program.write(NEEDS), code=1)
    before = dump(program)
    document = program.json("recover", "1", "--dry-run", "--memory-multiplier", "2", code=1)
    assert (document["run"], document["status"], document["rounds"]) == (1, "failed", 0)
    hungry, broken = entry(document["plan"], "hungry"), entry(document["plan"], "broken")
    assert (hungry["diagnosis"], hungry["again"], hungry["granted"]["memory_bytes"]) == (
        "oom",
        ["hungry", "after"],
        MIB,
    )
    assert hungry["next"]["memory_bytes"] >= 2 * MIB
    assert hungry["next"]["memory_bytes"] % MIB == 0
    assert (broken["diagnosis"], broken["again"], broken["action"]) == ("unknown", [], "stay")
    assert broken["evidence"] == "exit code 3: no such table"
    text = program.call("recover", "1", "--dry-run", code=1).stdout
    assert "hungry, job 2: oom: exit code 1; it used" in text
    assert "runs again: hungry, after" in text
    assert dump(program) == before


def test_only_what_can_be_helped_runs_again(program: Program) -> None:
    """The job that lacked memory and what waited for it; the other failure stays, and the exit code says so."""
    program.call("run", program.write(NEEDS), code=1)
    (program.folder / "fed").touch()
    document = program.json("recover", "1", code=1)
    assert (document["status"], document["rounds"]) == ("failed", 1)
    assert [(one["step"], one["diagnosis"], one["round"]) for one in document["plan"]] == [
        ("hungry", "oom", 1),
        ("broken", "unknown", 2),
    ]
    assert effects(program) == ["try", "try", "after"]
    jobs = {job["step"]: job["status"] for job in program.json("status", "1")["jobs"]}
    assert (jobs["hungry"], jobs["broken"], jobs["both"]) == ("completed", "failed", "canceled")
    (program.folder / "flow.yaml").unlink()
    assert program.json("recover", "1", "--retry-unknown", "--max-rounds", "2", code=1)["rounds"] == 2


def test_a_job_at_the_ceiling_is_hopeless(program: Program) -> None:
    """It stays failed, with the ceiling in its evidence; rounds that do not help end after --max-rounds."""
    program.call("run", program.write(NEEDS), code=1)
    document = program.json("recover", "1", "--memory-max", "1m", code=1)
    hungry = entry(document["plan"], "hungry")
    assert (document["rounds"], hungry["diagnosis"], hungry["again"]) == (0, "hopeless", [])
    assert "--memory-max" in hungry["evidence"]
    done = program.call("recover", "1", "--max-rounds", "1", code=1).stdout
    assert "1 round of recovery did not help (--max-rounds)" in done
    assert effects(program) == ["try", "try"]


def test_a_timeout_gets_more_time_than_its_step_says(program: Program) -> None:
    """The grant is rounded up to a second, replaces `timeout`, and is in the log."""
    program.call("run", program.write(SLOW), code=1)
    document = program.json("recover", "1", "--runtime-multiplier", "3", code=0)
    (slow,) = document["plan"]
    assert (slow["diagnosis"], slow["granted"]) == ("timeout", {"memory_bytes": None, "runtime_seconds": 0.4})
    granted = slow["next"]["runtime_seconds"]
    # A loaded machine ends it later than at its limit, and the longer of the two counts.
    assert granted >= 2.0
    assert granted == int(granted)
    assert (document["status"], document["rounds"], effects(program)) == ("completed", 1, ["try", "try"])
    events = program.call("events", "list", "1", "--type", "run_resumed", "--json", code=0).stdout
    assert msgspec.json.decode(events)["data"]["remedies"] == [
        {"job": 1, "step": "slow", "diagnosis": "timeout", "runtime_seconds": granted}
    ]
    assert program.json("recover", "1") == {"version": 1, "run": 1, "status": "completed", "rounds": 0, "plan": []}


@pytest.mark.parametrize(("script", "code", "tries"), [("exit 3", 1, 1), ("touch fed", 1, 2)])
def test_the_hook_runs_before_each_round_and_can_stop_it(program: Program, script: str, code: int, tries: int) -> None:
    """It gets the run's id as its first argument and in the environment; if it fails nothing runs again."""
    hook = program.folder / "hook.sh"
    hook.write_text(f"echo $1 $RESILE_WORKFLOW_ID $TORC_WORKFLOW_ID >> hooked\n{script}\n")
    program.call("run", program.write(NEEDS), code=1)
    before = dump(program)["log"]
    done = program.call("recover", "1", "--recovery-hook", f"sh {hook}", code=code)
    assert (program.folder / "hooked").read_text() == "1 1 1\n"
    assert effects(program).count("try") == tries
    if script == "exit 3":
        assert "the recovery hook ended with exit code 3; nothing was run again" in done.stderr
        assert dump(program)["log"] == before


def test_unknown_failures_can_be_parked(program: Program) -> None:
    """The run waits with exit 4; `parked` shows the failure, and a judgement goes on with what waited for it."""
    program.call("run", program.write(NEEDS), code=1)
    (program.folder / "fed").touch()
    document = program.json("recover", "1", "--park-unknown", code=4)
    assert (document["status"], [one["action"] for one in document["plan"]]) == ("parked", ["retry", "park", "stay"])
    (parked,) = program.json("parked", "1")["failures"]
    assert (parked["step"], parked["message"], parked["rule"]["text"], len(parked["history"])) == (
        "broken",
        "exit code 3: no such table",
        "a recovery",
        1,
    )
    assert "broken" in program.call("explain", "1", code=0).stdout
    assert program.json("recover", "1", code=4)["rounds"] == 0
    assert program.call("judge", "1", "broken", "skip", "--resume", code=0)
    jobs = {job["step"]: job["status"] for job in program.json("status", "1")["jobs"]}
    assert (jobs["broken"], jobs["both"]) == ("skipped", "completed")


def test_parked_failures_are_recovered_by_judgement(program: Program) -> None:
    """A parked job that lacked memory runs again with more; one without a known cause stays parked."""
    parks = NEEDS.replace("enforce: false}\n  like", "enforce: false}\n    park: true\n  like")
    program.call("run", program.write(parks.replace("exit 3'", "exit 3', park: true")), code=4)
    (program.folder / "fed").touch()
    document = program.json("recover", "1", code=4)
    assert [(one["step"], one["diagnosis"]) for one in document["plan"]] == [("hungry", "oom"), ("broken", "unknown")]
    assert effects(program) == ["try", "try", "after"]
    assert [one["step"] for one in program.json("parked", "1")["failures"]] == ["broken"]


def test_items_of_a_map_run_again_with_a_grant_for_each(program: Program) -> None:
    """Only the items that failed; an item that lacked nothing keeps what its step asks for."""
    flow = """\
resile: 1
name: items
steps:
  each:
    map:
      input: [0, 1, 2]
      steps:
        - name: work
          shell: echo ${item} >> effects; test ${item} != 1 || test -e fed
          resources: {memory: 1m, enforce: false}
  after: {shell: 'true', needs: [each]}
"""
    program.call("run", program.write(flow), code=1)
    (program.folder / "fed").touch()
    document = program.json("recover", "1", code=0)
    (one,) = document["plan"]
    assert (one["step"], one["diagnosis"], one["again"]) == ("each[1]/work", "oom", ["each", "after"])
    assert one["next"]["memory_bytes"] > MIB
    assert sorted(effects(program)) == ["0", "1", "1", "2"]


def test_letters_of_an_earlier_epoch_are_no_failures(program: Program) -> None:
    """An item that the list no longer has is not diagnosed again, though its letter is still there."""
    flow = """\
resile: 1
name: items
steps:
  each: {map: {input: items.jsonl, steps: [{name: work, shell: 'exit ${item.code}'}]}}
"""
    program.write('{"code": 3}\n{"code": 4}\n', "items.jsonl")
    program.call("run", program.write(flow), code=1)
    assert len(program.json("recover", "1", "--dry-run", code=1)["plan"]) == 2
    program.write('{"code": 5}\n', "items.jsonl")
    program.call("rerun", "1", code=1)
    (left,) = program.json("recover", "1", "--dry-run", "--retry-unknown", code=1)["plan"]
    assert (left["step"], left["evidence"]) == ("each[0]/work", "exit code 5")


def test_nothing_more_is_parked_while_others_are(program: Program) -> None:
    """The plan says so of a failure that --park-unknown would park, and the run stays as it is."""
    flow = """\
resile: 1
name: waits
steps:
  held: {shell: 'exit 3', park: true}
  broken: {shell: 'exit 4'}
"""
    program.call("run", program.write(flow), code=4)
    before = dump(program)["log"]
    text = " ".join(program.call("recover", "1", "--park-unknown", code=4).stdout.split())
    assert "nothing is left that a recovery could do" in text
    assert "exit code 4; it can be parked once nothing else is stays as it is; `resile judge` decides first" in text
    assert "exit code 3 stays parked; `resile judge` decides about it" in text
    assert "is parked: it waits" not in text
    assert dump(program)["log"] == before


def test_a_plan_that_another_engine_overtakes_is_refused(program: Program) -> None:
    """The log moves after the plan was made and before the lease is taken: nothing of the plan is written."""
    program.call("run", program.write(SLOW), code=1)
    with closing(open_store(str(program.folder / "resile.db"))) as store:
        plan = plan_round(store, 1, RecoveryOptions())
        assert plan.events
        overtaken = Overtaken(store)
        with pytest.raises(ResileError) as refused:
            carry_out(overtaken, plan, ResourceLimits(), EventListener(None))  # type: ignore[arg-type]
        assert refused.value.code == "plan-out-of-date"
        assert overtaken.is_overtaken
        assert store.lease(1, boot_seconds()) is None
        assert fold_log(store, row_of(store, 1)).epoch == 2
    assert effects(program) == ["try"]


def test_calls_that_are_wrong(program: Program) -> None:
    """Options of the two ways do not mix; a grant never shrinks; a run must exist."""
    program.call("run", program.write(SLOW), code=1)
    for words in (
        ("--agent", "x {mcp_config}", "--dry-run"),
        ("--timeout", "5m"),
        ("--memory-multiplier", "0.5"),
        ("--retry-unknown", "--park-unknown"),
        ("--max-rounds", "0"),
    ):
        assert program.call_warm("recover", "1", *words, code=2).stdout == ""
    assert "there is no run 9" in program.call_warm("recover", "9", code=2).stderr


def test_a_run_that_still_moves_is_refused(program: Program) -> None:
    """Exit 2 while an engine drives it, with the command that waits."""
    gate, ready = program.gate("gate"), program.gate("ready")
    flow = "resile: 1\nname: moves\nsteps:\n  wait: {shell: 'echo > ready; read line < gate'}\n"
    with program.start("run", program.write(flow)) as started:
        ready.wait()
        refused = program.call("recover", "1", code=2)
        assert "run 1 is running" in refused.stderr
        assert "resile watch 1 --recover" in refused.stderr
        gate.open()
        assert started.end() == 0
