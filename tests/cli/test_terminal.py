"""The live view, seen through a pseudo terminal of 80 columns."""

from __future__ import annotations

import signal

from tests.cli.program import Program
from tests.cli.terminal import Terminal

HELD = """\
resile: 1
name: held
steps:
  quick: {shell: "true"}
  hold: {shell: echo up > up; read line < gate}
  a-step-with-a-name-that-is-far-too-long-for-any-terminal-of-eighty-columns-to-show: {shell: "true", needs: [hold]}
  bad: {shell: echo broken >&2; exit 3, needs: [hold]}
"""


def test_the_live_view_shows_steps_and_ends_in_the_summary(program: Program) -> None:
    """A small run shows each step while it goes, and then the summary, never wider than the terminal."""
    gate, up = program.gate("gate"), program.gate("up")
    with Terminal(program, "run", program.write(HELD)) as terminal:
        up.wait()
        terminal.until("▶ hold")
        terminal.until("✔ quick")
        terminal.until("· bad")
        gate.open()
        assert terminal.end() == 1
        shown = terminal.text
        assert "✘ bad" in shown
        last = shown[shown.rindex("run 1 held failed after") :].splitlines()
        assert last[1] == "4 steps: 3 completed, 1 failed"
        assert "  bad: exit code 3, 1 attempt" in last
        assert last[-1] == "  resile rerun 1 --failed-only  # run again what did not complete"
        assert max(len(line) for line in shown.splitlines()) <= 80
        assert terminal.raw.rstrip().endswith("complete")
        assert terminal.raw.count("\x1b[?25l") == terminal.raw.count("\x1b[?25h")


def test_a_large_run_shows_a_bar(program: Program) -> None:
    """A run of many steps shows counts, what runs and what failed last, and takes the view away at the end."""
    steps = "".join(f'  s{number}: {{shell: "true"}}\n' for number in range(60))
    program.write(
        f"resile: 1\nname: many\nsteps:\n{steps}  bad: {{shell: exit 4}}\n"
        "  hold: {shell: echo up > up; read line < gate}\n"
    )
    gate, up = program.gate("gate"), program.gate("up")
    with Terminal(program, "run", "flow.yaml", lines=20) as terminal:
        up.wait()
        terminal.until("61 of 62 done (1 failed), 1 running")
        terminal.until("▶ hold")
        terminal.until("✘ bad: ")
        assert "━━━" in terminal.text
        gate.open()
        assert terminal.end() == 1
        assert "62 steps: 61 completed, 1 failed" in terminal.text
        assert max(len(line) for line in terminal.text.splitlines()) <= 80


def test_ctrl_c_in_the_live_view(program: Program) -> None:
    """Ctrl-C shows below the picture what is waited for, a second signal what is killed; the hint to resume stays."""
    program.gate("gate")
    up = program.gate("up")
    with Terminal(program, "run", program.write(HELD)) as terminal:
        up.wait()
        terminal.until("▶ hold")
        terminal.press_ctrl_c()
        terminal.until("stopping: waiting for 1 running step; press Ctrl-C again to kill it")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.until("killing 1 running step")
        assert terminal.end() == 130
        assert "  resile resume 1  # go on" in terminal.text


def test_a_short_run_loads_no_drawing_library(program: Program) -> None:
    """A run that is over in a blink prints only its summary."""
    program.write('resile: 1\nname: one\nsteps:\n  only: {shell: "true"}\n')
    program.env["PYTHONPROFILEIMPORTTIME"] = "1"
    with Terminal(program, "run", "flow.yaml") as terminal:
        assert terminal.end() == 0
        imported = {line.rpartition("|")[2].strip() for line in terminal.text.splitlines() if "import time:" in line}
        assert "msgspec" in imported
        assert not any(name.split(".")[0] == "rich" for name in imported)


def test_no_color_and_dumb_terminals(program: Program) -> None:
    """NO_COLOR keeps colors away from a terminal, and a dumb one gets plain lines."""
    program.write("resile: 1\nname: one\nsteps:\n  only: {shell: exit 1}\n")
    with Terminal(program, "run", "flow.yaml") as terminal:
        assert terminal.end() == 1
        assert "\x1b[31m" in terminal.raw
    program.env["NO_COLOR"] = "1"
    with Terminal(program, "status", "1") as terminal:
        assert terminal.end() == 0
        assert "\x1b[" not in terminal.raw
    program.env["TERM"] = "dumb"
    with Terminal(program, "run", "flow.yaml") as terminal:
        assert terminal.end() == 1
        assert "only started" in terminal.text
        assert "\x1b[" not in terminal.raw


MAPPED = """\
resile: 1
name: mapped
steps:
  process:
    map:
      input: seq 1 80
      max_parallel: 2
      error_policy: {continue_on_failure: true, error_collection: immediate}
      steps:
      - id: work
        shell: |
          test ${item} -ne 3 || exit 5
          test ${item} -lt 70 || { echo up > up; read line < gate; }
  after: {shell: "true", needs: [process]}
"""


def test_the_live_view_shows_maps(program: Program) -> None:
    """A map has a line with its counts, running items stand below, and its reports stay above the picture."""
    gate, up = program.gate("gate"), program.gate("up")
    with Terminal(program, "run", program.write(MAPPED)) as terminal:
        up.wait()
        terminal.until("process: 69 of 80 items done, 1 failed")
        terminal.until("▶ process[69]/work")
        terminal.until("0 of 2 done, 1 running, 1 waiting")
        assert "process: 1 item failed\n  process[2]: exit code 5" in terminal.text
        gate.open(11)
        assert terminal.end() == 0
        assert "process: 79 of 80 items succeeded, 1 failed, 0 skipped, 0 held; 1 dead letter" in terminal.text
        assert max(len(line) for line in terminal.text.splitlines()) <= 80


def test_lists_fit_a_narrow_terminal(program: Program) -> None:
    """Lists of runs, steps, dead letters and rules leave columns out where there are 40; nothing is wider."""
    program.write("""
resile: 1
name: a-workflow-with-a-long-name
steps:
- id: each
  map: {input: [1, 2, 3], steps: [{id: work, shell: 'exit ${item}', retry: {max: 1, backoff: 1ms}}]}
""")
    program.call("run", "flow.yaml", "--label", "team=a-team-with-a-long-name", code=1)
    for words in (
        ("ls",),
        ("status", "1"),
        ("graph", "1"),
        ("dlq", "list", "1"),
        ("dlq", "stats", "1"),
        ("metrics", "1"),
    ):
        with Terminal(program, *words, columns=40) as terminal:
            assert terminal.end() == 0
            wide = [line for line in terminal.text.splitlines() if len(line) > 40]
            assert (words, wide) == (words, [])
