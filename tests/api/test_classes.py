"""Options as frozen classes, steps that are no functions, runs that raise, and the client."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import resile
from resile import Client, Map, OnFailure, Resources, Retry, Workflow, step
from resile.api.options import Backoff, keys_of, map_keys_of
from resile.dialects.native.keys.failures import BACKOFF, ON_FAILURE, RETRY
from resile.dialects.native.keys.fanout import ERROR_POLICY, MAP
from resile.dialects.native.keys.steps import RESOURCES
from resile.errors import ResileError, RunFailed, StepFailed, StoreError, WorkflowError
from resile.model.rules import Match
from resile.store.contract import RunRow
from resile.store.open import open_store
from resile.testing import in_test_mode
from tests.api import functions as f
from tests.api.conftest import Place

# Second words for a key, which the classes leave out.
ALIASES = {"claude", "max_retries", "retry_original", "mode", "delay", "delay_ms", "timeout_per_agent"}


@step(retry=Retry(max=2, on=(ConnectionError, "json.decoder.JSONDecodeError"), backoff=Backoff(initial="1ms")))
def picky() -> None:
    """Is retried after certain exceptions only."""


@pytest.mark.parametrize(
    ("option", "table", "left_out"),
    [
        (Backoff, BACKOFF, {"fixed", "linear", "exponential", "fibonacci"}),
        (OnFailure, ON_FAILURE, set[str]()),
        (Resources, RESOURCES, set[str]()),
    ],
)
def test_a_class_has_the_keys_of_its_table(option: Any, table: Any, left_out: set[str]) -> None:
    """Each key of the file's table is a field of the class, but for second words of the same thing."""
    assert set(option.__struct_fields__) >= set(table.keys) - ALIASES - left_out - {"jitter_of"}
    assert set(option.__struct_fields__) <= set(table.keys)


def test_retry_and_map_have_the_keys_of_their_tables() -> None:
    """`Retry` has the keys of `retry` and `on`; each field of `Map` is a key of `map` or of `error_policy`."""
    assert set(Retry.__struct_fields__) == {*RETRY.keys, "on"}
    assert set(Map.__struct_fields__) <= {*MAP.keys, *ERROR_POLICY.keys}
    assert set(ERROR_POLICY.keys) <= {*Map.__struct_fields__}


def test_options_are_frozen_and_leave_out_what_was_not_given() -> None:
    """An option can't be changed, and says only what it was given."""
    retry = Retry(max=2)
    with pytest.raises(AttributeError):
        retry.max = 3  # type: ignore[misc]
    assert keys_of(retry) == {"max": 2}
    assert map_keys_of(Map(max_parallel=2, on_item_failure="skip")) == {
        "max_parallel": 2,
        "error_policy": {"on_item_failure": "skip"},
    }


def test_classes_and_dicts_compile_to_the_same_steps() -> None:
    """`Resources`, `OnFailure` and `Retry` mean what the dicts with the same keys mean."""
    classes = {"resources": Resources(cpus=2), "on_failure": OnFailure(retry=Retry(max=3, backoff="2s"))}
    dicts = {"resources": {"cpus": 2}, "on_failure": {"retry": {"max": 3, "backoff": "2s"}}}
    steps = []
    for options in (classes, dicts):
        with Workflow("t") as flow:
            f.give.options(**options)(1)
        steps.append(flow.compile().steps)
    assert steps[0] == steps[1]


def test_a_retry_on_exceptions_is_a_rule_for_their_types() -> None:
    """`Retry(on=…)` answers these exceptions, with its limit and its backoff, and no other failure."""
    with Workflow("t") as flow:
        picky()
    (rule,) = flow.compile().steps[0].rules
    assert rule.match == Match(types=("ConnectionError", "json.decoder.JSONDecodeError"))
    assert (rule.limit, rule.then, rule.wait and rule.wait.initial_seconds) == (2, "retry", 0.001)


def test_shell_steps_and_children_take_results(place: Place) -> None:
    """A shell step and a child workflow need the steps whose results stand in them, and get their values quoted."""
    (place.folder / "child.yaml").write_text(
        "resile: 1\ninputs: {word: none}\nsteps: {say: {shell: 'echo child ${inputs.word}', capture: said}}\n"
    )
    with Workflow("t", inputs={"name": "x y"}) as flow:
        word = f.give("a 'b' $c")
        first = flow.shell(f"printf '%s|' {word.output} {flow.input('name').output}")
        second = flow.shell("echo second", name="second", needs=[first])
        child = flow.child(place.folder / "child.yaml", inputs={"word": second}, timeout="30s")
        last = flow.shell("echo last").after(child)
    steps = {found.name: {name for need in found.needs for name in need.any_of} for found in flow.compile().steps}
    assert steps == {
        "give": set(),
        "shell": {"give"},
        "second": {"shell"},
        "child": {"second"},
        "shell-2": {"child"},
    }
    run = place.run(flow).raise_for_status()
    assert (run.result(first), run.result(last)) == ("a 'b' $c|x y|", "last")
    assert run.result(child) == {"said": "child second"}


def test_unknown_keys_of_a_shell_step_are_refused_in_their_line() -> None:
    """A key that no step has is an error that leads to the Python line."""
    with Workflow("t") as flow:
        flow.shell("true", tiemout="5s")
    with pytest.raises(WorkflowError, match="has no key `tiemout`") as e:
        flow.compile()
    assert e.value.where.startswith(__file__)


