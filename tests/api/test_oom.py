"""A worker that the kernel kills for want of memory: the failure says so where the system lets us know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.executors.local.test_oom import ROOT, small_cgroup

FLOW = """
import os, signal, sys
from pathlib import Path
from resile import Workflow, run, step

@step(on_failure=True)
def eat():
    return len(bytearray(400 << 20))

@step(on_failure=True)
def die():
    os.kill(os.getpid(), signal.SIGKILL)

@step(rules=[{"kinds": ["oom"], "max_retries": 1}], on_failure=True)
def eat_again():
    return len(bytearray(400 << 20))

with Workflow("hog", max_parallel=1) as flow:
    eat_again().after(die().after(eat()))

if __name__ == "__main__":
    Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
    run(flow)
"""


def test_a_worker_that_takes_too_much_memory(tmp_path: Path) -> None:
    """In a small memory cgroup a call that is killed for it is `oom`, and a rule answers that; a plain kill is not."""
    (tmp_path / "flow.py").write_text(FLOW)
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "RESILE_DB": str(tmp_path / "r.db")}
    with small_cgroup() as cgroup:
        subprocess.run([sys.executable, "flow.py", str(cgroup)], cwd=tmp_path, env=env, check=True, timeout=120)
    from resile.store.open import open_store

    store = open_store(str(tmp_path / "r.db"), readonly=True)
    names = {job.id: job.step for job in store.jobs(1)}
    kinds = sorted((names[row.job], row.failure.kind) for row in store.attempts(1) if row.failure is not None)
    store.close()
    assert kinds == [("die", "signal"), ("eat", "oom"), ("eat_again", "oom"), ("eat_again", "oom")]
