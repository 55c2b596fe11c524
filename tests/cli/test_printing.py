"""What a person reads of a run: whole lines in a pipe, output of failed steps, counts that add up, inputs, names."""

from __future__ import annotations

import re
import signal

import pytest

from tests.cli.program import Program
from tests.cli.terminal import Terminal

LONG = "this message is longer than any terminal of eighty columns would be able to show on a line of its own"
FAILS = f"""\
resile: 1
name: release
inputs:
  target: {{default: staging}}
  api_token: {{default: abc123}}
  options: {{type: json, default: {{level: 3, db_password: hunter2}}}}
steps:
  build:
    shell: |
      seq 1 12
      seq 21 33 >&2
      echo "{LONG}" >&2
      exit 3
  test: {{needs: [build], shell: "true"}}
  publish: {{needs: [test], shell: "true"}}
"""


def test_a_pipe_gets_whole_lines(program: Program) -> None:
    """Without a terminal no line of `run`, `status` and `explain` is cut, and with one none is wider than it."""
    done = program.call("run", program.write(FAILS), code=1)
    for text in (done.stdout, done.stderr, program.call("status", "1").stdout, program.call("explain", "1").stdout):
        assert f"exit code 3: {LONG}\n" in text
        assert "…" not in text
    for columns in (40, 80):
        for words in (("status", "1"), ("explain", "1"), ("resume", "1")):
            with Terminal(program, *words, columns=columns) as terminal:
                terminal.end()
            assert max(map(len, terminal.text.splitlines())) <= columns


def test_a_failed_step_shows_the_end_of_both_streams(program: Program) -> None:
    """The last ten lines of each stream stand below the failed step, and then the steps that it canceled."""
    lines = program.call("run", program.write(FAILS), code=1).stdout.splitlines()
    place = lines.index("Failed")
    assert lines[place + 1 : place + 27] == [
        "  build: exit code 3, 1 attempt",
        f"    exit code 3: {LONG}",
        "    stdout, last 10 lines",
        *(f"    | {number}" for number in range(3, 13)),
        "    stderr, last 10 lines",
        *(f"    | {number}" for number in range(25, 34)),
        f"    | {LONG}",
        "    canceled because of it: test, publish",
        "",
    ]
    assert lines[place + 27 :] == [
        "Next",
        "  resile explain 1              # which rules answered, and why",
        "  resile logs 1 build           # what it printed",
        "  resile rerun 1 --failed-only  # run again what did not complete",
    ]
    status = program.call("status", "1").stdout.splitlines()
    assert status[status.index("Failed") :] == lines[place:]


def test_the_log_of_a_failed_map_or_child_is_that_of_a_step_inside(program: Program) -> None:
    """Neither prints anything itself: the suggested command shows the output of the first step that failed in it."""
    broken = "{id: work, shell: echo broken; exit 3}"
    program.write(f"resile: 1\nsteps: [{broken}]\n", "inner.yaml")
    for number, (name, keys) in enumerate(
        [
            ("'each[0]/work'", f"map: {{input: [1, 2], steps: [{broken}]}}"),
            ("each/work", "workflow: inner.yaml"),
            ("'each[0]/deep/work'", "map: {input: [1], steps: [{id: deep, workflow: inner.yaml}]}"),
        ],
        1,
    ):
        program.write(f"resile: 1\nsteps: {{each: {{{keys}}}}}\n")
        lines = program.call("run", "flow.yaml", code=1).stdout.splitlines()
        (shown,) = [line.partition("#")[0].strip() for line in lines if " logs " in line]
        assert shown == f"resile logs {number} {name}"
        assert "broken\n" in program.call("logs", str(number), name.strip("'"), code=0).stdout


def test_a_narrow_terminal_keeps_commands_whole(program: Program) -> None:
    """Where command and remark do not fit on one line, the remark stands below the command."""
    program.call("run", program.write(FAILS), code=1)
    with Terminal(program, "status", "1", columns=40) as terminal:
        assert terminal.end() == 0
    lines = terminal.text.splitlines()
    assert lines[lines.index("Next") + 1 :] == [
        "  resile explain 1",
        "    # which rules answered, and why",
        "  resile logs 1 build",
        "    # what it printed",
        "  resile rerun 1 --failed-only",
        "    # run again what did not complete",
    ]


def test_inputs_are_shown_and_secrets_are_not(program: Program) -> None:
    """`status`, `explain` and the JSON have the inputs; values with names of secrets are hidden at any depth."""
    document = program.json("run", program.write(FAILS), "--input", "target=live", code=1)
    inputs = {"target": "live", "api_token": "***", "options": {"level": 3, "db_password": "***"}}
    assert document["inputs"] == inputs
    assert program.json("status", "1")["inputs"] == inputs
    assert program.json("explain", "1")["inputs"] == inputs
    shown = ["input target: live", "input api_token: ***", 'input options: {"level":3,"db_password":"***"}']
    assert program.call("status", "1").stdout.splitlines()[2:5] == shown
    assert program.call("explain", "1").stdout.splitlines()[1:4] == shown


def test_a_long_name_gives_way_in_the_summary(program: Program) -> None:
    """The first line of the summary fits into the terminal, whatever the workflow is called; a pipe gets all of it."""
    program.write(f"resile: 1\nname: {'long ' * 30}\nsteps: {{a: {{shell: 'true'}}}}\n")
    program.call("run", "flow.yaml", code=0)
    with Terminal(program, "status", "1") as terminal:
        assert terminal.end() == 0
    first = terminal.text.splitlines()[0]
    assert len(first) == 80
    assert first.startswith("run 1 long long ")
    assert "… completed after 0." in first
    assert "long " * 30 in program.call("status", "1", code=0).stdout


