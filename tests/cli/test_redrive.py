"""`dlq retry`: which letters run again, what becomes of them, and what happens when it is cut short."""

from __future__ import annotations

import os
import signal

import msgspec
import pytest

from resile.core.actions import KeepLetter
from resile.core.events import Redriven
from resile.engine.session import take
from resile.model.items import DeadLetter, Item
from resile.store.contract import Batch
from resile.store.open import open_store
from tests.cli.program import Program

LENIENT = "error_policy: {continue_on_failure: true}"
FLOW = """\
resile: 1
name: fan
steps:
  work:
    map:
      input: [{n: 0, kind: a}, {n: 1, kind: b}, {n: 2, kind: a}, {n: 3, kind: b}]
      max_parallel: 2
      error_policy: {continue_on_failure: true}
      steps:
        - {id: look, shell: 'echo look ${item.n} >> effects'}
        - {id: mend, shell: 'echo mend ${item.n} >> effects; echo bad ${item.kind} >&2; test -e fixed-${item.n}'}
  after: {shell: echo after >> effects, needs: [work]}
"""
# With a limit on failures no item is reserved ahead, so that a signal can't come too late to hold the next one back.
GATED = """\
resile: 1
name: gated
steps:
  work:
    map:
      input: [0, 1, 2]
      max_parallel: 1
      error_policy: {max_failures: 99}
      steps:
        - {id: step, shell: 'test -e open || exit 1; echo ${item} >> effects; echo here > at; read go < gate'}
"""


def effects(program: Program) -> list[str]:
    """What the steps left behind."""
    path = program.folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


def failed_run(program: Program, text: str = FLOW) -> None:
    """A run that has completed with some dead letters; what it did is forgotten."""
    program.call("run", program.write(text), code=0)
    (program.folder / "effects").unlink(missing_ok=True)


def fix(program: Program, *numbers: int) -> None:
    """From now on these items succeed."""
    for number in numbers:
        (program.folder / f"fixed-{number}").touch()


def kept(program: Program) -> list[tuple[str, int]]:
    """Id and number of failures of each dead letter of run 1."""
    found = program.json("dlq", "list", "1")["dead_letters"]
    return [(letter["item_id"], letter["failure_count"]) for letter in found]


def redrives(program: Program) -> list[tuple[int, int]]:
    """Number of items and parallelism of each redrive in the log of run 1."""
    store = open_store(program.env["RESILE_DB"], readonly=True)
    events = [entry.event for entry in store.entries(1)]
    store.close()
    return [(event.total, event.parallel) for event in events if isinstance(event, Redriven)]


def test_succeeded_items_leave_and_failed_ones_stay(program: Program) -> None:
    """Exit 1 while some fail again, 0 when none does; histories grow, and nothing but the items runs again."""
    failed_run(program)
    before = {letter["item_id"]: letter for letter in program.json("dlq", "list", "1")["dead_letters"]}
    fix(program, 0, 2)
    document = program.json("dlq", "retry", "1", code=1)
    assert document == {
        "version": 1,
        "run": 1,
        "map": "work",
        "status": "finished",
        "selected": 4,
        "succeeded": 2,
        "failed": 2,
        "left": 2,
        "dead_letters": 2,
        "exit_code": 1,
    }
    assert sorted(effects(program)) == [f"{step} {n}" for step in ("look", "mend") for n in range(4)]
    assert kept(program) == [("work[1]", 2), ("work[3]", 2)]
    again = program.json("dlq", "show", "1", "work[1]")
    assert again["correlation_id"] == before["work[1]"]["correlation_id"] == "1:work[1]"
    assert again["failure_history"][0] == before["work[1]"]["failure_history"][0]
    assert again["failure_history"][1]["step_failed"] == "mend"
    assert again["failure_history"][1]["stack_trace"] == "bad b\n"
    with open(again["failure_history"][1]["json_log_location"]) as log:
        assert log.read() == "bad b\n"
    fix(program, 1, 3)
    done = program.call("dlq", "retry", "1", code=0)
    assert done.stdout == "run 1: 2 of 2 items succeeded\n"
    assert kept(program) == []
    status = program.json("status", "1")
    assert (status["status"], status["exit_code"]) == ("completed", 0)
    counts = status["maps"]["work"]
    assert (counts["total_items"], counts["successful"], counts["failed"], counts["dead_letters"]) == (4, 4, 0, 0)


