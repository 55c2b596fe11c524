"""What it costs to sample running attempts: the CPU time of the monitor alone, while they do nothing."""

from __future__ import annotations

import subprocess
import tempfile
import time

from bench.cases import Bench, Figure
from resile.core.actions import Note
from resile.engine.monitoring.sampler import Monitor
from resile.engine.monitoring.series import read_series

ATTEMPTS = 200
SECONDS = 2.0
INTERVAL_SECONDS = 1.0
PERCENT_MAX = 2.0


def monitoring(bench: Bench) -> list[Figure]:
    """200 attempts of 2 s each, sampled every second: the share of one CPU that this takes."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        monitor = Monitor(folder, INTERVAL_SECONDS, lambda _job, _attempt: True)
        sleepers = [
            subprocess.Popen(["sleep", str(SECONDS + 1)], start_new_session=True, stdin=subprocess.DEVNULL)
            for _ in range(ATTEMPTS)
        ]
        wall, cpu = time.perf_counter(), time.process_time()
        monitor.note(_note("attempt_started", job, {"pid": one.pid}) for job, one in enumerate(sleepers, 1))
        time.sleep(SECONDS)
        monitor.note(_note("attempt_succeeded", job, {}) for job in range(1, ATTEMPTS + 1))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        monitor.close()
        for one in sleepers:
            one.wait()
        series = list(read_series(folder))
    taken = sum(len(one.samples) for one in series)
    return [
        Figure("monitoring", f"{ATTEMPTS} attempts, every second", 100 * cpu / wall, "% CPU", bound=PERCENT_MAX),
        Figure("monitoring", "samples of each attempt", taken / ATTEMPTS, ""),
    ]


def _note(kind: str, job: int, data: dict[str, int]) -> Note:
    """A note about an attempt."""
    return Note(job, 0.0, kind, "root", "step", job, 1, "running", 0, data)