def test_a_loaded_workflow_is_a_workflow(place: Place) -> None:
    """`load` gives the same class that is built in Python; it runs, and no steps can be added to it."""
    file = place.folder / "flow.yaml"
    file.write_text("resile: 1\nname: loaded\nsteps: {a: {shell: echo a}}\n")
    flow = resile.load(file)
    assert (type(flow), flow.name, place.run(flow).result("a")) == (Workflow, "loaded", "a")
    with pytest.raises(ResileError, match="no steps can be added"), flow:
        pass
    (place.folder / "wrong.yaml").write_text("resile: 1\nsteps: {a: {shel: echo a}}\n")
    with pytest.raises(WorkflowError, match="`shel`"):
        resile.load(place.folder / "wrong.yaml")


def test_a_failed_run_raises_when_it_is_asked_to(place: Place) -> None:
    """`raise_for_status` returns a run that completed and names the first failure of one that did not."""
    with Workflow("t") as flow:
        good = flow.shell("true", name="good")
        bad = flow.shell("echo why >&2; exit 3", name="bad")
    run = place.run(flow)
    with pytest.raises(RunFailed, match=r"run 1 failed: step 'bad' failed: exit code 3: why") as e:
        run.raise_for_status()
    assert (e.value.run, e.value.status, run.result(good)) == (1, "failed", "")
    with pytest.raises(StepFailed, match="'bad' of run 1 failed") as failed:
        run.result(bad)
    assert failed.value.step == "bad"
    assert all(issubclass(kind, ResileError) for kind in (RunFailed, StepFailed, StoreError, WorkflowError))


def test_a_failed_run_says_why_when_its_store_is_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """`raise_for_status` needs no store: one in memory has lost the run, and a file may have been deleted."""
    monkeypatch.chdir(place.folder)
    with Workflow("t") as flow:
        flow.shell("echo why >&2; exit 3", name="bad")
    said = r"run 1 failed: step 'bad' failed: exit code 3: why"
    with pytest.raises(RunFailed, match=said):
        resile.run(flow, db="memory:").raise_for_status()
    db = place.folder / "gone.db"
    run = resile.run(flow, db=str(db))
    for path in place.folder.glob("gone.db*"):
        path.unlink()
    with pytest.raises(RunFailed, match=said):
        run.raise_for_status()


def test_a_failed_run_names_the_step_whose_failure_stands(place: Place) -> None:
    """`raise_for_status` does not name a step that passed when it was tried again."""
    tried = place.folder / "tried"
    with Workflow("t") as flow:
        flow.shell(f"test -e {tried} || {{ touch {tried}; exit 4; }}", name="shaky", retry=Retry(max=1, backoff="1ms"))
        flow.shell("exit 0", name="kept")
        f.fail.map(["a", "b"])
    run = place.run(flow)
    with pytest.raises(RunFailed) as e:
        run.raise_for_status()
    assert str(e.value).splitlines()[0] == "run 1 failed: step 'plain' failed: 2 of 2 items failed"


def test_events_are_handed_over_as_they_are_written(place: Place) -> None:
    """`on_event` hears every event in order; where it raises, the run stops and can be resumed."""
    heard: list[str] = []
    with Workflow("t") as flow:
        flow.shell("true", name="a")
    place.run(flow, on_event=lambda event: heard.append(event["type"]))
    assert (heard[0], heard[-1]) == ("playbook_started", "playbook_completed")

    def stop(event: dict[str, Any]) -> None:
        """Has seen enough."""
        raise KeyError(event["type"])

    with pytest.raises(KeyError):
        place.run(flow, on_event=stop)
    assert resile.resume(2, db=place.db).status == "completed"


def test_the_client_looks_at_runs_and_judges_them(place: Place) -> None:
    """A client lists, gets, explains, judges, resumes and cancels the runs of its database, and reads dead letters."""
    client = Client(place.db)
    file = place.folder / "flow.yaml"
    file.write_text(
        "resile: 1\nname: p\nsteps:\n  a: {shell: exit 1, park: true}\n"
        "  m: {map: {input: [1, 2], steps: [{shell: 'test ${item} = 1'}]}}\n"
    )
    run = client.submit(file)
    assert (run.exit_code, client.runs()[0]["run"], client.get(1)["run"]) == (4, 1, 1)
    assert [letter["item_id"] for letter in client.dead_letters(1)] == ["m[1]"]
    assert client.explain(1)["run"] == 1
    client.judge(1, "a", "skip", output="x", reason="known")
    assert client.resume(1).result("a") == "x"
    assert client.cancel(1)["requested"] is False


def test_the_client_lists_every_run(place: Place) -> None:
    """A client lists all runs of its database, also those beyond the first hundred."""
    row = RunRow(
        id=0, workflow="x", dialect="native", definition="", status="completed", summary={"first_failure": None}
    )
    with closing(open_store(place.db)) as store:
        for _ in range(101):
            store.create_run(row, b"", [])
    assert [run["run"] for run in Client(place.db).runs()] == list(range(101, 0, -1))


def test_the_test_mode_leaves_nothing_behind_and_does_not_wait(tmp_path: Path) -> None:
    """Runs of the test mode are in a database of their own, call functions in this process, and retry at once."""
    with Workflow("t") as flow:
        x = f.give(1)
        flow.shell("exit 1", name="bad", retry={"max": 2, "backoff": "1h"}, on_failure=True)
    with in_test_mode() as client:
        run = resile.run(flow)
        folder = Path(client.db or "").parent
        assert (run.result(x), len(client.runs()), folder.is_dir()) == (1, 1, True)
        assert (resile.Client().db, resile.Client().runs()) == (client.db, client.runs())
        (action,) = [found.action for found in flow.compile().steps if found.name == "give"]
        assert getattr(action, "workers", "") == "processes"
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