def test_a_redrive_tries_every_letter_and_a_rerun_goes_on(program: Program) -> None:
    """A redrive tries every letter, whatever limit ended the map; once none is left, a rerun goes on after the map."""
    program.write(
        FLOW.replace("max_parallel: 2", "max_parallel: 1").replace("continue_on_failure: true", "max_failures: 1")
    )
    program.call("run", "flow.yaml", code=1)
    reasons = [letter["reason"] for letter in program.json("dlq", "list", "1")["dead_letters"]]
    assert reasons == ["failed", "not_started", "not_started", "not_started"]
    fix(program, 0, 2)
    done = program.call("dlq", "retry", "1", code=1)
    assert done.stdout == (
        "run 1: 2 of 4 items succeeded, 2 failed again; `resile dlq list 1 --step work` shows them\n"
    )
    fix(program, 1, 3)
    assert program.json("dlq", "retry", "1")["succeeded"] == 2
    document = program.json("status", "1")
    assert document["status"] == "failed"
    assert [job["status"] for job in document["jobs"] if job["step"] in ("work", "after")] == ["completed", "canceled"]
    before = effects(program)
    assert "after" not in before
    program.call("rerun", "1", "--failed-only", code=0)
    assert effects(program) == [*before, "after"]


def test_a_redrive_that_leaves_no_letter_goes_on(program: Program) -> None:
    """With --resume the steps that were canceled run, once no letter is left; the exit code is the run's."""
    program.write(FLOW.replace("continue_on_failure: true", "max_failures: 1"))
    program.call("run", "flow.yaml", code=1)
    fix(program, 0, 2)
    done = program.call("dlq", "retry", "1", "--resume", "--filter", "item.n === 0", code=1)
    assert done.stdout == "run 1: 1 of 1 item succeeded\n"
    assert "run 1 is still failed and does not go on: 3 dead letters left\n" in done.stderr
    nothing = program.json("dlq", "retry", "1", "--resume", "--filter", "item.n === 0", code=1)
    assert (nothing["selected"], nothing["exit_code"]) == (0, 1)
    program.call("dlq", "retry", "1", "--resume", code=1)
    assert "after" not in effects(program)
    fix(program, 1, 3)
    document = program.json("dlq", "retry", "1", "--resume")
    assert (document["status"], document["steps"]["completed"]) == ("completed", document["steps"]["total"])
    assert effects(program)[-1] == "after"
    assert program.json("dlq", "retry", "1", "--resume")["selected"] == 0


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [0, 1, 2, 3]),
        (("--filter", "item.n > 1"), [2, 3]),
        (("--filter", "letter.index === 1 && letter.failure_count === 1"), [1]),
        (("--filter", "letter.failure_history[0].step_failed === 'mend' && item.kind === 'a'"), [0, 2]),
        (("--filter", "false"), []),
        (("--step", "work", "--filter", "item.n === 0"), [0]),
        (("--signature", "ffff"), []),
    ],
)
def test_which_items_are_selected(program: Program, words: tuple[str, ...], numbers: list[int]) -> None:
    """A dry run names the selected items and runs nothing; the real one runs just these."""
    failed_run(program)
    document = program.json("dlq", "retry", "1", "--dry-run", *words)
    ids = [f"work[{number}]" for number in numbers]
    assert document == {"version": 1, "run": 1, "map": "work", "dry_run": True, "selected": len(ids), "items": ids}
    assert (effects(program), redrives(program)) == ([], [])
    fix(program, 0, 1, 2, 3)
    assert program.json("dlq", "retry", "1", *words)["succeeded"] == len(ids)
    assert sorted(effects(program)) == [f"{step} {n}" for step in ("look", "mend") for n in numbers]
    assert [name for name, _ in kept(program)] == [f"work[{n}]" for n in range(4) if n not in numbers]


def test_one_signature(program: Program) -> None:
    """Failures that look alike are retried together."""
    failed_run(program)
    signature = program.json("dlq", "show", "1", "1")["error_signature"]
    document = program.json("dlq", "retry", "1", "--dry-run", "--signature", signature)
    assert document["items"] == ["work[1]", "work[3]"]


