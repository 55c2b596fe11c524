"""Values by itself, below whole runs: what each path leads to for a job of a folded state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from resile.core.actions import KeepLetter
from resile.core.events import AttemptEnded, RunStarted
from resile.core.state import Job
from resile.dialects.compile import compile_text
from resile.engine.evaluation.values import Values
from resile.engine.secrets import Hidden
from resile.languages.contract import render_shell, render_text
from resile.languages.references import MISSING, ValueRefused
from resile.model.failure import Failure, LogRange, Outcome
from resile.model.items import DeadLetter, Item
from resile.model.status import Status
from resile.store.contract import AttemptRow, Batch, JobRow, RunRow
from resile.store.memory import MemoryStore
from tests.core.items import Items
from tests.core.world import OK, failed
from tests.engine.simulated import MemoryOutput

FAILURE = Failure("exit", "exit code 3", 3, None, "some out\n", "some err\n")

TWO_ITEMS = "steps: [{id: each, map: {input: [1, 2], steps: [{id: work, shell: x}]}}, {id: use, shell: x}]"


class Lookup:
    """A run of a native file up to where steps are `stuck`, with the values of its jobs."""

    def __init__(
        self,
        text: str,
        folder: Path,
        outcome: Callable[[str, int, int], Outcome] = lambda _step, _index, _number: OK,
        stuck: tuple[str, ...] = ("use",),
        env: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        **inputs: Any,
    ) -> None:
        workflow = compile_text(f"resile: 1\n{text}", folder=str(folder)).workflow
        assert workflow is not None
        self.world = Items(workflow, total=2, item=outcome, parallel=4, stuck=lambda name, _index: name in stuck)
        self.world.feed(RunStarted(0.0, self.world.capacity, inputs))
        while self.world.orders:
            self.world.perform()
        self.state = self.world.state
        self.store, self.output = MemoryStore(), MemoryOutput()
        row = RunRow(id=0, workflow="t", dialect="native", definition="", status="running", output=str(folder))
        run = self.store.create_run(row, b"", [])
        self.row = self.store.run(run)
        assert self.row is not None
        self.lease = self.store.acquire_lease(run, 0.0, 60.0)
        self.writer = self.store.writer()
        given = env or {}
        self.values = Values(
            self.store,
            self.row,
            self.state,
            given,
            self.output,
            secrets=Hidden(dict(zip(secrets, secrets, strict=True))),
        )

    def job(self, step: str, index: int | None = None) -> Job:
        """The job of a step, of an item where an index is given."""
        for job in self.state.jobs.values():
            item = self.state.scopes[job.scope].item
            if self.world.name(job.id) == step and (item.index if item is not None else None) == index:
                return job
        raise AssertionError(f"no job {step} {index}")

    def find(self, *path: str | int, step: str = "use", index: int | None = None) -> Any:
        """The value under a path, as a job sees it."""
        return self.values.find(path, self.job(step, index))

    def text(self, text: str, step: str = "use", index: int | None = None) -> str:
        """A text as a job renders it."""
        return render_text(text, self.values.of(self.job(step, index)))

    def wrote(self, step: str, out: str, err: str = "", index: int | None = None, **row: Any) -> None:
        """Store an attempt of a job that wrote this, and the job's row."""
        job = self.job(step, index)
        number = row.pop("attempt", 1)
        log = self.output.write(f"{job.id}-{number}-{row.get('epoch', 1)}", out.encode(), err.encode())
        attempt = AttemptRow(job=job.id, attempt=number, **{"epoch": 1, "log": log, **row})
        job_row = JobRow(job.id, step, self.state.scopes[job.scope].name, int(job.status))
        key = (job.id, attempt.epoch, attempt.attempt)
        self.writer.submit(Batch(self.lease.run, self.lease.token, [], {job.id: job_row}, {key: attempt}))


def test_inputs_are_followed_by_name_and_by_index(tmp_path: Path) -> None:
    """A path leads through mappings and lists, and to MISSING where it leads nowhere."""
    run = Lookup("inputs: {c: json}\nsteps: [{id: use, shell: x}]", tmp_path, c={"tags": ["a", "b"], "n": 1})
    assert run.find("inputs", "c", "tags", 1) == run.find("inputs", "c", "tags", "1") == "b"
    assert run.find("inputs", "c", "tags", -1) == "b"
    assert run.find("inputs") == {"c": {"tags": ["a", "b"], "n": 1}}
    for path in (("c", "tags", 2), ("c", "n", "x"), ("d",), ("c", "tags", "0000000001")):
        assert run.find("inputs", *path) is MISSING


