"""What people see of a map: progress while it runs, reports of failed items, and what came of it."""

from __future__ import annotations

import re

import pytest

from resile.cli.display.lines import Lines
from resile.cli.display.maps import Pace, Progress
from resile.cli.display.watch import Tally
from resile.core.fanout.progress import Fan
from resile.model.nested import in_item
from tests.cli.program import Program
from tests.core.items import Items, fan
from tests.core.world import flow

# Of 300 items every fiftieth fails.
LARGE = """\
resile: 1
name: nightly
steps:
  process:
    map:
      input: seq 1 300
      error_policy: {continue_on_failure: true}
      max_parallel: 2
      steps:
      - id: work
        shell: 'test $(( ${item} % 50 )) -ne 0 || { echo "connection refused by ${item}" >&2; exit 7; }'
  report: {shell: echo done, needs: [process]}
"""
SMALL = """\
resile: 1
name: small
steps:
  process:
    map:
      input: [a, b, c, d]
      max_parallel: 1
      error_policy: {continue_on_failure: true, error_collection: KIND}
      steps:
      - {id: work, shell: 'echo "${item} is bad" >&2; test ${item} = a'}
"""
FAILING = """\
resile: 1
name: failing
steps:
  process:
    map:
      input: seq 1 60
      error_policy: {continue_on_failure: true}
      max_parallel: 1
      steps:
      - {id: work, shell: exit 3}
"""
CLOCK = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)


def said(program: Program, text: str, code: int, *words: str) -> list[str]:
    """The lines that a run says on stderr, without the time of day."""
    done = program.call("run", program.write(text), *words, code=code)
    return CLOCK.sub("", done.stderr).splitlines()


def test_a_large_map_is_told_by_its_items_in_all(program: Program) -> None:
    """Nothing of the steps inside items, but the dead letters, the report and the last count, each in its place."""
    lines = said(program, LARGE, 0)
    numbers = range(50, 301, 50)
    kept = [
        f"process[{n - 1}] is kept as a dead letter, failed: exit code 7: connection refused by {n}" for n in numbers
    ]
    assert sorted(lines[3:9]) == sorted(kept)
    assert lines[:3] == ["run 1: nightly, 2 steps", "process started", "process: 300 items"]
    assert re.fullmatch(r"process: 300 of 300 items done, 6 failed, \d+/s", lines[9])
    assert lines[10] == "process: 6 items failed"
    assert sorted(lines[11:17]) == sorted(
        f"  process[{n - 1}]: exit code 7: connection refused by {n}" for n in numbers
    )
    assert re.fullmatch(r"process completed in .*", lines[17])
    assert [line.split(" in ")[0] for line in lines[18:]] == ["report started", "report completed"]


def test_with_debug_every_event_is_a_line(program: Program) -> None:
    """`--debug` hides no item."""
    lines = said(program, LARGE, 0, "--debug")
    assert sum(" step_started process[" in line for line in lines) == 300
    assert sum(" map_progress process " in line for line in lines) == 20


def test_a_small_map_is_told_item_by_item(program: Program) -> None:
    """Up to fifty items each step of each is a line, beside what the item came to."""
    lines = said(program, SMALL.replace("KIND", "immediate"), 0)
    assert lines[2:12] == [
        "process: 4 items",
        "process[0]/work started",
        "process[0]/work completed",
        "process[1]/work started",
        "process[1]/work attempt 1 failed: exit code 1: b is bad",
        "process[1]/work failed after 1 attempt",
        "process[1] is kept as a dead letter, failed: exit code 1: b is bad",
        "process: 1 item failed",
        "  process[1]: exit code 1: b is bad",
        "process[2]/work started",
    ]


def reports(lines: list[str]) -> list[list[str]]:
    """The items of each report."""
    found: list[list[str]] = []
    for line in lines:
        if re.fullmatch(r"process: \d items? failed", line):
            found.append([])
        elif line.startswith("  process["):
            found[-1].append(line.strip().partition(":")[0])
    return found