def test_a_dry_run_for_people(program: Program) -> None:
    """The number and the names of the items."""
    failed_run(program)
    done = program.call("dlq", "retry", "1", "--dry-run", "--filter", "item.n < 2", code=0)
    assert done.stdout == "run 1: 2 items would run\n  work[0]\n  work[1]\n"
    assert (effects(program), redrives(program)) == ([], [])


def test_a_long_dry_run_for_people(program: Program) -> None:
    """The first names are shown, and how many there are besides; as JSON a thousand are named."""
    one = "{map: {input: seq 1001, steps: [{id: s, shell: 'false'}]}}"
    flow = f"resile: 1\nname: many\n{LENIENT}\nsteps:\n  m: {one}\n"
    failed_run(program, flow)
    lines = program.call("dlq", "retry", "1", "--dry-run", code=0).stdout.splitlines()
    assert lines == ["run 1: 1001 items would run", *(f"  m[{n}]" for n in range(20)), "  … and 981 more"]
    document = program.json("dlq", "retry", "1", "--dry-run")
    assert (document["selected"], len(document["items"])) == (1001, 1000)


@pytest.mark.parametrize(
    ("words", "parallel"),
    [((), 2), (("--max-parallel", "3"), 3), (("--parallel", "4"), 4)],
)
def test_how_many_at_a_time(program: Program, words: tuple[str, ...], parallel: int) -> None:
    """As many as the map may, or as the call says in either spelling."""
    failed_run(program)
    program.call("dlq", "retry", "1", *words, code=1)
    assert redrives(program) == [(4, parallel)]


def test_a_map_that_says_nothing_runs_five(program: Program) -> None:
    """Five items at a time are the default, and never more than the file allows in all."""
    text = FLOW.replace("      max_parallel: 2\n", "")
    failed_run(program, text)
    program.call("dlq", "retry", "1", code=1)
    assert redrives(program) == [(4, 5)]
    program.call("run", program.write(text.replace("name: fan", "name: fan\nmax_parallel: 3")), code=0)
    program.call("dlq", "retry", "2", code=1)
    store = open_store(program.env["RESILE_DB"], readonly=True)
    found = [entry.event.parallel for entry in store.entries(2) if isinstance(entry.event, Redriven)]
    store.close()
    assert found == [3]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("item.n >", "--filter can't run: "),
        ("item.nothing.there", "--filter failed for work[0]: TypeError: "),
        ("nobody", "--filter failed for work[0]: ReferenceError: "),
    ],
)
def test_a_filter_that_can_not_answer(program: Program, code: str, message: str) -> None:
    """It is refused with what is wrong, and with the item it is wrong about; nothing runs."""
    failed_run(program)
    for words in (("--dry-run",), ()):
        error = program.json("dlq", "retry", "1", "--filter", code, *words, code=2)["error"]
        assert (error["code"], error["message"].startswith(message)) == ("bad-filter", True), error
    assert (effects(program), redrives(program)) == ([], [])


def test_an_item_that_waits_for_review(program: Program) -> None:
    """What was lost last is left alone until --force asks for it."""
    failed_run(program)
    lose(program, 1)
    fix(program, 0, 1, 2, 3)
    assert program.json("dlq", "retry", "1")["selected"] == 3
    assert kept(program) == [("work[1]", 1)]
    assert program.call("dlq", "retry", "1", code=0).stdout == "run 1: no dead letter is selected\n"
    assert program.json("dlq", "retry", "1", "--force")["succeeded"] == 1
    assert kept(program) == []


def lose(program: Program, index: int) -> None:
    """Let the last failure of a letter be a lost attempt."""
    store = open_store(program.env["RESILE_DB"])
    found = store.letter(1, store.letter_counts(1)[0].name, index)
    assert found is not None
    history = tuple(msgspec.structs.replace(failure, kind="lost") for failure in found.history)
    item = Item(index, found.value, history)
    letter = DeadLetter(found.name, found.map, found.step, found.job, found.scope, item, "failed", found.last_at)
    lease = take(store, 1)
    writer = store.writer()
    writer.submit(Batch(1, lease.token, [], {}, {}, letters=(KeepLetter(letter),)))
    writer.flush()
    store.release_lease(lease)
    store.close()