def test_the_folder_of_the_workflow_is_all_that_is_known_of_it(tmp_path: Path) -> None:
    """`workflow.folder` is the folder of its file; another name below it, or none, leads nowhere."""
    run = Lookup("steps: [{id: use, shell: x}]", tmp_path)
    assert run.find("workflow", "folder") == str(tmp_path)
    assert run.find("workflow") is run.find("workflow", "file") is run.find("workflow", "folder", "x") is MISSING


def test_variables_see_those_above_them(tmp_path: Path) -> None:
    """The step's variables are rendered after the workflow's, which see the caller's; one that is not set is empty."""
    text = "env: {A: 'a${env.X}', B: '${env.A}b'}\nsteps: [{id: use, shell: x, env: {C: '${env.B}c', A: own}}]"
    run = Lookup(text, tmp_path, env={"X": "1", "Y": "2"})
    assert run.values.environment(run.job("use")) == {"A": "own", "B": "a1b", "C": "a1bc"}
    assert run.values.env_of(run.job("use")) == {"X": "1", "Y": "2", "A": "own", "B": "a1b", "C": "a1bc"}
    assert (run.find("env", "B"), run.find("env", "Y"), run.find("env", "Z")) == ("a1b", "2", "")
    assert run.find("env") is MISSING


def test_variables_that_cannot_be_rendered_leave_the_callers(tmp_path: Path) -> None:
    """What fails the attempt when it starts leaves code and texts with the caller's variables."""
    text = "inputs: {c: json}\nsteps: [{id: use, shell: x, env: {A: '${inputs.c.nope}'}}]"
    run = Lookup(text, tmp_path, env={"X": "1"}, c={"a": 1})
    with pytest.raises(ValueRefused, match=r"^`inputs.c` has no `nope`; it has: a$"):
        run.values.environment(run.job("use"))
    assert run.values.env_of(run.job("use")) == {"X": "1"}


def test_a_step_has_properties(tmp_path: Path) -> None:
    """Status, exit code and attempts come from the state, stdout and stderr from the last attempt."""
    text = "steps: [{id: a, shell: x}, {id: use, shell: x, needs: a}]"
    run = Lookup(text, tmp_path)
    run.wrote("a", "old", attempt=1)
    run.wrote("a", " out\n\n", "err\n", attempt=2)
    found = {name: run.find("steps", "a", name) for name in ("status", "exit_code", "attempts", "output", "stderr")}
    assert found == {"status": "completed", "exit_code": 0, "attempts": 1, "output": "out", "stderr": "err"}
    assert run.find("steps", "b", "output") is run.find("steps", "a") is run.find("steps", "a", "nope") is MISSING


def test_output_is_the_one_captured_value_or_stdout(tmp_path: Path) -> None:
    """One capture is the output, with its type; with two of them it is what was printed."""
    values = {"one": {"n": [1]}, "two": "2", "three": 3}
    text = """
steps:
  - {id: a, shell: x, capture: {one: json}}
  - {id: b, shell: x, capture: {two: text, three: json}}
  - {id: use, shell: x}
"""
    captures = {"a": ("one",), "b": ("two", "three")}

    def outcome(step: str, _index: int, _number: int) -> Outcome:
        return Outcome(0, values={name: values[name] for name in captures.get(step, ())})

    run = Lookup(text, tmp_path, outcome)
    run.wrote("b", "printed\n")
    assert run.find("steps", "a", "output", "n", 0) == 1
    assert run.find("one") == {"n": [1]}
    assert run.find("steps", "b", "output") == "printed"
    assert run.find("steps", "b", "outputs") == {"two": "2", "three": 3}
    assert run.text("${one.n[0]}/${three}/${two}/${four}") == "1/3/2/${four}"


