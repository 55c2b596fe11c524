"""What a person sees of a run, as texts in snapshots/: failing and not, with few steps and 5,000, at three widths.

`RESILE_SNAPSHOTS=write` writes the files anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.cli.screen import Screen
from tests.cli.terminal import Terminal

FOLDER = Path(__file__).parent / "snapshots"
SMALL = """\
resile: 1
name: release
max_parallel: 1
inputs: {target: staging}
steps:
- id: build
  shell: test -e built || { touch built; echo 'the cache is cold' >&2; exit 75; }
  retry: {max: 2, backoff: 1ms}
- id: deploy
  shell: echo connecting; echo 'could not reach the server of ${inputs.target}, which is a long story' >&2; exit 3
- id: announce
  shell: echo done
"""
MANY = "resile: 1\nname: nightly\nmax_parallel: 1\nsteps:\n" + "".join(
    f"- {{id: step-{number:02}, shell: 'exit {3 if number == 50 else 0}'}}\n" for number in range(60)
)
FINE = (
    "resile: 1\nname: fine\nsteps: [{id: one, shell: 'true'}, {id: two, shell: 'true'}, {id: three, shell: 'true'}]\n"
)
FAILURES = """\
resile: 1
name: nightly-import-of-customers
max_parallel: 1
inputs: {day: "2026-01-31"}
steps:
  fetch-the-customer-records:
    shell: echo 'the service is down' >&2; exit 75
    retry: {max: 1, backoff: 1ms}
    park: true
  convert:
    map:
      input: [alpha-customer-with-a-long-name, beta]
      steps: [{id: check-the-row, shell: "test ${item} = beta || { echo 'no date of birth in ${item}' >&2; exit 4; }"}]
  question: {ask: Which version of the customer schema shall be used for this import?}
  report: {needs: [convert], shell: echo x}
"""
HUGE = "resile: 1\nname: migration\nmax_parallel: 1\nsteps:\n{steps}  hold: {{shell: 'read go < gate'}}\n"
BROKEN = "{shell: 'echo the table is locked >&2; exit 3'}"
HUGE_STEPS = 5_000
WIDTHS = (40, 80, 200)
FLOWS = {"small": (SMALL, 1), "many": (MANY, 1), "fine": (FINE, 0)}
# Times differ from run to run; a mask replaces them.
MASKS = (
    (re.compile(r"\d\d:\d\d:\d\d"), "00:00:00"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "2000-01-01"),
    (re.compile(r"(?<=2000-01-01 )\d\d:00(?=  )"), "00:00"),
    (re.compile(r"(\d+ min )?\b\d+(\.\d+)? s\b"), "0.0 s"),
    (re.compile(r"\b\d+(\.\d+)? (ms|[KMG]i?B)\b"), "0 ms"),
)


def masked(text: str) -> str:
    """A text without the times in it."""
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return text


def shown(program: Program, columns: int, code: int, *words: str) -> str:
    """What is on the screen after a command has ended."""
    with Terminal(program, *words, columns=columns, lines=50) as terminal:
        assert terminal.end() == code
        screen = Screen(columns)
        screen.feed(terminal.raw)
    # On a busy machine even a short run has a live view, which stays above the summary.
    return re.sub(r"\Arun 1 .*(?=^run 1 .* after )", "", masked(screen.text), flags=re.DOTALL | re.MULTILINE)


def recorded(name: str, found: str) -> str:
    """The text of a file; what was found becomes the file if that is wanted."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("RESILE_SNAPSHOTS") == "write":
        path.write_text(found)
    return path.read_text()


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", FLOWS)
def test_what_a_person_sees(program: Program, name: str, columns: int) -> None:
    """The run, its status and its explanation look as in the file, and no line is wider than the terminal."""
    text, code = FLOWS[name]
    program.write(text)
    commands = (("run", "flow.yaml"), ("status", "1"), ("explain", "1"))
    found = "".join(
        f"$ resile {' '.join(words)}\n{shown(program, columns, code if words[0] == 'run' else 0, *words)}\n"
        for words in commands
    )
    assert found == recorded(f"{name}-{columns}", found)


