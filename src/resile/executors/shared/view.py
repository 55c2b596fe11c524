"""The view of one run: its executor, by which its engine uses the places that all runs share.

start --> ready --hub--> a place --> deliver --> reports
find  --> workers; the server's launcher and annexes; records that other engines left in the folder of the epoch
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from resile.executors.contract import Adopted, Launch, Records, Report, Share, Started, Withdrawn
from resile.executors.fence import Fence
from resile.executors.local import processes
from resile.executors.local.executor import LocalExecutor
from resile.executors.local.segments import SegmentReader
from resile.executors.local.shared_records import widen
from resile.executors.shared.hub import Hub
from resile.executors.shared.local_place import release
from resile.executors.shared.places import Key, Mark, Place, Placed, Surroundings, leave
from resile.model.failure import LogRange

NOTHING = Share()
_DEVICES = b"CUDA_VISIBLE_DEVICES"


class RunView(SegmentReader):
    """The executor of one run; see the Executor contract for the methods."""

    def __init__(
        self,
        hub: Hub,
        profile: int,
        folder: str,
        *,
        priority: int,
        parallel: int,
        fence: Fence,
        clock_offset: float,
        former: LocalExecutor | None,
        records: Records,
        surroundings: Surroundings,
    ) -> None:
        """`former` watches attempts that a command line or another server left of the run, if there are any."""
        super().__init__(folder)
        self.profile = profile
        self.folder = folder
        self.surroundings = surroundings
        self.priority = priority
        self.parallel = parallel
        self.records = records
        self.ready: dict[Key, Launch] = {}
        self.placed: dict[Key, Placed] = {}
        # Only the hub uses these: since when the run has waited for a slot, and its entry in the order.
        self.waiting_since = 0
        self.entry: object = None
        self.clock_shift = clock_offset - hub.clock_offset
        self.former = former
        # The attempts that `former` found running on this machine.
        self._former_running: set[Key] = set()
        self._hub = hub
        self._fence = fence
        self._clock_offset = clock_offset
        self._reports: list[Report] = []
        # The reports that the engine has taken and not yet acknowledged.
        self._taken: list[list[Report]] = []
        self._not_started = 0
        # Marks of the launcher's lines: those whose reports the engine has not taken, and those it has not recorded.
        self._new_marks: list[Mark] = []
        self._marks: list[Mark] = []
        # Callbacks to call once reports are recorded: those of reports that the engine has not taken, and has taken.
        self._new_callbacks: list[Callable[[], None]] = []
        self._callbacks: list[Callable[[], None]] = []
        self._signal = -1
        self.closed = False

    # --- the hub's side

    def place(self, key: Key, place: Place) -> None:
        """Start a ready attempt in a place."""
        launch = self.ready.pop(key)
        gpus = place.room.take(launch.share)
        if gpus:
            pairs = tuple(pair for pair in launch.env if pair[0] != _DEVICES)
            launch = replace(launch, env=(*pairs, (_DEVICES, os.fsencode(",".join(gpus)))))
        self.placed[key] = Placed(
            place, launch.share, gpus, launcher=self._hub.local if place is self._hub.local else None
        )
        self._not_started += 1
        place.start(self.profile, launch)

    def deliver(self, report: Report, mark: Mark | None = None, recorded: Callable[[], None] | None = None) -> None:
        """Take a place's report of an attempt: update its place, and keep the report for the engine."""
        key = (report.job, report.attempt)
        if recorded is not None:
            self._new_callbacks.append(recorded)
        if type(report) is Adopted and key in self.placed:
            # A worker has it: its claim put it into `placed`.
            self._note_start(key)
        elif type(report) is Adopted:
            launcher = self._hub.local if mark is None else mark.place
            self.placed[key] = Placed(launcher, NOTHING, (), started=True, launcher=launcher)
            launcher.take_slot()
        elif type(report) is Started:
            self._note_start(key)
        else:
            self._free(key)
        if mark is not None and (not self._new_marks or self._new_marks[-1] is not mark):
            mark.views += 1
            self._new_marks.append(mark)
        self._report(report)

    def is_on_launcher(self, job: int, attempt: int) -> bool:
        """Does this running attempt run on this machine, and not on a worker?"""
        placed = self.placed.get((job, attempt))
        return (job, attempt) in self._former_running if placed is None else placed.launcher is not None

    def _note_start(self, key: Key) -> None:
        """Note that an attempt, which may have waited in its place, runs now."""
        placed = self.placed.get(key)
        if placed is not None and not placed.started:
            placed.started = True
            self._not_started -= 1

    def _free(self, key: Key) -> None:
        """Give the room of an ended attempt back to its place."""
        placed = self.placed.pop(key, None)
        if placed is None:
            return
        self._not_started -= not placed.started
        leave(placed)
        self._hub.rank(self)

    def _report(self, report: Report) -> None:
        """Keep a report for the engine, and wake the engine."""
        self._reports.append(report)
        self._hub.reporting.add(self.profile)
        if self._signal >= 0:
            os.eventfd_write(self._signal, 1)

    # --- the contract

    def fileno(self) -> int:
        """Only a composite executor (split.py) polls this; the host polls the hub."""
        if self._signal < 0:
            self._signal = os.eventfd(int(bool(self._reports)), os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return self._signal

    def start(self, launches: Sequence[Launch]) -> None:
        self._fence.check()
        for launch in launches:
            self.ready[launch.job, launch.attempt] = launch
        self._hub.rank(self)

    def kill(self, job: int, attempt: int) -> None:
        key = (job, attempt)
        if self.ready.pop(key, None) is not None:
            self._report(Withdrawn(*key, self._now()))
        elif key in self.placed:
            self.placed[key].place.kill(self.profile, job, attempt)
        elif self.former is not None:
            self.former.kill(job, attempt)

    def find(self, attempts: Mapping[Key, bool]) -> None:
        if self._hub.workers is not None:
            with_workers = self._hub.workers.find(self, attempts)
            attempts = {key: doubt for key, doubt in attempts.items() if key not in with_workers}
        old = self.former
        left = {key: doubt for key, doubt in attempts.items() if old is not None and old.knows(*key)}
        if old is not None and left:
            old.find(left)
        ours = {
            (widen(self.profile, job), attempt): doubt
            for (job, attempt), doubt in attempts.items()
            if (job, attempt) not in left
        }
        jobs = {job for job, _ in ours}
        for annex in self._hub.annexes:
            there = {key: doubt for key, doubt in ours.items() if annex.executor.knows(*key)}
            annex.executor.find(there)
            annex.executor.drop_spooled(jobs)
            ours = {key: doubt for key, doubt in ours.items() if key not in there}
        if ours:
            self._hub.local.executor.find(ours)
        self._hub.local.executor.drop_spooled(jobs)

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:
        executors, wide = self._hub.executors(), widen(self.profile, job)
        if self.former is not None and self.former.lacks_end(job, attempt, log):
            return not any(executor.knows(wide, attempt) for executor in executors)
        return any(executor.lacks_end(wide, attempt, log) for executor in executors)

    def drain(self) -> None:
        for key in list(self.ready):
            del self.ready[key]
            self._report(Withdrawn(*key, self._now()))

    def reports(self) -> list[Report]:
        if self._signal >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._signal)
        if self.former is not None:
            found = self.former.reports()
            self._former_running |= {(one.job, one.attempt) for one in found if type(one) is Adopted}
            self._reports += found
        reports, self._reports = self._reports, []
        if reports:
            self._taken.append(reports)
        self._marks += self._new_marks
        self._new_marks = []
        self._callbacks += self._new_callbacks
        self._new_callbacks = []
        return reports

    def queued_count(self) -> int:
        return len(self.ready) + self._not_started

    def acknowledge(self) -> None:
        self._taken.clear()
        if self._marks:
            marks, self._marks = self._marks, []
            release(marks)
        callbacks, self._callbacks = self._callbacks, []
        for recorded in callbacks:
            recorded()
        if self.former is not None:
            self.former.acknowledge()

    def close(self, *, finished: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        if self.former is not None:
            self.former.close(finished=finished)
        if not finished:
            self._leave_attempts()
        self._hub.close_view(self, self._marks + self._new_marks)
        self._fence.close()
        if self._signal >= 0:
            os.close(self._signal)

    def _leave_attempts(self) -> None:
        """Leave the next engine the attempts that run on this machine, and ends that this one has not recorded."""
        told = {(one.job, one.attempt) for reports in (*self._taken, self._reports) for one in reports}
        keys = {(widen(self.profile, job), attempt) for job, attempt in told | self.placed.keys()}
        for executor in self._hub.executors() if keys else ():
            executor.leave(keys)

    def abandon(self) -> None:
        """Another engine has the run: end what this one started."""
        self.ready.clear()
        for job, attempt in list(self.placed):
            self.placed[job, attempt].place.kill(self.profile, job, attempt)

    def _now(self) -> float:
        return processes.boot_seconds() + self._clock_offset