def test_history_holds_the_successes_of_this_epoch(tmp_path: Path) -> None:
    """Attempts that failed, and those of an earlier epoch, are left out."""
    run = Lookup("steps: [{id: a, shell: x}, {id: use, shell: x, needs: a}]", tmp_path)
    run.state.epoch = 2
    run.wrote("a", "before", epoch=1)
    run.wrote("a", "first", epoch=2, attempt=1)
    run.wrote("a", "broken", epoch=2, attempt=2, failure=FAILURE)
    run.wrote("a", "second\n", epoch=2, attempt=3)
    assert run.values.history(run.job("a")) == ["first", "second"]


def test_a_handler_sees_the_failure_that_it_answers(tmp_path: Path) -> None:
    """`error` has the fields of the failure and `shell.output` both streams of that attempt; others have neither."""
    text = "steps: [{id: a, shell: x, on_failure: [{id: use, shell: x}]}, {id: b, shell: x}]"
    run = Lookup(text, tmp_path, lambda step, _index, _number: Outcome(3, FAILURE) if step == "a" else OK, ("use", "b"))
    run.wrote("a", "some out\n", "some err\n", failure=FAILURE)
    assert run.find("error") == {
        "message": "exit code 3",
        "exit_code": 3,
        "step": "a",
        "timestamp": "1970-01-01T00:00:01Z",
        "stdout": "some out",
        "stderr": "some err",
        "kind": "exit",
        "attempt": 1,
        "signal": None,
    }
    assert run.find("shell", "output") == "some out\nsome err"
    assert run.find("error", "nope") is run.find("error", step="b") is run.find("shell", "output", step="b") is MISSING


MAP = """
steps:
  - {id: a, shell: x}
  - id: each
    map: {input: {step: a}, steps: [{id: work, shell: x, capture: got}, {id: use, shell: x}]}
  - {id: after, shell: x}
"""


def test_an_item_is_what_its_steps_see(tmp_path: Path) -> None:
    """The item, its number and its id; the output of the step whose list it comes from is the item as well."""
    run = Lookup(MAP, tmp_path)
    for index in range(2):
        found = {name: run.find(name, index=index) for name in ("item", "item_index", "item_id")}
        assert found == {"item": f"v{index}", "item_index": index, "item_id": f"each[{index}]"}
        assert run.find("item", "item", index=index) == run.find("steps", "a", "output", index=index) == f"v{index}"
    assert run.find("item", "size", index=0) is run.find("item_index", "x", index=0) is MISSING
    assert run.find("item", step="after") is MISSING


def test_each_item_has_its_own_captured_names(tmp_path: Path) -> None:
    """A name that two items capture is for each the one of its own scope, and nobody's outside."""
    run = Lookup(MAP, tmp_path, lambda step, index, _: Outcome(0, values={"got": index} if step == "work" else {}))
    assert [run.find("got", index=index) for index in range(2)] == [0, 1]
    assert run.find("got", step="after") is MISSING


def test_a_map_gives_results_outcomes_and_numbers(tmp_path: Path) -> None:
    """By the name of its step: what its last steps printed, what became of each item, and its counts."""
    run = Lookup(TWO_ITEMS, tmp_path, stuck=("use", "work"))
    run.wrote("work", '{"n": 1}\n', index=0, started_at=1.0, ended_at=2.0)
    run.wrote("work", "plain\n", index=1, started_at=1.0, ended_at=2.0)
    jobs = [run.job("work", index) for index in range(2)]
    for job in jobs:
        run.world.feed(AttemptEnded(1.0, job.id, 1, OK))
    rows = {job.id: JobRow(job.id, "work", f"each[{number}]", 5) for number, job in enumerate(jobs)}
    run.writer.submit(Batch(run.lease.run, run.lease.token, [], rows, {}))
    assert run.find("each", "results") == run.find("steps", "each", "output") == [{"n": 1}, "plain"]
    assert [one["item_id"] for one in run.find("each", "outcomes")] == ["each[0]", "each[1]"]
    assert [run.find("each", name) for name in ("total", "successful", "failed", "dead_letters")] == [2, 2, 0, 0]
    assert run.find("each") is run.find("each", "nope") is MISSING


