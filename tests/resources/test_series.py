"""Series of samples: what is written is read back, in under 4 bytes a sample, and a cut file ends where it was cut."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.api.run import EventListener
from resile.commands.run import run
from resile.commands.start.call import RunCall
from resile.commands.store_handle import StoreHandle
from resile.core.actions import Note
from resile.core.state import State
from resile.engine.loop import Interrupt
from resile.engine.monitoring.sampler import Monitor
from resile.engine.monitoring.series import read_series
from resile.executors.samples import FILE, RSS_UNIT, append_series, encode_series, sample_sessions

THREAD = "resile-monitor"
SAMPLES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1 << 26), st.integers(0, 12_800)), max_size=50)


def started(job: int, attempt: int, pid: int) -> Note:
    """The note of an attempt that runs."""
    return Note(1, 0.0, "attempt_started", "root", "a", job, attempt, "running", 0, {"pid": pid})


def monitor_threads() -> list[threading.Thread]:
    """The monitors of this process that are at work."""
    return [one for one in threading.enumerate() if one.name == THREAD]


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
        monitor = Monitor(str(tmp_path), 60.0, lambda _job, _attempt: True)
        monitor.note([started(7, 2, process.pid)])
        assert monitor.sampled.wait(20)
        monitor.note([Note(2, 0.0, "attempt_succeeded", "root", "a", 7, 2, "completed", 0, {})])
        monitor.close()
    finally:
        process.communicate(b"\n")
    (series,) = read_series(str(tmp_path))
    assert (series.job, series.attempt, len(series.samples)) == (7, 2, 1)


def test_only_attempts_of_this_machine_are_watched_and_a_closed_monitor_keeps_their_series(tmp_path: Path) -> None:
    """The pid of an attempt elsewhere is a stranger's here; what still runs at the close has its samples so far."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            monitor = Monitor(str(tmp_path), 3600.0, lambda job, _attempt: job == 7)
            monitor.note([started(8, 1, os.getppid())])
            assert monitor_threads() == []
            monitor.note([started(7, 2, process.pid)])
            assert monitor.sampled.wait(20)
            monitor.close()
            assert monitor_threads() == []
        finally:
            process.kill()
    assert [(one.job, one.attempt) for one in read_series(str(tmp_path))] == [(7, 2)]


class Impatient(EventListener):
    """Interrupts a run twice as soon as an attempt runs, which ends it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.saw_monitor = False

    def on_start(self, run: int, state: State, interrupt: Interrupt) -> None:
        """Keep how the run is interrupted."""
        super().on_start(run, state, interrupt)
        self.interrupt = interrupt

    def notes(self, state: State, notes: list[Note]) -> None:
        """Interrupt it."""
        super().notes(state, notes)
        if any(note.type == "attempt_started" for note in notes):
            self.saw_monitor = bool(monitor_threads())
            for _ in range(2):
                self.interrupt(lambda: None)


def test_a_monitor_ends_with_its_engine(tmp_path: Path) -> None:
    """An interrupted attempt has no note of its end, and yet no thread waits for one."""
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "resile: 1\nname: long\nresource_monitor: {interval: 1h}\nsteps:\n  long: {shell: 'exec sleep 600'}\n"
    )
    listener = Impatient()
    with closing(StoreHandle(str(tmp_path / "resile.db"))) as stores:
        outcome = run(stores, RunCall(str(flow), output=str(tmp_path / "output")), listener)
    assert (outcome.status, listener.saw_monitor) == ("interrupted", True)
    assert monitor_threads() == []