def test_several_maps(program: Program) -> None:
    """With dead letters of more than one map the call says which, and then only that one's items run."""
    one = "{map: {input: [0], steps: [{id: s, shell: 'echo %s ${item} >> effects; test -e fixed-0'}]}}"
    program.write(f"resile: 1\nname: two\n{LENIENT}\nsteps:\n  left: {one % 'left'}\n  right: {one % 'right'}\n")
    failed_run(program, (program.folder / "flow.yaml").read_text())
    error = program.json("dlq", "retry", "1", code=2)["error"]
    assert (error["code"], error["hint"]) == ("several-maps", "name one with --step")
    assert error["message"] == "run 1 has dead letters of several maps: left, right"
    error = program.json("dlq", "retry", "1", "--step", "middle", code=2)["error"]
    assert (error["code"], error["hint"]) == ("no-such-map", "its maps are: left, right")
    assert effects(program) == []
    fix(program, 0)
    assert program.json("dlq", "retry", "1", "--step", "right")["dead_letters"] == 1
    assert effects(program) == ["right 0"]
    assert program.json("dlq", "retry", "1")["map"] == "left"
    assert kept(program) == []


def test_the_commands_for_several_maps_are_those_that_are_accepted(program: Program) -> None:
    """`run`, `status` and `dlq list` name each map; once one is left the plain call does."""
    one = "{map: {input: [0], steps: [{id: s, shell: 'test -e fixed-0'}]}}"
    text = f"resile: 1\nname: two\n{LENIENT}\nsteps:\n  left: {one}\n  the right: {one}\n"
    shown = program.call("run", program.write(text), code=0).stdout.splitlines()
    assert shown[-3:] == [
        "  resile dlq list 1                      # 2 dead letters",
        "  resile dlq retry 1 --step left         # run them again",
        "  resile dlq retry 1 --step 'the right'  # run them again",
    ]
    assert shown[-3:] == [line for line in program.call("status", "1", code=0).stdout.splitlines() if " dlq " in line]
    assert program.call("dlq", "list", "1", code=0).stdout.splitlines()[-3:] == [
        "`resile dlq show 1 ITEM` shows one; each map is run again by its own command:",
        "  resile dlq retry 1 --step left",
        "  resile dlq retry 1 --step 'the right'",
    ]
    last = program.call("dlq", "list", "1", "--step", "left", code=0).stdout.splitlines()[-1]
    assert last == "`resile dlq show 1 ITEM` shows one, `resile dlq retry 1 --step left` runs them again"
    fix(program, 0)
    program.call("dlq", "retry", "1", "--step", "the right", code=0)
    last = program.call("dlq", "list", "1", code=0).stdout.splitlines()[-1]
    assert last == "`resile dlq show 1 ITEM` shows one, `resile dlq retry 1` runs them again"
    program.call("dlq", "retry", "1", code=0)


def test_a_run_that_is_driven(program: Program) -> None:
    """Another engine has the run: exit 2, who it is, and nothing runs."""
    failed_run(program)
    store = open_store(program.env["RESILE_DB"])
    lease = take(store, 1)
    error = program.json("dlq", "retry", "1", code=2)["error"]
    assert error["code"] == "lease-held"
    assert error["message"].startswith(f"run 1 is driven by process {os.getpid()} on ")
    store.release_lease(lease)
    store.close()
    assert (effects(program), redrives(program)) == ([], [])
    error = program.json("dlq", "retry", "7", code=2)["error"]
    assert error["code"] == "no-such-run"


