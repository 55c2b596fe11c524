"""The slots of this machine as a place: one launcher for all runs of a server.

    start --> ServerExecutor --> launcher          collect: reports --> the views of their runs

The place acknowledges the launcher's lines up to a mark once all runs with reports before it have recorded them. While
attempts are short, it queues some in the launcher for each slot, so that no slot waits for the host; they delay other
runs by a few milliseconds at most. Of longer attempts it gives the launcher one for each free slot.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from resile.executors.contract import Ended, Launch, Report
from resile.executors.local.server_executor import ServerExecutor
from resile.executors.local.shared_records import narrow, widen
from resile.executors.shared.places import Mark, Room, View

SHORT_SECONDS = 0.05
# The limits of the launcher's queue for each slot: the seconds that its attempts take, by their mean, and their number.
AHEAD_SECONDS, AHEAD_MAX = 0.02, 16
GATHER_SECONDS = 0.005
# The weight of the newest attempt in the moving mean of their durations.
NEWEST = 0.1


class LocalPlace:
    """The slots of this machine; see the protocol of places for the methods."""

    name = ""

    def __init__(self, executor: ServerExecutor, slots: int, labels: frozenset[str], room: Room) -> None:
        self.executor = executor
        self.slots = slots
        self.labels = labels
        self.room = room
        self.in_use = 0
        # How far the launcher's clock is ahead of the hub's, in seconds.
        self.clock_shift = 0.0
        self._new: list[Launch] = []
        self._marks: deque[Mark] = deque()
        self._mean_seconds = 1.0

    def has_slot(self) -> bool:
        """Is a slot free, or may one more attempt queue in the launcher?"""
        return self.in_use < self.slots * (1 + self._ahead())

    def _ahead(self) -> int:
        """The number of attempts that may queue in the launcher for each slot: as many as run in AHEAD_SECONDS."""
        if self._mean_seconds >= SHORT_SECONDS:
            return 0
        return max(1, min(AHEAD_MAX, int(AHEAD_SECONDS / max(self._mean_seconds, 1e-6))))

    def gather(self) -> None:
        """If the launcher's queue is long, wait a moment, so that the host handles more reports in one round."""
        if self.in_use >= 2 * self.slots > 0:
            time.sleep(GATHER_SECONDS)

    def start(self, profile: int, launch: Launch) -> None:
        """Start an attempt with the next `flush`."""
        self.take_slot()
        self._new.append(replace(launch, job=widen(profile, launch.job), after=()))

    def take_slot(self) -> None:
        """Count one more attempt on this machine."""
        self.in_use += 1

    def free_slot(self) -> None:
        """One attempt less is here."""
        self.in_use -= 1

    def flush(self) -> None:
        """Send the new attempts to the launcher."""
        if self._new:
            launches, self._new = self._new, []
            self.executor.start(launches)

    def kill(self, profile: int, job: int, attempt: int) -> None:
        """End an attempt."""
        self.flush()
        self.executor.kill(widen(profile, job), attempt)

    def collect(self, view_of: Callable[[int], View | None]) -> None:
        """Pass new reports on to the views of their runs."""
        mark: Mark | None = None
        for report in self.executor.reports():
            profile, job = narrow(report.job)
            if isinstance(report, Ended):
                self._mean_seconds += NEWEST * (report.at - report.started_at - self._mean_seconds)
            view = view_of(profile)
            if view is None:
                continue
            if mark is None:
                mark = Mark(self, self.executor.reported_bytes)
                self._marks.append(mark)
            view.deliver(_of_run(report, job, view.clock_shift - self.clock_shift), mark)

    def acknowledge(self) -> None:
        """Let the launcher forget what all views have recorded."""
        recorded = -1
        while self._marks and not self._marks[0].views:
            recorded = self._marks.popleft().reported_bytes
        if recorded >= 0:
            self.executor.acknowledge_to(recorded)

    def is_recorded(self) -> bool:
        """Have the views recorded all that this place has passed on?"""
        return not self._marks


def release(marks: Sequence[Mark]) -> None:
    """Note that a view has recorded everything up to these marks."""
    for mark in marks:
        mark.views -= 1
    for place in {mark.place for mark in marks}:
        place.acknowledge()


def _of_run(report: Report, job: int, shift: float) -> Report:
    """A report as the run sees it: with its own number of the job, and by its own clock."""
    if isinstance(report, Ended):
        return replace(report, job=job, at=report.at + shift, started_at=report.started_at + shift)
    return replace(report, job=job, at=report.at + shift)
