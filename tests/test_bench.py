"""The benchmark measures what it says: the same graph for every tool, and the time of every process below it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.cases import Figure
from bench.measure import CommandFailed, measure
from bench.report import table
from bench.shapes import Shape, commands

# The child leaves a session of its own behind that works for 0.3 s of CPU time after its parent is gone.
ORPHAN = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.3: pass"
subprocess.Popen([sys.executable, "-c", burn], start_new_session=True)
"""


def test_layers_have_the_edges_of_the_bound() -> None:
    """20 fully connected layers of 50 are 1,000 jobs with 47,500 edges."""
    shape = Shape("layers", 20, 50)
    assert (shape.jobs, sum(len(needs) for _, needs in shape.nodes())) == (1_000, 47_500)


def test_each_tool_is_given_the_same_jobs(tmp_path: Path) -> None:
    """The files written for Resile, ninja and make hold one job for each node, and the scripts loop as often."""
    commands(Shape("small", 3, 4), tmp_path, "resile")
    assert (tmp_path / "flow.yaml").read_text().count("shell:") == 12
    assert (tmp_path / "build.ninja").read_text().count("\nbuild ") == 12
    assert (tmp_path / "Makefile").read_text().count("\t@true") == 12
    assert "seq 3); do seq 4" in (tmp_path / "xargs.sh").read_text()
    assert "range(3)" in (tmp_path / "loop.py").read_text()


def test_orphans_count_as_cpu_time_and_not_as_wall_time(tmp_path: Path) -> None:
    """A process that outlives the measured command adds to its CPU time and not to its wall time."""
    sample = measure([sys.executable, "-c", ORPHAN], tmp_path)
    assert sample.cpu_seconds >= 0.3
    assert sample.wall_seconds < sample.cpu_seconds


def test_a_failed_command_is_not_a_measurement(tmp_path: Path) -> None:
    """A command that fails raises with its exit code and its words instead of giving a time."""
    with pytest.raises(CommandFailed, match=r"(?s)exited 3.*broken"):
        measure(["sh", "-c", "echo broken >&2; exit 3"], tmp_path)


def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    """A command that does not exist raises instead of giving a time."""
    with pytest.raises(CommandFailed, match="could not be started"):
        measure(["no-such-command-anywhere"], tmp_path)


def test_the_table_marks_what_is_over_its_bound() -> None:
    """A ratio is held against its bound where there is a floor, a plain value otherwise."""
    figures = [
        Figure("wide", "wall", 3.0, "s", "ninja", 2.0, 1.5, 1.4),
        Figure("scale", "check", 4.0, "s", bound=5.0),
        Figure("scale", "run a step", 400.0, "us"),
    ]
    lines = table(figures).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["OVER", "held", "us"]
