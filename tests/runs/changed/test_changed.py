"""`rerun --changed`: a new epoch with exactly what changed, by the file as it is now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resile.commands.client import Client
from resile.errors import ResileError
from tests.runs.changed.place import Place

FLOW = {
    "inputs": {"x": {"default": "1"}},
    "steps": {
        "a": {"shell": "echo a > a.txt; echo value", "outputs": "a.txt", "capture": "v"},
        "b": {"shell": "cat a.txt in.txt", "reads": ["a.txt", "in.txt"], "needs": "a"},
        "c": {"shell": "echo ${inputs.x} ${steps.b.output}", "needs": "b"},
        "d": {"shell": "echo ${v}", "needs": "a"},
    },
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder in which FLOW has run once."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("in")
    place = Place()
    place.write(FLOW)
    assert place.run().status == "completed"
    return place


def _with(**steps: object) -> dict[str, object]:
    """FLOW with other steps; None removes one."""
    found = {**FLOW["steps"], **steps}
    return {**FLOW, "steps": {name: step for name, step in found.items() if step is not None}}


def test_nothing_changed(place: Place) -> None:
    """There is no new epoch."""
    assert place.changes(1) == {}
    assert place.rerun(1) is None
    with Client.at("state.db") as client:
        assert client.status(1).epoch == 1


def test_contents_count_not_times(place: Place) -> None:
    """A file that is written anew with the same contents is no change; other contents are."""
    os.utime("in.txt", ns=(1, 1))
    assert place.changes(1) == {}
    Path("in.txt").write_text("IN")
    os.utime("in.txt", ns=(1, 1))
    assert place.changes(1) == {"b": "reads", "c": "needs"}
    Path("in.txt").unlink()
    assert place.changes(1) == {"b": "reads", "c": "needs"}


def test_missing_output(place: Place) -> None:
    """The step that wrote the file runs, and all below it."""
    Path("a.txt").unlink()
    assert place.changes(1) == {"a": "outputs", "b": "reads", "c": "needs", "d": "needs"}
    again = place.rerun(1)
    assert again is not None
    assert (again.epoch, again.status) == (2, "completed")
    assert place.rerun(1) is None


def test_inputs_and_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command counts with its values in place; a variable counts where a text names it."""
    assert place.changes(1, "x=2") == {"c": "command"}
    again = place.rerun(1, "x=2")
    assert again is not None
    assert again.inputs == {"x": "2"}
    assert place.started(1, 2) == ["c"]
    assert place.output(1, "c") == "2 a\nin\n"
    assert place.changes(1) == {}
    place.write(_with(d={"shell": "echo ${env.WHO}", "needs": "a"}))
    monkeypatch.setenv("WHO", "me")
    assert place.changes(1)["d"] == "command"
    place.rerun(1)
    assert place.changes(1) == {}
    monkeypatch.setenv("WHO", "you")
    assert place.changes(1) == {"d": "command"}


