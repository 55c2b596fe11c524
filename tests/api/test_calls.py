"""Functions as steps: what they are given, what they give, and what becomes of those that fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from resile import ResileError, Workflow
from tests.api import functions as f
from tests.api.conftest import Place


def test_results_are_the_objects_that_were_returned(place: Place, workers: Any) -> None:
    """Results travel from step to step and to the caller as they were, inside lists and dicts too."""
    with Workflow("t", workers=workers) as flow:
        x = f.give({"a": [1, None, 2.5], "b": "ü"})
        p = f.point(1, 2)
        q = f.right(p, by=3)
        both = f.give([x, {"at": q}])
        nothing = f.give(None)
        later = f.later(f.add(1, 2))
    run = place.run(flow)
    assert run.status == "completed"
    assert run.result(x) == {"a": [1, None, 2.5], "b": "ü"}
    assert run.result(q) == f.Point(4, 2)
    assert type(run.result(q)) is f.Point
    assert run.result(both) == [run.result(x), {"at": f.Point(4, 2)}]
    assert (run.result(nothing), run.result(later), run.result("add")) == (None, 4, 3)


def test_steps_are_called_after_their_functions(place: Place) -> None:
    """The second call of a function is NAME-2, a name given to the function is its step's, and `after` adds a need."""
    with Workflow("t", max_parallel=1) as flow:
        last = f.give(1)
        first = f.give(2)
        last.after(first)
    run = place.run(flow)
    ended = [step for kind, step in place.notes(run) if kind == "step_completed"]
    assert ended == ["give-2", "give", "end"]
    with Workflow("t") as flow:
        f.fail("x")
    assert place.run(flow).document["jobs"][0]["step"] == "plain"


def test_outside_a_workflow_a_step_is_its_function() -> None:
    """Called without a workflow a marked function does what it does."""
    assert f.add(1, 2) == 3
    assert f.right(f.Point(0, 0)) == f.Point(1, 0)


def test_workers_are_processes_by_default_and_threads_on_request(place: Place) -> None:
    """What a function prints in a worker process is in its log; a thread runs in this process."""
    for workers, own in (("processes", False), ("threads", True)):
        with Workflow("t", workers=workers) as flow:  # type: ignore[arg-type]
            said = f.say(f"from {workers}")
        run = place.run(flow)
        assert (run.result(said) == os.getpid()) is own
    logs = [path.read_text() for path in place.folder.rglob("job_wf1_j1_r1_a1.o")]
    assert logs == ["from processes\n"]


def test_an_exception_is_a_failure_with_type_message_and_traceback(place: Place, workers: Any) -> None:
    """Kind, code, message, types from special to general, and a traceback that begins in the user's code."""
    with Workflow("t", workers=workers) as flow:
        x = f.fail_softly("no good")
    run = place.run(flow)
    failure = place.failures(run)["fail_softly"]
    assert run.status == "completed"
    assert (failure.kind, failure.exit_code, failure.message) == ("exit", 1, "ValueError: no good")
    assert failure.types == ("ValueError", "Exception", "BaseException")
    assert failure.stderr.startswith("Traceback (most recent call last):\n")
    assert "raise ValueError(text)" in failure.stderr
    assert "function_calls" not in failure.stderr
    with pytest.raises(ResileError, match="'fail_softly' of run 1 failed"):
        run.result(x)


def test_a_worker_that_dies_fails_its_call_only(place: Place) -> None:
    """`os._exit`, a signal and SystemExit are failures of their calls, and the next call finds a worker."""
    with Workflow("t", max_parallel=1) as flow:
        f.leave(3)
        f.leave(0)
        f.die()
        f.quit_softly()
        last = f.add(1, 1)
    run = place.run(flow)
    failures = place.failures(run)
    told = {name: (found.kind, found.exit_code, found.signal) for name, found in failures.items()}
    assert told == {
        "leave": ("exit", 3, None),
        "leave-2": ("exit", None, None),
        "die": ("signal", 137, 9),
        "quit_softly": ("exit", 7, None),
    }
    assert failures["leave-2"].message == "the function ended its process before it returned"
    assert (run.status, run.result(last)) == ("completed", 2)


def test_a_result_has_a_size_and_a_form(place: Place, workers: Any) -> None:
    """A result that is too large, or that nothing carries, fails its step as a broken contract."""
    with Workflow("t", workers=workers) as flow:
        f.large()
        f.strange()
    failures = place.failures(place.run(flow))
    assert {name: found.kind for name, found in failures.items()} == {"large": "contract", "strange": "contract"}
    assert failures["large"].message.startswith("the result has 5242882 bytes, at most 4194304 are kept")
    assert failures["strange"].message.startswith("the result is neither JSON nor can it be pickled")


