"""What a step and a workflow can say in Python: each option does what the key of that name does in a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest

from resile import ResileError, Resources, Workflow, current, step
from tests.api import functions as f
from tests.api.conftest import Place
from tests.api.other import odd as other_odd


@step(env={"WORD": "x"})
def own_env() -> None:
    """Has an environment of its own."""


def test_a_call_knows_what_it_is_for(place: Place, workers: Any) -> None:
    """`current` names the run, the step, its job and the attempt; in a worker process the environment does too."""
    with Workflow("t", workers=workers) as flow:
        f.give(0)
        told, later = f.tell(), f.tell_later()
    run = place.run(flow)
    answer = run.result(told)
    assert answer["current"] == [run.id, 1, "tell", 2, 1]
    assert run.result(later) == "tell_later"
    if workers == "processes":
        assert answer["env"] == [str(run.id), "1", "2", "tell", "1", None]
    with pytest.raises(ResileError, match="no step is being run here"):
        current()


def test_env_is_for_the_calls_of_its_step(place: Place) -> None:
    """A step's `env` adds to that of its workflow, with values filled in, and is gone with the call."""
    with Workflow("t", max_parallel=1, env={"WORD": "all"}, inputs={"word": "x"}) as flow:
        before, own = f.tell(), f.own_env()
        after = f.tell()
        after.after(own)
    run = place.run(flow, inputs={"word": "y"})
    assert (run.result(before)["word"], run.result(own), run.result(after)["word"]) == ("all", "own y", "all")
    with Workflow("t", max_parallel=1, inputs={"word": "x"}) as flow:
        own = f.own_env()
        after = f.tell().after(own)
    run = place.run(flow)
    assert (run.result(own), run.result(after)["word"]) == ("own x", None)


@pytest.mark.parametrize("where", ["step", "workflow", "gpus"])
def test_threads_have_one_environment(where: str) -> None:
    """What needs an environment of its own is refused where threads call the functions, with the line."""
    options: dict[str, Any] = {"env": {"A": "b"}} if where == "workflow" else {}
    function = own_env if where == "step" else f.give.options(resources={"gpus": 1}) if where == "gpus" else f.give
    with Workflow("t", workers="threads", inputs={"word": "x"}, **options) as flow:
        function() if where == "step" else function(1)
    with pytest.raises(
        ResileError, match=f"`{'gpus' if where == 'gpus' else 'env'}` has a meaning only in worker"
    ) as e:
        flow.compile()
    # A function of another file is told by the line of its call.
    lines = {"workflow": flow.line, "gpus": flow.line + 1, "step": own_env.function.__code__.co_firstlineno}
    assert e.value.where == f"{__file__}:{lines[where]}:1"


def test_threads_share_their_memory() -> None:
    """A limit that can't be enforced is refused; with `enforce=False` it only reserves."""
    for enforce, code in ((None, "`memory` can't be enforced in threads"), (False, "")):
        with Workflow("t", workers="threads") as flow:
            f.give.options(resources=Resources(memory="1g", enforce=enforce))(1)
        with pytest.raises(ResileError, match=code) if code else contextlib.nullcontext():
            flow.compile()


@pytest.mark.parametrize(("given", "status"), [(1, "skipped"), (2, "completed")])
def test_when_decides(place: Place, given: int, status: str) -> None:
    """A `when` that is false skips the step and what needs it."""
    with Workflow("t") as flow:
        number = f.give(given)
        word = f.only_when("go").after(number)
        last = f.tell_later().after(word)
    run = place.run(flow)
    jobs = {job["step"]: job["status"] for job in run.document["jobs"]}
    assert (run.status, jobs["only_when"], jobs[last.name]) == ("completed", status, status)


def test_resources_are_those_of_a_file(place: Place) -> None:
    """`runtime` is enforced, `cpus` are taken of the machine, and what can never fit is refused at once."""
    with Workflow("t") as flow:
        f.takes_a_share()
    run = place.run(flow)
    failure = place.failures(run)["takes_a_share"]
    assert (failure.kind, failure.message) == ("timeout", "timed out after 0.2s")
    resources = flow.compile().steps[0].resources
    assert resources is not None
    assert resources.cpus == 1.0
    with Workflow("t") as flow:
        f.takes_too_much()
    with pytest.raises(ResileError, match="takes_too_much"):
        place.run(flow)


def test_needs_name_functions_and_steps(place: Place) -> None:
    """A function in `needs` stands for all its calls; texts are those of a file."""
    with Workflow("t", max_parallel=1) as flow:
        f.after_gives()
        f.give(1)
        f.give(2)
        f.fail_softly.options(name="a")("x")
        f.give.options(name="b")(3)
        f.after_either()
    run = place.run(flow)
    order = [step for kind, step in place.notes(run) if kind == "step_completed"]
    assert order.index("after_gives") > max(order.index(name) for name in ("give", "give-2", "b"))
    needs = {found.name: [need.any_of for need in found.needs] for found in flow.compile().steps}
    assert needs["after_gives"] == [("give",), ("give-2",), ("b",)]
    assert needs["after_either"] == [("a", "b")]
    assert "after_either" in order
    with Workflow("t") as flow:
        f.after_gives()
    with pytest.raises(ResileError, match="`needs` names `give`, which the workflow does not call"):
        flow.compile()


def test_on_success_and_a_function_that_mends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """`on_success` follows a success; a function can be the remedy of another, and knows what failed."""
    target, broken = place.folder / "handled", place.folder / "broken"
    monkeypatch.setenv("RESILE_HANDLED", str(target))
    with Workflow("t") as flow:
        f.followed()
        mended = f.mended(str(broken))
        f.fix(str(broken))
    run = place.run(flow)
    assert (run.status, target.read_text()) == ("completed", "done\n")
    assert run.result(mended) == "mended 1 1"