@pytest.mark.parametrize("columns", WIDTHS)
def test_what_a_person_sees_of_failures(program: Program, columns: int) -> None:
    """Parked failures, dead letters, statistics, the graph, the plan, findings and errors fit the terminal."""
    program.write(FAILURES)
    program.call("run", "flow.yaml", code=4)
    program.write(FAILURES.replace("retry:", "retrys:"), "wrong.yaml")
    commands = {
        "ls": 0, "parked 1": 0, "dlq list 1": 0, "dlq show 1 convert[0]": 0, "dlq stats 1": 0, "metrics 1": 0,
        "graph 1": 0, "run flow.yaml --dry-run": 0, "check wrong.yaml": 2, "run missing.yaml": 2,
    }  # fmt: skip
    found = "".join(
        f"$ resile {words}\n{shown(program, columns, code, *words.split())}\n" for words, code in commands.items()
    )
    # The path of a log, which a narrow terminal breaks.
    found = re.sub(r"     /[^|]*?\.e\n", "     PATH\n", found)
    assert found == recorded(f"failures-{columns}", found)


def write_huge(program: Program, *, broken: str) -> None:
    """A workflow of 5,000 steps; every 50th is `broken`, and the last one waits at the gate."""
    steps = "".join(
        f"  step-{number:04}: {broken if number % 50 == 7 else '{shell: exit 0}'}\n" for number in range(HUGE_STEPS - 1)
    )
    program.write(HUGE.format(steps=steps))


def picture(terminal: Terminal, columns: int) -> str:
    """The live view at this width, once every step but the last is over."""
    terminal.resize(columns)
    begin = len(terminal.raw)
    for _ in range(3):
        # Whole pictures, each drawn over the one before.
        before = len(terminal.raw)
        while "▶ hold" not in terminal.raw[before:]:
            terminal.read_more()
    screen = Screen(columns)
    screen.feed(terminal.raw[terminal.raw.index("\r\x1b[2K", begin) :])
    return masked(screen.text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "broken", "code"),
    [
        ("huge-failing", BROKEN, 1),
        ("huge-parked", BROKEN.replace("}", ", park: true}"), 4),
        ("huge-fine", "{shell: exit 0}", 0),
    ],
)
def test_what_a_person_sees_of_many_steps(program: Program, name: str, broken: str, code: int) -> None:
    """The live view, the summary, `status`, `explain` and `parked` of 5,000 steps are short and say what they omit."""
    gate = program.gate("gate")
    write_huge(program, broken=broken)
    pictures: dict[int, str] = {}
    with Terminal(program, "run", "flow.yaml", columns=80, lines=50) as terminal:
        terminal.until("▶ hold", seconds=120)
        for columns in WIDTHS:
            pictures[columns] = picture(terminal, columns)
        gate.open()
        assert terminal.end() == code
    for columns in WIDTHS:
        found = f"$ resile run flow.yaml\n{pictures[columns]}\n"
        for verb in ("resume", "status", "explain", "parked"):
            if verb == "resume" and code == 4:
                continue
            found += f"$ resile {verb} 1\n{shown(program, columns, code if verb == 'resume' else 0, verb, '1')}\n"
        assert found == recorded(f"{name}-{columns}", found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "broken", "code"), [("lines-failing", BROKEN, 1), ("lines-fine", "{shell: exit 0}", 0)]
)
def test_what_a_log_file_gets_of_many_steps(program: Program, name: str, broken: str, code: int) -> None:
    """A pipe gets the first failures and the summary; every few seconds comes a line with the counts."""
    program.gate("gate").open()
    write_huge(program, broken=broken)
    done = program.call("run", "flow.yaml", code=code)
    lines = [line for line in done.stderr.splitlines() if not re.search(r"\d+ of 5000 done", line)]
    found = masked("\n".join(lines) + "\n" + done.stdout)
    assert found == recorded(name, found)