def test_an_interrupted_redrive_goes_on(program: Program) -> None:
    """Ctrl-C lets the running item finish and exits 130; called again it runs the rest, each item once."""
    failed_run(program, GATED)
    (program.folder / "open").touch()
    at, gate = program.gate("at"), program.gate("gate")
    with program.start("dlq", "retry", "1") as redrive:
        at.wait()
        redrive.send(signal.SIGINT)
        redrive.until("err", "stopping")
        gate.open()
        assert redrive.end() == 130
    assert redrive.text["out"] == "run 1: 1 of 3 items succeeded, 2 left; `resile dlq retry 1` goes on\n"
    assert (kept(program), effects(program)) == ([("work[1]", 1), ("work[2]", 1)], ["0"])
    error = program.json("dlq", "retry", "1", "--filter", "true", code=2)["error"]
    assert (error["code"], error["hint"]) == (
        "redrive-unfinished",
        "`resile dlq retry 1` without a selection finishes it",
    )
    error = program.json("dlq", "retry", "1", "--dry-run", "--filter", "true", code=2)["error"]
    assert error["code"] == "redrive-unfinished"
    assert program.json("dlq", "retry", "1", "--dry-run")["items"] == ["work[1]", "work[2]"]
    gate.open(2)
    document = program.json("dlq", "retry", "1")
    assert (document["selected"], document["succeeded"]) == (3, 3), "it is the same redrive, with its own selection"
    assert (kept(program), effects(program)) == ([], ["0", "1", "2"])
    assert program.json("status", "1")["status"] == "completed"


def test_a_killed_redrive_goes_on(program: Program) -> None:
    """After kill -9 the running item is adopted, and none runs twice."""
    failed_run(program, GATED)
    (program.folder / "open").touch()
    at, gate = program.gate("at"), program.gate("gate")
    with program.start("dlq", "retry", "1") as redrive:
        at.wait()
        redrive.send(signal.SIGKILL)
        redrive.end()
    assert [name for name, _ in kept(program)] == ["work[0]", "work[1]", "work[2]"]
    gate.open(3)
    document = program.json("dlq", "retry", "1")
    assert (document["selected"], document["succeeded"]) == (3, 3), "the adopted item counts too"
    assert (kept(program), effects(program)) == ([], ["0", "1", "2"])


def test_resume_finishes_a_redrive_too(program: Program) -> None:
    """`resile resume` goes on with whatever the run was about, and gives the run's own exit code."""
    failed_run(program, GATED)
    (program.folder / "open").touch()
    at, gate = program.gate("at"), program.gate("gate")
    with program.start("dlq", "retry", "1") as redrive:
        at.wait()
        redrive.send(signal.SIGKILL)
        redrive.end()
    gate.open(3)
    program.call("resume", "1", code=0)
    assert (kept(program), effects(program)) == ([], ["0", "1", "2"])


def test_of_two_redrives_one_is_refused(program: Program) -> None:
    """The second is told who drives the run, and no item runs twice."""
    failed_run(program, GATED)
    (program.folder / "open").touch()
    at, gate = program.gate("at"), program.gate("gate")
    with program.start("dlq", "retry", "1") as redrive:
        at.wait()
        error = program.json("dlq", "retry", "1", code=2)["error"]
        assert error["message"].startswith(f"run 1 is driven by process {redrive.process.pid} on ")
        gate.open(3)
        assert redrive.end() == 0
    assert (kept(program), effects(program)) == ([], ["0", "1", "2"])


def test_a_run_that_has_not_ended(program: Program) -> None:
    """Its dead letters wait until it has; first it is resumed or canceled."""
    flow = FLOW.replace("echo after >> effects", "echo here > at; read go < gate")
    program.write(flow)
    at, gate = program.gate("at"), program.gate("gate")
    with program.start("run", "flow.yaml") as run:
        at.wait()
        run.send(signal.SIGKILL)
        run.end()
    error = program.json("dlq", "retry", "1", code=2)["error"]
    assert (error["code"], error["hint"]) == (
        "run-unfinished",
        "`resile resume 1` or `resile cancel 1` first",
    )
    gate.open()
    program.call("resume", "1", code=0)
    program.call("dlq", "retry", "1", code=1)


def test_debug_tells_the_expressions_of_a_redrive(program: Program) -> None:
    """`dlq retry --debug` prints every expression that it evaluates, as `run --debug` does."""
    text = FLOW.replace("{id: look, shell:", "{id: look, when: '${item.n} > 0', shell:")
    failed_run(program, text)
    told = program.call("dlq", "retry", "1", "--debug", code=1).stderr
    assert told.count("debug: when of look: True") == 3
    assert told.count("debug: when of look: False") == 1
