"""What can be a workflow in Python, what is refused and where, and what the package gives its users."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import resile
from resile import ResileError, Workflow, step
from resile.api.compile import compile_flow
from resile.api.step import StepFunction
from resile.dialects.compile import compile_text
from resile.model.workflow import Function
from tests.api import functions as f
from tests.api.conftest import Place

NAMES_MAX = 15


@step(on_failure={"retri": 2})
def misspelt() -> None:
    """Says something that nobody knows."""


@step(timeout="soon")
def untimely() -> None:
    """Has a time that is none."""


@step(rules=[{"types": [OSError], "recovery_script": object()}])
def unruly() -> None:
    """Has a rule that is none."""


@step(rules=[{"types": [int]}])
def mistyped() -> None:
    """Has a rule for something that nobody raises."""


def yields() -> Iterator[int]:
    """Gives more than once."""
    yield 1


async def yields_later() -> AsyncIterator[int]:
    """Gives more than once, later."""
    yield 1


def test_the_public_names_are_few_and_loaded_when_asked_for() -> None:
    """There are at most 15 names, each can be loaded, and importing the package loads none of them."""
    assert len(resile.__all__) <= NAMES_MAX
    assert all(getattr(resile, name) is not None for name in resile.__all__)
    code = "import sys, resile; print(sorted(name for name in sys.modules if name.startswith('resile')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "['resile']\n"
    with pytest.raises(AttributeError, match="no attribute 'flows'"):
        resile.flows  # noqa: B018


def test_a_step_must_be_found_by_its_name() -> None:
    """A lambda, a function inside another and an object that can be called are refused as steps."""

    def inner() -> None:
        """Nobody else finds this."""

    for thing in (lambda: None, inner, print):
        with pytest.raises(ResileError, match="a worker must find it by its name"):
            step(thing)


def test_a_generator_is_no_step() -> None:
    """A function that yields is refused: a step gives one value."""
    for thing in (yields, yields_later):
        with pytest.raises(ResileError, match="it yields, and a step gives one value"):
            step(thing)


def test_results_belong_to_their_workflow() -> None:
    """A result of another workflow, and something that is no result, are refused."""
    with Workflow("one"):
        x = f.give(1)
    with Workflow("two"):
        with pytest.raises(ResileError, match="step 'give' belongs to the workflow 'one'"):
            f.give(x)
        with pytest.raises(ResileError, match="5 is not the result of a step"):
            f.give(1).after(5)
    with pytest.raises(ResileError, match="map stands outside a workflow"):
        f.give.map([1])
    with pytest.raises(ResileError, match="workers is 'processes' or 'threads', not 'fibers'"):
        Workflow("t", workers="fibers")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        (misspelt, "unknown-key", "on_failure has no key `retri`"),
        (untimely, "value", "`soon` is not a duration"),
        (unruly, "type", "has no meaning here"),
        (mistyped, "type", "<class 'int'> has no meaning here"),
    ],
)
def test_findings_lead_to_the_python_line(function: StepFunction, code: str, message: str) -> None:
    """What is wrong with an option is said with the file and the line of the function that has it."""
    with Workflow("t") as flow:
        function()
    result = compile_flow(flow)
    found = [finding for finding in result.diagnostics if finding.severity == "error"]
    assert result.workflow is None
    assert code in [finding.code for finding in found]
    first = next(finding for finding in found if finding.code == code)
    assert message in first.message
    assert (first.file, first.line) == (__file__, function.function.__code__.co_firstlineno)


def test_an_empty_workflow_is_refused(place: Place) -> None:
    """A workflow without steps is an error that names its line."""
    with Workflow("t") as flow:
        pass
    with pytest.raises(ResileError, match="the workflow 't' has no steps"):
        place.run(flow)


def test_options_are_those_of_the_model() -> None:
    """Each option of a step and of a workflow is in the compiled model."""
    with Workflow("t", max_parallel=3, max_loops=4, grace="2s") as flow:
        f.once()
        f.slow("x")
        f.odd.map([1], item_timeout="9s", max_parallel=2)
    workflow = compile_flow(flow).workflow
    assert workflow is not None
    once, slow, odd = workflow.steps
    assert (workflow.max_parallel, workflow.loops_max, workflow.grace_seconds) == (3, 4, 2.0)
    assert (workflow.dialect, workflow.name, workflow.file) == ("python", "t", __file__)
    assert (once.on_loss, slow.timeout_seconds, slow.grace_seconds) == ("park", 0.2, 0.1)
    assert isinstance(once.action, Function)
    assert (once.action.module, once.action.name) == ("tests.api.functions", "once")
    assert (odd.action.item_timeout_seconds, odd.action.max_parallel) == (9.0, 2)  # type: ignore[union-attr]


def test_types_are_for_functions_only() -> None:
    """A rule that names exception types is refused where a step with it is no function."""
    text = (
        "resile: 1\nfailure_handlers: {h: {rules: [{types: [OSError]}]}}\n"
        'steps: {a: {shell: "true", failure_handler: h}}\n'
    )
    found = compile_text(text).diagnostics
    assert [(finding.message, finding.line, finding.column) for finding in found] == [
        ("`types` has a meaning only for functions, and `a` is none", 3, 28)
    ]


def cli(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "resile.cli.main", *words, "--db", "r.db"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_python_file_is_run_by_the_command(tmp_path: Path) -> None:
    """`resile run flow.py` runs the one workflow that the file builds."""
    (tmp_path / "flow.py").write_text(
        "from resile import Workflow, step\n@step\ndef one():\n    print('hello')\n"
        "with Workflow('t') as flow:\n    one()\n"
    )
    done = cli(tmp_path, "run", "flow.py")
    assert (done.returncode, done.stdout.splitlines()[0].split(" after")[0]) == (0, "run 1 t completed")
    assert cli(tmp_path, "logs", "1", "one").stdout == "==> one, attempt 1, stdout <==\nhello\n"


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("x = 1\n", "the file must build one Workflow, and keeps 0: none", 1),
        ("import resile\nx = (\n", "SyntaxError: '(' was never closed", 2),
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError: division by zero", 2),
        (
            "import resile\nfrom resile import Workflow, step\n@step\ndef a(): pass\n"
            "with Workflow('t') as flow: a()\nresile.run(flow)\n",
            "the file runs its workflow while it is being loaded",
            6,
        ),
    ],
)
def test_a_file_that_builds_no_workflow_is_refused(tmp_path: Path, text: str, message: str, line: int) -> None:
    """What keeps a Python file from being run is an error with its line, and exit code 2."""
    (tmp_path / "flow.py").write_text(text)
    done = cli(tmp_path, "run", "flow.py")
    assert done.returncode == 2
    assert message in done.stderr
    assert f"flow.py:{line}" in done.stderr


def test_a_name_means_one_function(tmp_path: Path, workers: str) -> None:
    """A function whose name means another one later, or nothing, is refused with its line: no worker finds it."""
    (tmp_path / "flow.py").write_text(
        "from resile import Workflow, step\n@step\ndef one(): return 1\n@step\ndef two(): return 2\n"
        f"with Workflow('t', workers={workers!r}) as flow:\n    one()\n    two()\n"
        "@step\ndef one(): return 3\ndel two\n"
    )
    done = cli(tmp_path, "run", "flow.py")
    assert done.returncode == 2
    assert "flow.py:2:1: error: the name `one` means another function by now" in done.stderr
    assert "flow.py:4:1: error: the name `two` is gone" in done.stderr


def test_load_compiles_a_file_and_run_takes_it(tmp_path: Path) -> None:
    """`resile.load` gives what `resile.run` takes, with inputs by name; a wrong file raises."""
    file = tmp_path / "flow.yaml"
    file.write_text("resile: 1\nname: y\ninputs: {word: x}\nsteps: {say: {shell: 'printf %s ${inputs.word}'}}\n")
    for what in (resile.load(str(file)), str(file)):
        run = resile.run(what, db=str(tmp_path / "r.db"), output=str(tmp_path / "out"), inputs={"word": "hi"})
        assert (run.status, run.exit_code, run.result("say")) == ("completed", 0, "hi")
    file.write_text("resile: 1\nsteps: {}\n")
    with pytest.raises(ResileError, match="`steps` is empty"):
        resile.load(str(file))
    with pytest.raises(ResileError, match="run 1 has no step 'nobody'"):
        run.__class__.result(resile.resume(1, db=str(tmp_path / "r.db")), "nobody")