def test_errors_are_reported_on_stderr_as_the_policy_says(program: Program) -> None:
    """At the end, at once, or in batches; the last partial batch is not forgotten; with --json too."""
    cases = {
        "aggregate": [["process[1]", "process[2]", "process[3]"]],
        "immediate": [["process[1]"], ["process[2]"], ["process[3]"]],
        "{batched: {size: 2}}": [["process[1]", "process[2]"], ["process[3]"]],
    }
    for kind, expected in cases.items():
        assert reports(said(program, SMALL.replace("KIND", kind), 0)) == expected
        assert reports(said(program, SMALL.replace("KIND", kind), 0, "--json")) == expected


def test_a_long_report_is_cut(program: Program) -> None:
    """Fifty items of a report are named, ten dead letters are told, and the rest is counted."""
    lines = said(program, FAILING, 0)
    assert reports([line.replace("60 items failed", "6 items failed") for line in lines]) == [
        [f"process[{n}]" for n in range(50)]
    ]
    assert "  and 10 more" in lines
    assert sum("is kept as a dead letter" in line for line in lines) == 10
    assert lines.count("process: more dead letters are only counted") == 1


STEPS_OF_LARGE = [["process", "completed"], ["report", "completed"]]


def test_the_summary_of_a_map(program: Program) -> None:
    """The counts, what failures had in common with what to do, and the commands for the dead letters."""
    done = program.call("run", program.write(LARGE), code=0)
    lines = done.stdout.splitlines()
    assert lines[1:5] == [
        "2 steps: 2 completed",
        "process: 294 of 300 items succeeded, 6 failed, 0 skipped, 0 held; 6 dead letters",
        lines[3],
        "    network: Check network connectivity and retry settings",
    ]
    assert re.fullmatch(r"  6 x exit code 7: connection refused by \d+", lines[3])
    assert lines[-3:] == [
        "Next",
        "  resile dlq list 1   # 6 dead letters",
        "  resile dlq retry 1  # run them again",
    ]
    status = program.call("status", "1", code=0).stdout.splitlines()
    assert status[:2] == lines[:2]
    assert [line.split()[:2] for line in status[3:6]] == [["STEP", "STATUS"], *STEPS_OF_LARGE]
    assert status[7:10] == lines[2:5]
    assert status[10].split()[:2] == ["STEP", "STATUS"]
    assert [line.split()[1:2] for line in status[11:17]] == [["failed"]] * 6
    assert status[17] == "and 294 more steps inside items: 294 completed; --json lists all"
    assert status[18:] == lines[5:]


def test_no_more_than_ten_failed_items_are_listed(program: Program) -> None:
    """Of sixty failed items the answers, the failures and the table show ten each, and count the others."""
    program.call("run", program.write(FAILING.replace("exit 3", "exit 3, retry: 1")), code=0)
    lines = program.call("status", "1", code=0).stdout.splitlines()
    routes, failed, table = lines.index("What was done"), lines.index("Failed"), lines.index("Next")
    assert lines[failed - 2] == "  and 110 more; `resile explain 1` shows them"
    assert failed - 2 - routes - 1 == 10
    assert lines[table - 2] == "  and 50 more; `resile explain 1` shows them"
    assert (table - 2 - failed - 1) // 2 == 10
    assert sum(line.startswith("process[") for line in lines) == 10
    assert lines[routes - 2] == "and 50 more steps inside items: 50 failed; --json lists all"


def test_items_that_the_document_leaves_out_are_not_promised(program: Program) -> None:
    """The document of a very large map has only the items that need a look, so `status` names it for none of them."""
    program.write("resile: 1\nsteps: {m: {map: {input: seq 1 1001, steps: [{id: w, noop: true}]}}}\n")
    document = program.json("run", "flow.yaml")
    assert (len(document["jobs"]), document["jobs_omitted"]) == (2, 1001)
    lines = program.call("status", "1", code=0).stdout.splitlines()
    assert lines[-1] == "no step inside items needs a look (1001 completed)"


def test_failures_that_no_rule_answered_are_only_among_the_failed(program: Program) -> None:
    """Nothing was done about these items, so no heading says so."""
    lines = program.call("run", program.write(FAILING), code=0).stdout.splitlines()
    assert "What was done" not in lines
    assert lines[lines.index("Next") - 2] == "  and 50 more; `resile explain 1` shows them"


