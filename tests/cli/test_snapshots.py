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
HUGE = "resile: 1\nname: migration\nmax_parallel: 1\nsteps:\n{steps}  hold: {{shell: 'read go < gate'}}\n"
BROKEN = "{shell: 'echo the table is locked >&2; exit 3'}"
HUGE_STEPS = 5_000
WIDTHS = (40, 80, 200)
FLOWS = {"small": (SMALL, 1), "many": (MANY, 1), "fine": (FINE, 0)}
# Times differ from run to run; a mask replaces them.
MASKS = (
    (re.compile(r"\d\d:\d\d:\d\d"), "00:00:00"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "2000-01-01"),
    (re.compile(r"(\d+ min )?\b\d+(\.\d+)? s\b"), "0.0 s"),
    # A size that a narrow terminal breaks, and may cut.
    (re.compile(r"(?<=0\.0 s  )[\d.]+\n[\d.]* [KMG](?:…|iB)"), "0 M…"),
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
