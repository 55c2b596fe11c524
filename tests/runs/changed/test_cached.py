"""`run --cached`: a new run that takes over what did not change since the last completed one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from resile.commands.client import Client
from resile.commands.database.prune import PruneFilter
from resile.errors import ResileError
from resile.store.sqlite.store import SqliteStore
from tests.runs.changed.place import Place, taken_over

STEPS = {
    "a": {"shell": "echo printed; echo complaint >&2", "capture": "v"},
    "b": {"shell": "cat in.txt", "reads": "in.txt", "needs": "a"},
    "c": {"shell": "echo ${v} ${steps.a.stderr} ${steps.b.output} ${steps.a.exit_code} ${inputs.x}", "needs": "b"},
}
FLOW = {"inputs": {"x": {"default": "1"}}, "steps": STEPS}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder with FLOW."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("in")
    place = Place()
    place.write(FLOW)
    return place


def test_everything_runs_the_first_time(place: Place) -> None:
    """Without an earlier run all steps are new."""
    assert place.cached_changes() == {"a": "new", "b": "new", "c": "new"}
    assert not os.path.exists("state.db")
    assert taken_over(place.run(cached=True)) == []


def test_results_of_the_run_they_come_from(place: Place) -> None:
    """Steps see what earlier runs printed and captured, also when those have been deleted."""
    place.run()
    second = place.run("x=2", cached=True)
    assert (second.run, second.status, taken_over(second)) == (2, "completed", ["a", "b"])
    assert place.started(2) == ["c"]
    assert place.output(2, "c") == "printed complaint in 0 2\n"
    third = place.run("x=2", cached=True)
    assert (taken_over(third), third.outputs) == (["a", "b", "c"], {"v": "printed"})
    with Client.at("state.db") as client:
        assert client.prune(PruneFilter(keep_last=1)).runs == [1, 2]
    fourth = place.run("x=4", cached=True)
    assert (taken_over(fourth), place.output(4, "c")) == (["a", "b"], "printed complaint in 0 4\n")
    assert (place.output(4, "a"), place.output(4, "b")) == ("printed\n", "in")
    with Client.at("state.db") as client:
        assert [one.problems for one in client.check_database().runs] == [[], []]
        assert [event.data for event in client.events(4, ("step_cached",))] == [{"run": 1}, {"run": 1}]


def test_a_failed_run_is_no_earlier_run(place: Place) -> None:
    """The last run that completed counts, of this workflow in this folder."""
    place.run()
    place.write({**FLOW, "steps": {**STEPS, "b": {"shell": "exit 1", "needs": "a"}}})
    failed = place.run(cached=True)
    assert (failed.status, taken_over(failed)) == ("failed", ["a"])
    place.write(FLOW)
    assert place.cached_changes() == {}
    place.write({**FLOW, "name": "other"})
    assert set(place.cached_changes().values()) == {"new"}


def test_lost_output(place: Place) -> None:
    """A step whose output is gone runs again."""
    place.run()
    shutil.rmtree(next(Path("output").rglob("wf1_r1")))
    assert place.cached_changes() == dict.fromkeys("abc", "outputs")


def test_a_rerun_and_a_resume_of_such_a_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rerun of all runs all; an engine that died before its first event takes nothing over."""
    place.run()
    place.run(cached=True)
    Path("in.txt").write_text("other")
    again = place.rerun(2)
    assert again is not None
    assert [(job.step, job.attempts, job.cached) for job in again.jobs[:3]] == [
        ("a", 0, True), ("b", 1, False), ("c", 1, False)
    ]  # fmt: skip
    assert place.output(2, "c") == "printed complaint other 0 1\n"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "acquire_lease", die)
        with pytest.raises(KeyboardInterrupt):
            place.run(cached=True)
    with Client.at("state.db") as client:
        from tests.runs.changed.place import LIMITS, Quiet

        resumed = client.resume(3, LIMITS, Quiet(None)).document
    assert (resumed.status, taken_over(resumed)) == ("completed", [])


def test_children_are_taken_over_and_maps_that_are_used_run(place: Place) -> None:
    """The value of a child workflow goes with it; results of items stay with their run."""
    Path("child.yaml").write_text('{"resile": 1, "name": "child", "steps": {"s": {"shell": "echo in child"}}}')
    inner = [{"id": "one", "shell": "echo ${item}"}]
    steps = {
        "m": {"map": {"input": ["x"], "steps": inner}},
        "w": {"workflow": "child.yaml", "result": "s"},
        "last": {"shell": "echo ${m.results} ${steps.w.output} ${inputs.x}", "needs": ["m", "w"]},
        "other": {"shell": "echo ${inputs.x}", "needs": "m"},
    }
    place.write({**FLOW, "steps": steps})
    place.run()
    assert taken_over(place.run(cached=True)) == ["m", "w", "last", "other"]
    place.write({**FLOW, "steps": {**steps, "other": {"shell": "echo changed", "needs": "m"}}})
    assert taken_over(place.run(cached=True)) == ["m", "w", "last"]
    assert place.cached_changes("x=2") == {"m": "needs", "last": "command", "other": "needs"}
    final = place.run("x=2", cached=True)
    assert (taken_over(final), place.output(final.run, "last")) == (["w"], '["x"] in child 2\n')


def test_not_with_a_choice_of_steps(place: Place) -> None:
    """`--cached` chooses the steps itself."""
    from msgspec.structs import replace

    from resile.commands.start.call import Choice
    from tests.runs.changed.place import Quiet

    with Client.at("state.db") as client, pytest.raises(ResileError, match="--cached chooses the steps itself"):
        client.run(replace(place.call(cached=True), choice=Choice(first=("b",))), Quiet(None))