def test_only_items_that_succeeded_and_left_no_letter_have_a_branch_to_merge(tmp_path: Path) -> None:
    """An item that failed has none, though no letter is kept of it, and neither has one whose letter is kept."""
    run = Lookup(TWO_ITEMS, tmp_path, stuck=("use", "work"))
    each, jobs = run.job("each"), [run.job("work", index) for index in range(2)]

    def store(*status: Status, letters: tuple[KeepLetter, ...] = ()) -> None:
        rows = {job.id: JobRow(job.id, "work", f"each[{at}]", status[at]) for at, job in enumerate(jobs)}
        run.writer.submit(Batch(run.lease.run, run.lease.token, [], rows, {}, letters=letters))

    store(Status.completed, Status.completed)
    first, second = run.find("each", "branches").split(" ")
    assert first != second
    store(Status.failed, Status.completed)
    assert run.find("each", "branches") == second
    letter = DeadLetter("each", "each", "work", each.id, 0, Item(1, 2), "failed", 1.0)
    store(Status.completed, Status.completed, letters=(KeepLetter(letter),))
    assert run.find("each", "branches") == first


def test_an_item_that_failed_without_a_failed_attempt_has_no_message(tmp_path: Path) -> None:
    """Its step was cancelled before it ran, or its last attempt says nothing of a failure."""
    run = Lookup(TWO_ITEMS, tmp_path, stuck=("use", "work"))
    run.wrote("work", "said\n", index=1)
    jobs = [run.job("work", index) for index in range(2)]
    rows = {job.id: JobRow(job.id, "work", f"each[{at}]", Status.canceled) for at, job in enumerate(jobs)}
    run.writer.submit(Batch(run.lease.run, run.lease.token, [], rows, {}))
    found = [(one["status"], one["output"], one["error"]) for one in run.find("each", "outcomes")]
    assert found == [("failed", "", ""), ("failed", "said", "")]


def test_an_isolated_item_has_a_worktree(tmp_path: Path) -> None:
    """Its steps run there and can name it with its branch; those outside have neither."""
    text = """
steps:
  - {id: each, map: {input: [1, 2], isolation: worktree, steps: [{id: use, shell: x}]}}
  - {id: other, shell: x}
"""
    run = Lookup(text, tmp_path, stuck=("use", "other"))
    folder = run.find("worktree", index=1)
    assert folder.startswith(f"{tmp_path}/")
    assert run.values.folder_of(run.job("use", 1)) == folder != run.find("worktree", index=0)
    assert run.find("worktree_branch", index=1) != run.find("worktree_branch", index=0)
    assert (run.values.folder_of(run.job("other")), run.find("worktree", step="other")) == ("", MISSING)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("one.nope", "`one` has no `nope`; it has: n"),
        ("one.n.x", "`one.n` is a number and has no `x`"),
        ("later.x", "`later` has no value: 'z' captures it and has not given one"),
        ("mended.x", "`mended` has no value: 'z' captures it and has not given one"),
    ],
)
def test_a_known_name_whose_path_leads_nowhere_is_refused(tmp_path: Path, reference: str, message: str) -> None:
    """In a text and in a command alike, with what there is instead."""
    text = """
steps:
  - {id: a, shell: x, capture: {one: json}}
  - {id: use, shell: x}
  - {id: z, shell: x, capture: later, on_failure: [{id: mend, shell: x, capture: mended}]}
"""
    run = Lookup(text, tmp_path, lambda step, *_: Outcome(0, values={"one": {"n": 1}} if step == "a" else {}))
    visible = run.values.of(run.job("use"))
    for render in (render_text, render_shell):
        with pytest.raises(ValueRefused) as refused:
            render(f"echo ${{{reference}}}", visible)
        assert refused.value.message == message


@pytest.mark.parametrize("text", ["${later}", "${HOME}", "${array[0]}", "${inputs[0]}", "${x.y}", "$(x) ${V:-d}"])
def test_a_name_that_may_be_the_shells_stays(tmp_path: Path, text: str) -> None:
    """A single name without a value, an index behind one of our objects, and any name that the file does not have."""
    steps = "steps: [{id: use, shell: x}, {id: z, shell: x, capture: later}]"
    assert Lookup(steps, tmp_path).text(text) == text


