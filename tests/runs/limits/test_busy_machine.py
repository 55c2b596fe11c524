"""A machine with far more work than processors."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.cli.program import Program

STEPS = 150
# `RESILE_BUSY_RUNS=20 make test-slow` tries more often.
RUNS = int(os.environ.get("RESILE_BUSY_RUNS", "4"))
FLOW = "resile: 1\nname: busy\nmax_parallel: 150\nsteps:\n  first: {shell: echo yes}\n" + "".join(
    f"""  s{number}:
    needs: [first]
    when: "outputs.first.trim() === 'yes' && {number} % 2 === 0"
    shell: i=0; while test $i -lt 20000; do i=$((i + 1)); done
"""
    for number in range(2 * STEPS)
)


@pytest.mark.slow
def test_no_condition_is_decided_by_time(program: Program) -> None:
    """Beside 150 steps that keep two processors busy, each condition gets the answer that its code gives."""
    program.write(FLOW)
    for _ in range(RUNS):
        argv = [*program.argv, "run", "flow.yaml", "--json"]
        done = subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, check=True)
        jobs = {job["step"]: job["status"] for job in json.loads(done.stdout)["jobs"]}
        wanted = {f"s{number}": "skipped" if number % 2 else "completed" for number in range(2 * STEPS)}
        assert {name: jobs[name] for name in wanted} == wanted