def test_large_arguments_reach_a_worker(place: Place) -> None:
    """An argument that no message holds arrives all the same."""
    with Workflow("t") as flow:
        x = f.give("y" * 300_000)
    run = place.run(flow)
    assert run.result(x) == "y" * 300_000


def test_retry_calls_again(place: Place, workers: Any) -> None:
    """`retry={"max": 2}` calls a failing function three times in all."""
    path = str(place.folder / "calls")
    with Workflow("t", workers=workers) as flow:
        x = f.third_time(path)
    run = place.run(flow)
    assert (run.status, run.result(x)) == ("completed", 3)
    assert [kind for kind, _ in place.notes(run)].count("attempt_failed") == 2


def test_rules_match_the_type_and_those_above_it(place: Place, workers: Any) -> None:
    """A rule for ConnectionError answers an exception below it, and no other."""
    busy, wrong = str(place.folder / "busy"), str(place.folder / "wrong")
    with Workflow("t", workers=workers) as flow:
        good = f.by_type(busy, "busy")
        f.by_type(wrong, "wrong")
    run = place.run(flow)
    assert (run.status, run.result(good)) == ("failed", 3)
    assert Path(wrong).read_text() == "wrong\n"


def test_on_failure_is_that_of_a_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell handler runs with the words of the exception, and its output may stand for the step's."""
    target = place.folder / "handled"
    monkeypatch.setenv("RESILE_HANDLED", str(target))
    with Workflow("t") as flow:
        f.handled()
    run = place.run(flow)
    assert run.status == "completed"
    assert target.read_text() == "KeyError: 'missing'\n"
    assert ("step_recovered", "handled") in place.notes(run)


def test_a_call_that_takes_too_long_is_ended(place: Place, workers: Any) -> None:
    """`timeout` fails the call, in a thread too, and the next call finds a worker."""
    path = str(place.folder / "began")
    with Workflow("t", workers=workers, max_parallel=1) as flow:
        f.slow(path)
        last = f.add(2, 2)
    run = place.run(flow)
    failure = place.failures(run)["slow"]
    assert (failure.kind, failure.message) == ("timeout", "timed out after 0.2s")
    assert (run.status, run.result(last)) == ("completed", 4)
    assert next(note for note in place.notes(run) if note[0] == "attempt_started") == ("attempt_started", "slow")


def test_a_command_beside_calls_is_ended(place: Place) -> None:
    """The kill of a handler that runs out of time reaches its command, not the workers of functions."""
    path = place.folder / "handled"
    handler = {"shell": f"sleep 8; echo > '{path}'", "timeout": "200ms"}
    with Workflow("t") as flow:
        f.add(1, 2)
        flow.shell("exit 3", on_failure=handler)
    run = place.run(flow)
    assert (run.status, path.exists()) == ("failed", False)
    assert place.failures(run)["shell"].exit_code == 3


def test_park_and_critical(place: Place) -> None:
    """`park` holds a failed step, and a failed `critical` one cancels what has not begun."""
    with Workflow("t") as flow:
        f.parked()
    assert place.run(flow).status == "parked"
    with Workflow("t", max_parallel=1) as flow:
        f.critical()
        for number in range(2_000):
            f.give(number)
    run = place.run(flow)
    assert run.status == "failed"
    assert run.document["steps"]["canceled"] > 0
    assert run.document["steps"]["canceled"] + run.document["steps"]["completed"] == 2_000


def test_map_calls_the_function_for_each_item(place: Place, workers: Any) -> None:
    """A map gives the list of what its items gave, over a list and over the result of a step."""
    with Workflow("t", workers=workers) as flow:
        points = f.right.map([f.Point(1, 1), f.Point(2, 2)], by=10)
        numbers = f.odd.map(f.give([1, 3, 5]), max_parallel=2)
        total = f.give(numbers)
    run = place.run(flow)
    assert run.status == "completed"
    assert run.result(points) == [f.Point(11, 1), f.Point(12, 2)]
    assert (run.result(numbers), run.result(total)) == ([1, 3, 5], [1, 3, 5])


def test_items_that_fail_are_dead_letters(place: Place) -> None:
    """An error policy of a map means what it means in a file; without one a failed item fails the map."""
    with Workflow("t") as flow:
        f.odd.map([1, 2, 3])
    run = place.run(flow)
    counts = run.document["maps"]["odd"]
    assert (run.status, counts["successful"], counts["failed"], counts["dead_letters"]) == ("failed", 2, 1, 1)
    with Workflow("t") as flow:
        kept = f.odd.map([1, 2, 3], error_policy={"continue_on_failure": True})
    run = place.run(flow)
    assert (run.status, run.result(kept)) == ("completed", [1, 3])
    assert run.document["maps"]["odd"]["failed"] == 1
    with Workflow("t") as flow:
        f.odd.map([2, 1, 3], max_parallel=1, error_policy={"on_item_failure": "stop"})
    assert place.run(flow).status == "failed"