def test_a_default_stands_for_no_value(tmp_path: Path) -> None:
    """A name with a path and a default has that where there is no value, null or an unset variable."""
    run = Lookup("inputs: {c: json}\nsteps: [{id: use, shell: x}]", tmp_path, c={"null": None, "empty": ""})
    text = "${inputs.c.nope:-a} ${inputs.c.null:-b} ${env.NOPE:-c} [${inputs.c.empty:-d}]"
    assert run.text(text) == "a b c []"


def test_execution_says_what_has_become_of_the_steps(tmp_path: Path) -> None:
    """The failed steps by name, and the results of all."""
    text = "steps: [{id: a, shell: x, on_failure: true}, {id: use, shell: x, needs: a}]"
    run = Lookup(text, tmp_path, lambda step, *_: failed(3) if step == "a" else OK)
    assert run.find("execution", "tolerated_steps") == ["a"]
    assert run.find("execution", "results", "a") == {"status": "failed", "exit_code": 3, "attempts": 1}


def test_a_list_that_a_step_printed_is_read_as_one(tmp_path: Path) -> None:
    """JSON text is its value; anything else is refused by the name of the step."""
    run = Lookup("steps: [{id: a, shell: x}, {id: b, shell: x}, {id: use, shell: x}]", tmp_path)
    run.wrote("a", "[1, {}]\n")
    run.wrote("b", "1\n2\n")
    assert run.values.list_of("a", run.job("use")) == [1, {}]
    way = r": `capture: {NAME: lines}` there makes a list of its lines, `\$\{NAME\}`"
    with pytest.raises(ValueRefused, match=rf"^the output of 'b' is not a list{way}$"):
        run.values.list_of("b", run.job("use"))


def test_secrets_are_redacted_in_texts_and_in_urls(tmp_path: Path) -> None:
    """As they are, and percent-encoded as a path or a query has them."""
    run = Lookup("steps: [{id: use, shell: x}]", tmp_path, secrets=("a/b c",))
    assert run.values.redact("say a/b c") == "say ***"
    assert run.values.redact("http://h/a/b%20c?t=a%2Fb%20c") == "http://h/***?t=***"


ONE_INPUT = "inputs: {x: text}\nsteps: [{id: use, shell: x}]"


@pytest.mark.parametrize(
    ("templates", "text", "rendered"),
    [
        ("dollar", "${inputs.x} {{ inputs.x }}", "1 {{ inputs.x }}"),
        ("liquid", "${inputs.x} {{ inputs.x }}", "${inputs.x} 1"),
        ("jinja", "${inputs.x} {{ workload.x }}", "${inputs.x} 1"),
    ],
)
def test_texts_are_rendered_in_the_language_of_the_workflow(
    tmp_path: Path, templates: str, text: str, rendered: str
) -> None:
    """The same text means another thing in each of the three, and what is not its own it leaves to the shell."""
    run = Lookup(
        f"ir: {{templates: {templates}}}\ninputs: {{x: text}}\nsteps: [{{id: use, shell: x}}]", tmp_path, x="1"
    )
    assert run.text(text) == rendered


def test_an_attempt_without_a_log_wrote_nothing(tmp_path: Path) -> None:
    """A step that ran inside the engine, and one whose output is gone, have an empty output."""
    run = Lookup("steps: [{id: a, shell: x}, {id: b, shell: x}, {id: use, shell: x}]", tmp_path)
    run.wrote("a", "", log=None)
    run.wrote("b", "", log=LogRange("gone", 0, 4))
    assert [run.find("steps", name, "output") for name in ("a", "b")] == ["", ""]


def test_a_child_workflow_sees_its_own_inputs_and_steps(tmp_path: Path) -> None:
    """Its frame ends the search: inputs, steps and captured names of the workflow around it are not its own."""
    (tmp_path / "child.yaml").write_text(f"resile: 1\n{ONE_INPUT}")
    text = "inputs: {y: text}\nsteps: [{id: a, shell: x, capture: one}, {id: c, workflow: child.yaml, inputs: {x: 1}}]"
    outcomes = {"a": Outcome(0, values={"one": 1}), "c": Outcome(0, values={"x": "given"})}
    run = Lookup(text, tmp_path, lambda step, *_: outcomes.get(step, OK), y="outer")
    assert run.find("inputs") == {"x": "given"}
    assert run.find("one") is run.find("steps", "a", "status") is MISSING
    assert run.find("inputs", step="a") == {"y": "outer"}