def test_a_secret_is_no_part_of_a_fingerprint(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new token changes nothing."""
    place.write({"secrets": ["API_TOKEN"], "steps": {"a": {"shell": 'test -n "${env.API_TOKEN}"'}}})
    monkeypatch.setenv("API_TOKEN", "first-token-value")
    run = place.run().run
    monkeypatch.setenv("API_TOKEN", "other-token-value")
    assert place.changes(run) == {}


def test_other_steps(place: Place) -> None:
    """New steps run; where the steps are others, jobs have new numbers, and kept ones what they printed."""
    place.write(_with(n={"shell": "echo new ${v}", "needs": "a"}, c=None, d={"shell": "echo ${v} ${v}", "needs": "a"}))
    assert place.changes(1) == {"d": "command", "n": "new"}
    again = place.rerun(1)
    assert again is not None
    assert again.status == "completed"
    assert [(job.step, job.status, job.attempts) for job in again.jobs] == [
        (name, "completed", 1) for name in ("a", "b", "d", "n", "end")
    ]
    assert min(job.id for job in again.jobs) > 5
    assert place.started(1, 2) == ["d", "n"]
    assert [place.output(1, name) for name in "abdn"] == ["value\n", "a\nin", "value value\n", "new value\n"]
    with Client.at("state.db") as client:
        assert [one.problems for one in client.check_database().runs] == [[]]
        assert client.explain(1).epoch == 2
    # Once more in the order of the first time.
    place.write(FLOW)
    assert place.changes(1) == {"c": "new", "d": "command"}
    final = place.rerun(1)
    assert final is not None
    assert (final.epoch, final.status) == (3, "completed")


def test_needs_of_a_step_without_files(place: Place) -> None:
    """Other needs change a step that declares no files, and only such a step."""
    place.write(_with(d={"shell": "echo ${v}", "needs": ["a", "b"]}))
    assert place.changes(1) == {"d": "needs"}
    place.write(_with(e={"shell": "echo e"}, b={**FLOW["steps"]["b"], "needs": ["a"]}))
    assert place.changes(1) == {"e": "new"}


def test_what_failed_or_never_ran(place: Place) -> None:
    """It counts as changed, and what did not depend on it stays."""
    place.write(_with(b={"shell": "exit 3", "reads": ["in.txt"], "needs": "a"}))
    run = place.run().run
    assert place.changes(run) == {"b": "new", "c": "needs"}
    place.write(_with(b={"shell": "exit 0", "reads": ["in.txt"], "needs": "a"}))
    assert place.changes(run) == {"b": "command", "c": "needs"}
    again = place.rerun(run)
    assert again is not None
    assert again.status == "completed"
    assert place.started(run, 2) == ["b", "c"]


def test_limits_rules_and_resources_do_not_count(place: Place) -> None:
    """How a step is tried is no part of what it does."""
    place.write(_with(d={"shell": "echo ${v}", "needs": "a", "retry": 3, "timeout": "9m", "resources": {"cpus": 1}}))
    assert place.changes(1) == {}


def test_a_file_that_changes_while_it_is_read(place: Place) -> None:
    """Its step counts as changed until it has run with the file as it is."""
    place.write({"steps": {"a": {"shell": "echo more >> in.txt", "reads": "in.txt"}}})
    run = place.run().run
    assert place.changes(run) == {"a": "reads"}


def test_folders(place: Place) -> None:
    """A folder counts with all files in it, by their names and contents."""
    Path("data/deep").mkdir(parents=True)
    Path("data/deep/one").write_text("1")
    place.write({"steps": {"a": {"shell": "ls data", "reads": "data"}}})
    run = place.run().run
    assert place.changes(run) == {}
    Path("data/deep/two").write_text("2")
    assert place.changes(run) == {"a": "reads"}


def test_skipped_steps_arcs_and_loops(place: Place) -> None:
    """A skipped step is no change; a step behind an arc runs again although its source does not."""
    steps = {
        "a": {"shell": "echo a", "next": "b"},
        "b": {"shell": "test -e again || { touch again; exit 1; }", "on_failure": {"goto": "a"}, "next": "c"},
        "c": {"shell": "echo c"},
        "d": {"shell": "echo d", "when": "false"},
    }
    place.write({"steps": steps})
    document = place.run()
    assert document.status == "completed"
    assert place.changes(document.run) == {}
    place.write({"steps": {**steps, "c": {"shell": "echo other"}}})
    assert place.changes(document.run) == {"c": "command"}
    again = place.rerun(document.run)
    assert again is not None
    assert again.status == "completed"
    assert place.started(document.run, 2) == ["c"]


def test_maps_and_children_are_one_step(place: Place) -> None:
    """What the steps inside read and write counts for the whole; its results stay for the steps below."""
    Path("child.yaml").write_text('{"resile": 1, "name": "child", "steps": {"s": {"shell": "echo in child"}}}')
    Path("items.json").write_text('["x", "y"]')
    Path("x.in").write_text("1")
    Path("y.in").write_text("2")
    inner = [{"id": "one", "shell": "cat ${item}.in", "reads": "${item}.in"}]
    steps = {
        "m": {"map": {"input": "items.json", "steps": inner}},
        "w": {"workflow": "child.yaml", "result": "s"},
        "last": {"shell": "echo ${m.results} ${steps.w.output}", "needs": ["m", "w"]},
    }
    place.write({"steps": steps})
    run = place.run().run
    assert place.changes(run) == {}
    Path("y.in").write_text("3")
    assert place.changes(run) == {"m": "reads", "last": "needs"}
    Path("y.in").write_text("2")
    Path("items.json").write_text('["x"]')
    assert place.changes(run) == {"m": "reads", "last": "needs"}
    Path("items.json").write_text('["x", "y"]')
    place.write({"steps": {"first": {"shell": "echo"}, **steps, "last": {**steps["last"], "env": {"A": "1"}}}})
    assert place.changes(run) == {"first": "new", "last": "command"}
    before = place.output(run, "last")
    again = place.rerun(run)
    assert again is not None
    assert again.status == "completed"
    assert place.output(run, "last") == before == '["1","2"] in child\n'


def test_refusals(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file must be there and right; it is found from any folder."""
    (tmp_path / "elsewhere").mkdir()
    db = os.path.abspath("state.db")
    monkeypatch.chdir("elsewhere")
    os.symlink(db, "state.db")
    assert place.changes(1) == {}
    monkeypatch.chdir(tmp_path)
    place.write("resile: 1\nname: flow\nsteps: {a: {shel: x}}\n")
    with pytest.raises(ResileError, match="shel"):
        place.rerun(1)
    Path("flow.yaml").unlink()
    with pytest.raises(ResileError, match="the file of run 1 is gone"):
        place.changes(1)
