"""Type checkers know what a step gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from typing import Any, assert_type
from resile import Result, Run, Workflow, run, step

@step
def one() -> int:
    return 1

@step(retry=2)
def two(number: int) -> list[str]:
    return [str(number)]

@step
async def three() -> bytes:
    return b""

@step(timeout="5s")
async def four() -> float:
    return 4.0

with Workflow("t") as flow:
    x = one()
    texts = two.options(timeout=3)(x)
    every = two.map([1, 2])

done: Run = run(flow)
assert_type(x, Result[int])
assert_type(done.result(x), int)
assert_type(done.result(texts), list[str])
assert_type(done.result(every), list[list[str]])
assert_type(done.result(three()), bytes)
assert_type(done.result(four()), float)
assert_type(done.result("one"), Any)
"""


@pytest.mark.slow
def test_a_result_has_the_type_that_the_function_returns(tmp_path: Path) -> None:
    """What `Run.result` gives has the type of the function, of coroutines what they await, of maps a list of it."""
    file = tmp_path / "flow.py"
    file.write_text(CODE)
    argv = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.returncode) == ("Success: no issues found in 1 source file\n", 0)
