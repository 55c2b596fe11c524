"""PBS and LSF: what Parsl hands to their commands, and a run in the blocks that scripts with their names start.

The scripts are no batch systems: they start the job on this machine, say how it is, and end it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parsl.cluster_runs import Place, wait_for

pytestmark = pytest.mark.slow

START = """\
for script; do :; done
cp "$script" "$here/script"
echo "$@" > "$here/words"
PBS_JOBID=7.server LSB_JOBID=7 setsid sh "$script" > "$here/out" 2>&1 < /dev/null &
echo $! > "$here/pid"
"""
SCRIPTS = {
    "qsub": START + "echo 7.server\n",
    "qstat": 'kill -0 $(cat "$here/pid") && state=R || state=F\n'
    'echo "{\\"Jobs\\": {\\"7.server\\": {\\"job_state\\": \\"$state\\"}}}"\n',
    "qdel": 'echo qdel >> "$here/ended"; kill $(cat "$here/pid")\n',
    "bsub": START + 'echo "Job <7> is submitted to queue <long>."\n',
    "bjobs": 'kill -0 $(cat "$here/pid") && echo 7 RUN || echo 7 DONE\n',
    "bkill": 'echo bkill >> "$here/ended"; kill $(cat "$here/pid")\n',
}
FLOW = """\
resile: 1
steps:
  one: {shell: 'echo job $PBS_JOBID $LSB_JOBID', resources: {cpus: 2}}
  two: {shell: 'exit 3', needs: [one], resources: {cpus: 2}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place with the commands."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / name).write_text(f"#!/bin/sh\nhere={tmp_path}\n{text}")
        (folder / name).chmod(0o755)
    found = Place(tmp_path)
    found.env["PATH"] = f"{folder}:{found.env['PATH']}"
    return found


def run_on(place: Place, provider: str) -> list[str]:
    """Run a workflow there to its failure; the lines of the script of its block."""
    keys = {"account": "proj", "partition": "long", "walltime": "01:29:30", "worker_init": "export READY=1"}
    place.describe(provider=provider, address="127.0.0.1", workers_per_node=2, **keys)
    done = place.run(FLOW)
    assert done.returncode == 1, (done.stderr, (place.folder / "out").read_text())
    assert "exit code 3" in done.stdout
    wait_for("no process of a block is left", lambda: not place.processes(), 60)
    return (place.folder / "script").read_text().splitlines()


def test_pbs(place: Place) -> None:
    """Queue and account are words of `qsub`, the rest is in the script; `qdel` ends the block with the run."""
    lines = run_on(place, "pbs")
    assert {"#PBS -l walltime=01:29:30", "#PBS -l select=1:ncpus=4", "export READY=1"} <= set(lines)
    assert (place.folder / "words").read_text().startswith("-q long -A proj /")
    assert (place.folder / "ended").read_text() == "qdel\n"
    assert "job 7.server" in place.call("logs", "1", "one").stdout


def test_lsf(place: Place) -> None:
    """All is in the script; its minutes are rounded up; `bkill` ends the block with the run."""
    lines = run_on(place, "lsf")
    assert {"#BSUB -W 90", "#BSUB -P proj", "#BSUB -q long", "#BSUB -nnodes 1", "export READY=1"} <= set(lines)
    assert (place.folder / "ended").read_text() == "bkill\n"
    assert "job 7" in place.call("logs", "1", "one").stdout
