"""What counts as a change of what a step does, beyond its texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from resile.commands.changed.shape import Shapes
from resile.model.fanout import Source
from resile.model.rules import Transition
from resile.model.workflow import (
    Action,
    Child,
    FanOut,
    Function,
    Given,
    Input,
    Noop,
    Shell,
    Step,
    SuccessActions,
    Workflow,
)
from tests.runs.changed.place import Place


def _flow(*steps: Step) -> Workflow:
    """A workflow of these steps."""
    return Workflow(
        name="flow", dialect="native", file="flow.yaml", folder="", steps=steps, end=Step(name="end", action=Noop())
    )


def _depends_on_inputs(step: Step) -> bool:
    """Is the command of a step with another input another one?"""
    found = [Shapes(_flow(step), {"x": value}).command(step) for value in (1, 2)]
    return bool(found[0] != found[1])


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(name="a", action=Shell("ls inputs/")), False),
        (Step(name="a", action=Shell("echo ${inputs.x}")), True),
        (Step(name="a", action=Function("f", args=(Given("value", 1),))), False),
        (Step(name="a", action=Function("f", args=(Given("input", "x"),))), True),
        (Step(name="a", action=Function("f", kwargs={"x": Given("list", [["input", "x"]])})), True),
        (Step(name="a", action=FanOut(Source(values=(1,), filter="item < inputs.x"), ())), True),
        (Step(name="a", action=Noop(), on_success=SuccessActions(calls_js="inputs.x ? ['b'] : []")), True),
        (Step(name="a", action=Noop(), on_success=SuccessActions(target_js="inputs.x")), True),
        (Step(name="a", action=Noop(), on_success=SuccessActions(transitions=(Transition("inputs.x"),))), True),
    ],
)
def test_inputs_in_code_and_arguments(step: Step, expected: bool) -> None:
    """An input counts wherever a step may use it, and not where a word only looks like it."""
    assert _depends_on_inputs(step) is expected
    inside: Action = FanOut(Source(values=(1,)), (step,))
    assert _depends_on_inputs(Step(name="m", action=inside)) is expected


def test_defaults_of_a_child() -> None:
    """Another default of an input of a child workflow is another command."""

    def child(default: int) -> Step:
        return Step(name="a", action=Child("c.yaml", _with_default(default)))

    one, other = child(1), child(2)
    assert Shapes(_flow(one), {}).command(one) != Shapes(_flow(other), {}).command(other)


def _with_default(default: int) -> Workflow:
    """A workflow with one input."""
    return structs.replace(_flow(), inputs={"x": Input(default=default)})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Place()


def test_inputs_in_conditions(place: Place) -> None:
    """A step runs again, or is skipped, when an input that its condition names is another."""
    steps = {
        "a": {"shell": "echo a", "when": "inputs.x == 1"},
        "b": {"shell": "echo b", "next": [{"step": "c", "when": "inputs.x == 1"}]},
        "c": {"shell": "echo c"},
        "d": {"shell": "echo d"},
    }
    place.write({"inputs": {"x": {"type": "number", "default": 1}}, "steps": steps})
    run = place.run().run
    assert place.changes(run) == {}
    assert place.changes(run, "x=2") == {"a": "command", "b": "command", "c": "needs"}


def test_variables_of_the_workflow_and_in_conditions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable counts for all steps where the workflow's `env` names it, and for a step whose condition does."""
    monkeypatch.setenv("WHO", "me")
    monkeypatch.setenv("MODE", "fast")
    place.write({"env": {"NAME": "${env.WHO}"}, "steps": {"a": {"shell": "echo a"}}})
    run = place.run().run
    assert place.changes(run) == {}
    monkeypatch.setenv("WHO", "you")
    assert place.changes(run) == {"a": "command"}
    steps = {
        "b": {"shell": "echo b", "when": "env.MODE == 'fast'"},
        "c": {"shell": "echo c", "when": "env.MODE == 'slow'"},
        "d": {"shell": "echo d", "when": "false"},
    }
    place.write({"steps": steps})
    run = place.run().run
    # A step that did not run has no record of the environment.
    assert place.changes(run) == {"c": "command"}
    monkeypatch.setenv("MODE", "slow")
    assert place.changes(run) == {"b": "command", "c": "command"}


def test_steps_that_others_call(place: Place) -> None:
    """Another command of a step that is only called changes its callers."""
    steps = {
        "a": {"shell": "echo a", "on_success": {"run": "helper"}},
        "b": {"shell": "echo b", "on_success": {"run_js": "['helper']"}},
        "c": {"shell": "echo c"},
        "helper": {"shell": "echo help", "on_success": {"run": "second"}},
        "second": {"shell": "echo second"},
    }
    place.write({"steps": steps})
    run = place.run().run
    assert place.changes(run) == {}
    for name in ("helper", "second"):
        place.write({"steps": {**steps, name: {**steps[name], "shell": "echo other"}}})
        assert place.changes(run) == {"a": "command", "b": "command"}