def test_options_change_some_calls_only(place: Place) -> None:
    """`options` gives a function other options for some calls, with the others as they were."""
    path = str(place.folder / "calls")
    with Workflow("t") as flow:
        once = f.third_time.options(name="once", retry=0)(path)
        f.third_time.options(on_failure=True)
    compiled = flow.compile().steps[0]
    assert (once.name, compiled.name, compiled.rules) == ("once", "once", ())
    assert f.third_time.step_name == "third_time"


def test_functions_of_one_name_have_rules_of_their_own() -> None:
    """Two functions that are called the same, from different modules, keep the rules that each was given."""
    with Workflow("t") as flow:
        f.by_type.options(name="odd")("p", "busy")
        other_odd(1)
    first, second = flow.compile().steps
    assert [rule.match.types for rule in first.rules] == [("ConnectionError",)]
    assert [rule.match.types for rule in second.rules] == [("LookupError",)]
    assert (first.name, second.name) == ("odd", "odd-2")


def test_a_map_is_critical_and_waits_as_a_whole() -> None:
    """`critical` and `needs` of a function are those of the map, everything else that of each item."""
    with Workflow("t") as flow:
        f.give(1)
        f.after_gives.options(critical=True, timeout="3s", needs=f.give)
        f.odd.options(critical=True, timeout="3s", needs=f.give).map([1])
    step = flow.compile().steps[1]
    inner = step.action.steps[0]  # type: ignore[union-attr]
    assert (step.critical, [need.any_of for need in step.needs]) == (True, [("give",)])
    assert (inner.critical, inner.needs, inner.timeout_seconds) == (False, (), 3.0)


def test_an_input_is_an_argument(place: Place, workers: Any) -> None:
    """Inputs keep their types, can be given by the caller, and can be what a map goes over."""
    inputs = {"word": "w", "number": 2, "flag": False, "items": [1, 3], "data": {"type": "json", "default": {"a": 1}}}
    with Workflow("t", workers=workers, inputs=inputs) as flow:
        given = f.give({"all": [flow.input(name) for name in inputs]})
        odd = f.odd.map(flow.input("items"))
    run = place.run(flow)
    assert run.result(given) == {"all": ["w", 2, False, [1, 3], {"a": 1}]}
    assert run.result(odd) == [1, 3]
    run = place.run(flow, inputs={"number": 5, "items": [7]})
    assert run.result(given)["all"][1] == 5
    assert run.result(odd) == [7]
    with pytest.raises(ResileError, match="t has no input 'worm'"):
        flow.input("worm")
    with pytest.raises(ResileError, match="input 'number': 'many' is not a number"):
        place.run(flow, inputs={"number": "many"})


def test_unknown_options_are_refused() -> None:
    """An option that nobody knows is a TypeError that says which was meant, and so are wrong arguments of a call."""
    with pytest.raises(TypeError, match=r"step\(\) has no option 'retri': did you mean `retry`\?"):
        step(retri=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"options\(\) has no option 'timout': did you mean `timeout`\?"):
        f.give.options(timout=2)
    with pytest.raises(TypeError, match=r"Workflow\(\) has no option 'worker': did you mean `workers`\?"):
        Workflow("t", worker="threads")
    with Workflow("t"):
        with pytest.raises(TypeError, match=r"give\(\) too many positional arguments"):
            f.give(1, 2)
        with pytest.raises(TypeError, match=r"odd\(\) got an unexpected keyword argument 'by'"):
            f.odd.map([1], by=2)


def test_a_result_is_no_value_yet(place: Place) -> None:
    """While a workflow is built nobody can look into a result, and it can't hide where nobody would find it."""
    with Workflow("t") as flow:
        x = f.give(1)
        wrongs: list[Callable[[], Any]] = [
            lambda: bool(x),
            lambda: list(x),
            lambda: f"{x}",
            lambda: f"{x:>9}",
        ]
        for wrong in wrongs:
            with pytest.raises(TypeError, match="<the result of step 'give'> is not known before the run"):
                wrong()
        assert ({x: "key"}[x], f"{x!r}", x == x, x == 1) == ("key", "<the result of step 'give'>", True, False)
        with pytest.raises(ResileError, match=r"argument 1 of give .* stands where it can't be found"):
            f.give({x})
        with pytest.raises(ResileError, match=r"argument 'by' of right .*: cannot pickle"):
            f.right(x, by=Lock())
        with pytest.raises(ResileError, match="<the input 'a'> is no step that could wait"):
            Workflow("u", inputs={"a": 1}).input("a").after(x)
    assert place.run(flow).result(x) == 1


@pytest.mark.parametrize(
    ("verdict", "status"), [("completed", "completed"), ("failed", "failed"), ("perhaps", "failed")]
)
def test_end_has_the_last_word(place: Place, workers: Any, verdict: str, status: str) -> None:
    """A function called `end` runs after everything, knows how the run went, and may decide on the verdict."""
    with Workflow("t", workers=workers) as flow:
        first = f.give(1)
        f.fail("no")
        end = f.finish(flow.execution, verdict, first)
    run = place.run(flow)
    assert run.status == status
    if verdict == "perhaps":
        assert place.failures(run)["end"].message == "workflow_status is 'perhaps', not completed or failed"
    else:
        expected = {"workflow_status": verdict, "was": "failed", "failed": ["plain"], "first": 1}
        assert run.result(end) == expected
    with Workflow("t") as flow:
        with pytest.raises(ResileError, match="give runs before the run has ended"):
            f.give(flow.execution)
        f.finish.options(needs="give")(1, 2, 3)
        f.give(1)
    with pytest.raises(ResileError, match="`end` takes no `needs`"):
        flow.compile()