NESTED = """\
resile: 1
name: nested
max_parallel: 1
steps:
  first: {shell: "true"}
  mended: {shell: test -e fixed, on_failure: {shell: touch fixed, max_attempts: 2}}
  each:
    needs: [mended]
    map:
      input: [a, b, c]
      error_policy: {continue_on_failure: true}
      steps:
      - {id: work, shell: "echo ${item}; test ${item} != b"}
  last: {needs: [each], shell: "true"}
"""


def test_status_lists_own_steps_first(program: Program) -> None:
    """The steps of the workflow come first, then those of handlers; items are counted, and only failed ones listed."""
    program.call("run", program.write(NESTED), code=0)
    lines = program.call("status", "1").stdout.splitlines()
    assert lines[1] == "4 steps: 4 completed (1 recovered)"
    assert [line.split()[:2] for line in lines[3:9]] == [
        ["STEP", "STATUS"],
        ["first", "completed"],
        ["mended", "recovered"],
        ["each", "completed"],
        ["last", "completed"],
        ["mended/on_failure-1", "completed"],
    ]
    assert lines[9:11] == ["", "each: 2 of 3 items succeeded, 1 failed, 0 skipped, 0 held; 1 dead letter"]
    place = next(number for number, line in enumerate(lines) if line.startswith("each[1]/work"))
    assert lines[place].split()[:4] == ["each[1]/work", "failed", "1", "1"]
    assert lines[place + 1] == "and 2 more steps inside items: 2 completed; --json lists all"


def test_a_step_has_one_name_everywhere(program: Program) -> None:
    """Progress, `status`, `logs`, `events` and `explain` write the same name, and take it back."""
    done = program.call("run", program.write(NESTED), code=0)
    for name in ("mended/on_failure-1", "each[1]/work"):
        assert f" {name} started\n" in done.stderr
        assert re.search(rf"^{re.escape(name)} ", program.call("status", "1").stdout, re.MULTILINE)
        assert f" {name} attempt 1" in program.call("events", "list", "1", code=0).stdout
        assert f"{name} (" in program.call("explain", "1", name, code=0).stdout
        logs = program.call("logs", "1", name, code=0).stdout
        assert logs == ("" if "on_failure" in name else f"==> {name}, attempt 1, stdout <==\nb\n")


HELD = """\
resile: 1
name: held
max_parallel: 3
steps:
  done: {shell: "true"}
  retried: {needs: [done], shell: "false", retry: {max: 3, backoff: 1h}}
  one: {needs: [done], shell: echo up > up; read line < gate}
  two: {needs: [done], shell: echo up > up; read line < gate}
  bad: {needs: [done], shell: exit 4, fail_workflow: false}
  behind: {needs: [one, two], shell: "true"}
"""


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_counts_of_the_live_view_add_up(program: Program, columns: int) -> None:
    """Steps that are done, run, recover and wait are as many as there are, at any width."""
    program.gate("gate")
    up = program.gate("up")
    counts = "2 of 6 done (1 tolerated), 2 running, 1 recovering, 1 waiting"
    with Terminal(program, "run", program.write(HELD), columns=columns) as terminal:
        up.wait()
        terminal.until("↻ retried")
        terminal.until(counts if columns > 80 else counts[:25])
        terminal.press_ctrl_c()
        terminal.until("stopping")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 130
        assert max(len(line) for line in terminal.text.splitlines()) <= columns
    first = program.call("status", "1").stdout.splitlines()[1]
    numbers = [int(number) for number in re.findall(r"(\d+) [a-z]+(?:,|$)", first.partition(": ")[2])]
    assert (first.partition(":")[0], sum(numbers)) == ("6 steps", 6)


def test_a_long_message_of_a_parked_step_leaves_room_for_the_attempt(program: Program) -> None:
    """In the table of attempts the message is cut in a terminal, and the times and sizes after it are not."""
    flow = f"resile: 1\nname: p\nsteps:\n  s:\n    park: true\n    shell: echo '{LONG}' >&2; exit 3\n"
    program.call("run", program.write(flow), code=4)
    with Terminal(program, "parked", "1") as terminal:
        assert terminal.end() == 0
        shown = terminal.text.splitlines()
    assert max(map(len, shown)) <= 80
    [attempt] = [line for line in shown if line.startswith("  attempt 1  ")]
    assert re.search(r"…  \d\d:\d\d:\d\d  \d+\.\d s  \d+.* [KM]iB$", attempt), attempt


def test_what_runs_after_a_success_is_no_repair(program: Program) -> None:
    """The lines name `on_success` at both ends of it, and a repair is called a repair."""
    text = (
        "resile: 1\nname: x\nsteps:\n"
        "  a: {shell: 'true', on_success: {shell: 'true'}}\n"
        "  b: {shell: test -e mended, on_failure: {shell: touch mended, max_attempts: 2}, needs: [a]}\n"
    )
    lines = [line[9:] for line in program.call("run", program.write(text), code=0).stderr.splitlines()]
    ends = [line.partition(":")[0] for line in lines if " done" in line or " on_success started" in line]
    assert ends == ["a on_success started", "a on_success done", "b repair done"]


def test_a_notice_is_told_once(program: Program) -> None:
    """`check` prints one with its first line, and the places of the others; `--json` has each."""
    steps = "".join(f"- {{id: s{number}, shell: x, on_failure: {{shell: y}}}}\n" for number in range(11))
    program.write(f"resile: 1\nname: x\nsteps:\n{steps}")
    said = program.call("check", "flow.yaml", code=0).stdout
    assert said.count("since 0.2") == 1
    assert "  also at: 5:22, 6:22, 7:22, 8:22, 9:22, 10:22, 11:22, 12:22 and 2 more\n" in said
    assert program.call("check", "flow.yaml", "--json", code=0).stdout.count('"since-0.2"') == 11
