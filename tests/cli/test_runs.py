"""`ls`, and `status` without a run: which runs are listed, and in which order."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.cli.terminal import Terminal

GOOD = "resile: 1\nname: good\nsteps: [{shell: 'true'}]\n"
BAD = "resile: 1\nname: bad\nsteps: [{shell: 'false'}]\n"
PARKS = "resile: 1\nname: parks\nsteps: [{shell: 'false', park: true}]\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Four runs: one of each outcome, then a good one with another label."""
    made = Program(tmp_path_factory.mktemp("runs"))
    made.call("run", made.write(GOOD, "good.yaml"), "--label", "team=data", "--label", "day=1", code=0)
    made.call("run", made.write(BAD, "bad.yaml"), "--label", "team=data", code=1)
    made.call("run", made.write(PARKS, "parks.yaml"), code=4)
    made.call("run", "good.yaml", "--label=team=web", code=0)
    return made


def listed(program: Program, *words: str) -> list[int]:
    """The numbers of the listed runs."""
    return [run["run"] for run in program.json("ls", *words)["runs"]]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [4, 3, 2, 1]),
        (("--status", "failed"), [2]),
        (("--status", "failed,parked"), [3, 2]),
        (("--workflow", "good"), [4, 1]),
        (("--workflow", "goo"), []),
        (("--label", "team=data"), [2, 1]),
        (("--label", "team=data", "--label", "day=1"), [1]),
        (("--label", "team=data", "--status", "completed"), [1]),
        (("--limit", "2"), [4, 3]),
        (("--workflow", "good", "--limit", "1"), [4]),
        (("--since", "1h"), [4, 3, 2, 1]),
        (("--since", "2999-01-01"), []),
        (("--since", "2026-01-01T00:00:00Z"), [4, 3, 2, 1]),
    ],
)
def test_filters(program: Program, words: tuple[str, ...], numbers: list[int]) -> None:
    """Each condition selects, all of them must hold, and a limit counts what is left, newest first."""
    assert listed(program, *words) == numbers
    assert program.call("ls", *words, "--json").stdout == program.call("status", *words, "--json").stdout


def test_since_is_the_start_of_a_run(tmp_path: Path) -> None:
    """A run that started before the given time is left out, one that started after it is not."""
    mine = Program(tmp_path)
    mine.call("run", mine.write(GOOD), code=0)
    between = datetime.now(UTC)
    deadline = time.monotonic() + 5.0
    while datetime.now(UTC) < between + timedelta(milliseconds=2):
        assert time.monotonic() < deadline
    mine.call("run", mine.write(GOOD), code=0)
    assert listed(mine, "--since", between.isoformat()) == [2]
    assert listed(mine, "--since", (between - timedelta(hours=1)).isoformat()) == [2, 1]


def test_labels_are_part_of_the_documents(program: Program) -> None:
    """The labels of a run stand in the list, in its own document and in the table."""
    labels = {"team": "data", "day": "1"}
    assert program.json("ls", "--limit", "4")["runs"][-1]["labels"] == labels
    assert program.json("status", "1")["labels"] == labels
    assert "team=data day=1" in program.call("ls", code=0).stdout


def test_a_run_as_new_keeps_its_labels(tmp_path: Path) -> None:
    """`rerun --as-new` gives the new run the labels of the old one."""
    mine = Program(tmp_path)
    mine.call("run", mine.write(GOOD), "--label", "team=data", code=0)
    assert mine.json("rerun", "1", "--as-new")["labels"] == {"team": "data"}


def test_the_newest_run_is_last_on_a_terminal(program: Program) -> None:
    """A person finds the newest run next to the prompt, a pipe gets it first."""
    for word in ("ls", "status"):
        with Terminal(program, word) as terminal:
            assert terminal.end() == 0
            shown = [line.split()[0] for line in terminal.text.splitlines()[1:] if line.strip()]
        assert shown == ["1", "2", "3", "4"]
        piped = program.call(word, code=0).stdout.splitlines()
        assert [line.split()[0] for line in piped[1:]] == ["4", "3", "2", "1"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("ls", "--status", "faild"), "no run has the status 'faild'", "did you mean 'failed'?"),
        (("ls", "--status", "failed,"), "no run has the status ''", None),
        (("ls", "--since", "soon"), "--since 'soon' is no duration and no time", None),
        (("ls", "--label", "team"), "--label 'team' is not NAME=VALUE", "such as --label team=data"),
        (("run", "good.yaml", "--label", "=x"), "--label '=x' is not NAME=VALUE", None),
        (
            ("run", "good.yaml", "--label", "a=1", "--label", "a=2"),
            "--label a= is given twice, as '1' and as '2'",
            None,
        ),
        (("status", "1", "--limit", "3"), "--limit is for the list of runs", "leave out 1, or the option"),
    ],
)
def test_wrong_filters(program: Program, words: tuple[str, ...], message: str, hint: str | None) -> None:
    """A filter that can't be read exits 2 and says what would do."""
    error = program.json(*words, code=2)["error"]
    assert error["message"] == message
    assert hint is None or error["hint"] == hint


def test_a_label_that_holds_a_secret_is_refused(tmp_path: Path) -> None:
    """Labels are stored, so a secret in one is exit 2 before anything runs."""
    program = Program(tmp_path)
    program.write("resile: 1\nsecrets: [TOKEN]\nsteps: [{shell: 'true'}]\n")
    done = program.call("run", "flow.yaml", "--label", "t=hunter22", TOKEN="hunter22", code=2)
    assert "label 't' holds the value of the secret TOKEN, and labels are stored" in done.stderr
    assert listed(program) == []


def test_no_run_matches(program: Program) -> None:
    """An empty selection is no error, and the text tells it from an empty database."""
    assert program.call("ls", "--workflow", "none", code=0).stdout == "no such runs\n"
