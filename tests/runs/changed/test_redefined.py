"""What a run follows after `rerun --changed` took a changed file: later commands follow it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from resile.commands.client import Client
from resile.commands.redrive import RedriveCall
from resile.commands.service.submit import submit_again
from resile.commands.start.call import Given, ResourceLimits
from resile.commands.store_handle import StoreHandle
from resile.core.events import EpochStarted
from resile.core.state import ROOT
from resile.engine.replay import fold_log, row_of
from resile.errors import ResileError
from resile.model.workflow import FanOut, Workflow
from tests.runs.changed.place import LIMITS, Place, Quiet

MAP = {"map": {"input": ["x"], "isolation": "auto", "steps": [{"id": "one", "shell": "echo ${item}"}]}}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Place()


def _store() -> Any:
    """The store of the folder."""
    return StoreHandle("state.db").read()


def _workflow(run: int) -> Workflow:
    """The workflow that a run follows."""
    store = _store()
    return fold_log(store, row_of(store, run)).workflow


def test_the_epoch_has_the_workflow_as_it_was_settled(place: Place) -> None:
    """What the start of an epoch decides about maps is in its definition; without a change it has none."""
    place.write({"steps": {"m": MAP, "a": {"shell": "true", "reads": "in.txt"}}})
    run = place.run().run
    Path("in.txt").write_text("new")
    assert place.rerun(run) is not None
    place.write({"steps": {"m": MAP, "a": {"shell": "echo other", "reads": "in.txt"}}})
    assert place.rerun(run) is not None
    epochs = [entry.event for entry in _store().entries(run) if isinstance(entry.event, EpochStarted)]
    assert [bool(event.definition) for event in epochs] == [False, True]
    action = _workflow(run).steps[0].action
    assert isinstance(action, FanOut)
    assert action.isolation == "none"


def test_learned_memory_is_in_the_epoch(place: Place) -> None:
    """An epoch asks for the memory that earlier attempts needed, and the log says so."""
    steps = {"a": {"shell": "cat in.txt", "reads": "in.txt", "resources": {"memory": "auto"}}}
    Path("in.txt").write_text("1")
    place.write({"steps": steps})
    run = place.run().run
    Path("in.txt").write_text("2")
    assert place.rerun(run) is not None
    with Client.at("state.db") as client:
        (noted,) = [event.data for event in client.events(run, ("run_resumed",)) if "again" in event.data]
    asked = _workflow(run).steps[0].resources
    assert asked is not None
    assert noted["learned_memory_bytes"] == {"a": asked.memory_bytes}
    assert asked.memory_bytes > 0


def test_a_new_run_and_an_explanation_follow_the_changed_file(place: Place) -> None:
    """`rerun --as-new` runs the steps that the run has now."""
    place.write({"steps": {"a": {"shell": "echo first"}}})
    run = place.run().run
    place.write({"name": "renamed", "steps": {"a": {"shell": "echo second"}, "b": {"shell": "echo b"}}})
    assert place.rerun(run) is not None
    with Client.at("state.db") as client:
        assert client.explain(run).workflow == "renamed"
        fresh = client.rerun(run, LIMITS, Quiet(None), failed_only=False, as_new=True, inputs=Given()).document
    assert ([job.step for job in fresh.jobs], fresh.status) == (["a", "b", "end"], "completed")
    assert place.output(fresh.run, "a") == "second\n"
    assert _workflow(fresh.run).name == "renamed"
    store = StoreHandle("state.db").write()
    handed = submit_again(store, run, {}, ResourceLimits(), "ann")
    assert _workflow(handed.run).name == "renamed"


@pytest.mark.slow
def test_a_run_on_an_executor_stays_there(place: Place) -> None:
    """`--executor` is no part of the file, and the rerun is on the same blocks all the same."""
    pytest.importorskip("parsl")
    Path("local.toml").write_text('[executor]\nkind = "parsl"\nprovider = "local"\ndirectory = "scratch"\n')
    place.write({"steps": {"a": {"shell": "cat in.txt || true", "reads": "in.txt"}}})
    with Client.at("state.db") as client:
        run = client.run(replace(place.call(), executor="local.toml"), Quiet(None)).document.run
    Path("in.txt").write_text("new")
    again = place.rerun(run)
    assert again is not None
    assert again.status == "completed"
    executor = _workflow(run).executor
    assert executor is not None
    assert executor.directory == str(Path("scratch").absolute())


def _retry(run: int) -> tuple[int, int]:
    """Retry the dead letters of a run: how many were selected, and how many succeeded."""
    with Client.at("state.db") as client:
        found = client.redrive(RedriveCall(run=run), Quiet(None))
    return found.selected, found.succeeded


def test_dead_letters_of_a_map_that_did_not_run_again(place: Place) -> None:
    """They can be retried where the map is the same; where it is another one, they are refused."""
    inner = {"id": "one", "shell": "test ${item} != y || test -e fixed"}
    steps = {
        "a": {"shell": "test ! -e broken"},
        "m": {"needs": "a", "map": {"input": ["x", "y"], "error_policy": {"on_item_failure": "dlq"}, "steps": [inner]}},
    }
    place.write({"steps": steps})
    run = place.run().run
    Path("broken").touch()
    place.write({"steps": {**steps, "a": {"shell": "test ! -e broken; "}}})
    again = place.rerun(run)
    assert again is not None
    assert [(job.step, job.status) for job in again.jobs[:2]] == [("a", "failed"), ("m", "canceled")]
    Path("fixed").touch()
    assert _retry(run) == (1, 1)


def test_dead_letters_of_another_definition(place: Place) -> None:
    """They are refused with a reason, also in the preview, and can be purged."""
    inner = {"id": "one", "shell": "test ${item} != y"}
    steps = {"a": {"shell": "true"}, "m": {"needs": "a", "map": {"input": ["x", "y"], "steps": [inner]}}}
    place.write({"steps": steps})
    run = place.run().run
    place.write({"steps": {"first": {"shell": "true"}, **steps, "a": {"shell": "false"}}})
    assert place.rerun(run) is not None
    with Client.at("state.db") as client:
        for call in (client.preview_redrive, lambda given: client.redrive(given, Quiet(None))):
            with pytest.raises(ResileError, match="run 1 follows another definition"):
                call(RedriveCall(run=run))


def test_values_of_steps_that_run_again_or_are_gone(place: Place) -> None:
    """They are no values of the epoch until their steps have run."""
    steps = {
        "a": {"shell": "echo 1", "capture": "kept"},
        "b": {"shell": "echo 2", "capture": "gone"},
        "c": {"shell": "echo 3", "capture": "again"},
    }
    place.write({"steps": steps})
    run = place.run().run
    place.write({"steps": {"a": steps["a"], "n": {"shell": "exit 1"}, "c": {**steps["c"], "needs": "n"}}})
    again = place.rerun(run)
    assert again is not None
    store = _store()
    values = fold_log(store, row_of(store, run)).scopes[ROOT].values
    assert {name: values.get(name) for name in ("kept", "gone", "again")} == {"kept": "1", "gone": None, "again": None}