def test_a_step_of_the_workflow_comes_before_items(program: Program) -> None:
    """What decided on the run is told first, whatever failed inside items before it."""
    program.write(FAILING + "  after: {shell: echo broken >&2; exit 4, needs: [process]}\n")
    lines = program.call("run", "flow.yaml", code=1).stdout.splitlines()
    place = lines.index("Failed")
    assert lines[place + 1 : place + 3] == ["  after: exit code 4, 1 attempt", "    exit code 4: broken"]


def test_metrics_show_the_maps(program: Program) -> None:
    """`metrics` has the counts, the rate, the kinds of failures and what they suggest."""
    program.call("run", program.write(LARGE), code=0)
    lines = program.call("metrics", "1", code=0).stdout.splitlines()
    assert lines[3:] == [
        "process: 294 of 300 items succeeded, 6 failed, 0 skipped, 0 held; 6 dead letters",
        "  failure rate 2.0%: 6 network",
        "  6 x exit code 7: connection refused by 50",
        "    network: Check network connectivity and retry settings",
        "",
        "no rule has fired",
    ]
    document = program.json("metrics", "1")["maps"]["process"]
    assert (document["total_items"], document["successful"], document["failed"]) == (300, 294, 6)


def test_a_redrive_is_told_like_a_map(program: Program) -> None:
    """`dlq retry` of many items shows their number and the last count, not each of them."""
    program.call("run", program.write(FAILING), code=0)
    done = program.call("dlq", "retry", "1", code=1)
    lines = CLOCK.sub("", done.stderr).splitlines()
    assert lines[1] == "60 dead letters tried again"
    assert not any("/work" in line for line in lines)
    assert any(line.startswith("process: 60 of 60 items done, 60 failed") for line in lines)


def test_a_large_map_says_every_five_seconds_how_far_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    """Sixty items of one second each, by a clock that the test moves: a line every five seconds, and the last."""
    world = Items(flow(fan()), total=60)
    lines = Lines(every_event=False)
    world.start()
    lines.begin(1, world.state, Tally(world.state))
    told = 0
    while world.ended is None:
        world.perform()
        lines.show(world.notes[told:])
        told = len(world.notes)
    said = CLOCK.sub("", capfd.readouterr().err).splitlines()
    progress = [line for line in said if line.startswith("map: ") and "done" in line]
    assert progress[:2] == [
        "map: 5 of 60 items done, 1.0/s, 55 s left",
        "map: 10 of 60 items done, 1.0/s, 50 s left",
    ]
    assert progress[-1] == "map: 60 of 60 items done, 1.0/s"
    assert len(progress) == 12


def test_progress_in_words() -> None:
    """Done, failed and held of all, the rate, the time left, and a circuit that is not closed."""
    fan = Fan(100, "x", goal=100)
    progress = Progress()
    assert progress.line(1, "map", fan, 0.0) == "map: 0 of 100 items done"
    fan.done, fan.bad = 40, 3
    assert progress.line(1, "map", fan, 2.0) == "map: 40 of 100 items done, 3 failed, 20/s, 3.0 s left"
    fan.circuit, fan.due, fan.active = "open", 32.0, {7: 1}
    assert progress.line(1, "map", fan, 2.0) == (
        "map: 40 of 100 items done, 3 failed, 59 held, 20/s, circuit open for 30 s"
    )
    fan.circuit = "half_open"
    assert progress.line(1, "map", fan, 2.0).endswith("20/s, circuit half-open")


def test_the_pace_forgets() -> None:
    """A rate is of the last half minute, so a slow start, or a stop, is soon not seen any more."""
    pace = Pace(0.0, 0)
    assert pace.rate(0.0, 0) == 0.0
    assert pace.rate(10.0, 10) == 1.0
    assert [round(pace.rate(10.0 + n, 10 + 5 * n), 2) for n in (10, 20, 30, 40)] == [3.0, 3.67, 5.0, 5.0]
    assert pace.rate(200.0, 210) == 0.0


def test_names_of_item_scopes() -> None:
    """The scope of an item, and all inside it, is told from others by its index."""
    scopes = ("root", "process[3]", "process[3].on_failure", "a/b[0]", "odd[x]", "child")
    assert [scope for scope in scopes if in_item(scope)] == ["process[3]", "process[3].on_failure", "a/b[0]"]
