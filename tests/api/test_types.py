"""Type checkers know the parameters and the result of a step, and refuse what a run would refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

USES = Path(__file__).parent / "uses.py"
WRONG = """
from resile import Map, Resources, Retry, Workflow, run, step

@step
def two(number: int, *, by: int = 1) -> list[str]:
    return [str(number * by)]

with Workflow("t") as flow:
    two("text")
    two(1, to=2)
    two()
    Retry(max="3")
    Resources(cpu=2)
    Map(parallel=3)
    two.options(timout=3)

number: int = run(flow).result(two(1))
"""
WRONG_LINES = [9, 10, 11, 12, 13, 14, 15, 17]


def check_with(checker: str, file: Path, folder: Path) -> tuple[int, Sequence[int], str]:
    """The exit code of a strict type checker on a file, the lines it complains about, and what it prints."""
    if checker == "mypy":
        argv = ["-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), str(file)]
    else:
        config = {"include": [str(file)], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
        (folder / "pyrightconfig.json").write_text(json.dumps(config))
        argv = ["-m", "basedpyright", "-p", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False, timeout=300)
    found = re.findall(rf"{re.escape(str(file))}:(\d+)(?::\d+)?(?: -|:) error", done.stdout)
    return done.returncode, sorted({int(line) for line in found}), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_uses_of_the_api_type_check_in_strict_mode(checker: str, tmp_path: Path) -> None:
    """A result has the type that its function returns and fits every parameter, and each option has its type."""
    code, lines, printed = check_with(checker, USES, tmp_path)
    assert (code, lines) == (0, []), printed


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_wrong_uses_are_found_by_type_checkers(checker: str, tmp_path: Path) -> None:
    """A wrong argument, an unknown option and a result of another type are errors in their lines."""
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    code, lines, printed = check_with(checker, file, tmp_path)
    assert (code, lines) == (1, WRONG_LINES), printed
