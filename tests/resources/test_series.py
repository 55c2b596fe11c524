"""Series of samples: what is written is read back, in under 4 bytes a sample, and a cut file ends where it was cut."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.core.actions import Note
from resile.engine.monitoring.sampler import Monitor, sample_sessions
from resile.engine.monitoring.series import FILE, RSS_UNIT, append_series, encode_series, read_series

SAMPLES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1 << 26), st.integers(0, 12_800)), max_size=50)


@settings(max_examples=100, deadline=None)
@given(SAMPLES)
def test_what_is_written_is_read_back(tmp_path_factory: object, drawn: list[tuple[int, int, int]]) -> None:
    """Times are multiples of the interval, memory of 16 KiB, CPU whole percents: with these nothing changes."""
    seconds, samples = 0.0, []
    for ticks, rss, cpu in drawn:
        samples.append((seconds, rss * RSS_UNIT, float(cpu)))
        seconds += ticks * 0.5
    folder = tmp_path_factory.mktemp("series")  # type: ignore[attr-defined]
    for job in (1, 2):
        append_series(str(folder), encode_series(job, 3, 0.5, samples))
    found = list(read_series(str(folder)))
    assert [(one.job, one.attempt, one.interval_seconds) for one in found] == [(1, 3, 0.5), (2, 3, 0.5)]
    assert [list(one.samples) for one in found] == [samples, samples]


def test_a_sample_takes_less_than_four_bytes() -> None:
    """A program that grows, shrinks and computes by chance, sampled a thousand times."""
    chance = random.Random(7)
    rss, samples = 200 << 20, []
    for tick in range(1_000):
        rss = max(1 << 20, rss + int(chance.gauss(0, 4 << 20)))
        samples.append((tick * 5.0, rss, max(0.0, chance.gauss(150, 30))))
    assert len(encode_series(1, 1, 5.0, samples)) < 4 * len(samples)


def test_a_record_that_was_cut_off_ends_the_file(tmp_path: Path) -> None:
    """A crash while a record is written loses that record and no other; no file is no series."""
    assert list(read_series(str(tmp_path))) == []
    record = encode_series(1, 1, 1.0, [(0.0, RSS_UNIT, 5.0)] * 3)
    (tmp_path / FILE).write_bytes(record + record[:-3])
    assert [one.job for one in read_series(str(tmp_path))] == [1]
    (tmp_path / FILE).write_bytes(b"something else")
    assert list(read_series(str(tmp_path))) == []


def test_the_processes_of_a_session_are_measured_together(tmp_path: Path) -> None:
    """A shell and its child count as one attempt; the series of one that ended is stored."""
    ready, write = os.pipe()
    shell = f"{sys.executable} -c 'x = bytearray(30 << 20); print(flush=True); input()'; true"
    process = subprocess.Popen(
        ["sh", "-c", shell], start_new_session=True, stdin=subprocess.PIPE, stdout=write, pass_fds=[write]
    )
    try:
        assert os.read(ready, 1) == b"\n"
        rss_bytes, ticks = sample_sessions(frozenset([process.pid]))[process.pid]
        assert rss_bytes > 30 << 20
        assert ticks >= 0
        monitor = Monitor(str(tmp_path), 60.0)
        monitor.note([Note(1, 0.0, "attempt_started", "root", "a", 7, 2, "running", 0, {"pid": process.pid})])
        assert monitor.sampled.wait(20)
        monitor.note([Note(2, 0.0, "attempt_succeeded", "root", "a", 7, 2, "completed", 0, {})])
    finally:
        process.communicate(b"\n")
    (series,) = read_series(str(tmp_path))
    assert (series.job, series.attempt, len(series.samples)) == (7, 2, 1)
