"""The hub decides which run starts an attempt next, which of its ready attempts that is, and in which place it runs.

    views (one for each run) --ready--> hub --assign--> places (this machine, workers)

A run with a higher priority comes first; then the run with the fewest attempts in places; then the one that has waited
longest for a slot, so that no run starves. An attempt goes to a place that has its labels and room for it. While there
is no such place, the attempt waits and the hub starts attempts behind it.
"""

from __future__ import annotations

import heapq
import os
import select
from itertools import count

from resile.executors.contract import Executor, Launch
from resile.executors.local.processes import boot_seconds
from resile.executors.local.server_executor import ServerExecutor
from resile.executors.local.shared_records import narrow, run_of
from resile.executors.shared.annex import Annex
from resile.executors.shared.local_place import LocalPlace, release
from resile.executors.shared.places import Key, Mark, Place, View, WorkerBook, leave

# How long the launcher keeps reports whose view closed before its engine had recorded them.
LINGER_SECONDS = 60.0
# The hub looks for a place for this many ready attempts of a run, in order, before it tries the next run.
LOOKED_AT_MAX = 64


class Hub:
    """All views and all places of one server; one thread uses it."""

    def __init__(self, local: LocalPlace, server: str, clock_offset: float, fence: str) -> None:
        """`server` is the server's folder, which has the launcher's files; `clock_offset` is the launcher's.

        The fences of new runs are hard links to the file `fence`.
        """
        self.fence = fence
        self.local = local
        self.server = server
        # The folder for the output of all runs; open_hub.py draws how the server's folder lies in it.
        self.output = os.path.dirname(os.path.dirname(server))
        self.clock_offset = clock_offset
        self.places: list[Place] = [local]
        # The launchers of ended servers whose attempts this hub watches.
        self.annexes: list[Annex] = []
        self.workers: WorkerBook | None = None
        self.views: dict[int, View] = {}
        self._by_run: dict[int, View] = {}
        # All profiles that this hub has served.
        self.profiles: set[int] = set()
        # The profiles of views that have reports for their engines.
        self.reporting: set[int] = set()
        self._order: list[tuple[tuple[int, int, int], int, View]] = []
        self._numbers = count(1)
        self._lingering: list[tuple[float, list[Mark]]] = []
        self._epoll = select.epoll()
        self._epoll.register(local.executor.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        """The descriptor that becomes readable when a launcher of this machine has a report."""
        return self._epoll.fileno()

    def executors(self) -> list[ServerExecutor]:
        """The launchers of this machine: its own, and those of servers that have ended."""
        return [self.local.executor, *(annex.executor for annex in self.annexes)]

    def add_annex(self, annex: Annex) -> None:
        """Watch the launcher of a server that has ended."""
        self.annexes.append(annex)
        self._epoll.register(annex.executor.fileno(), select.EPOLLIN)

    def close_annexes(self, *, all_of_them: bool = False) -> None:
        """Close the annexes whose attempts have all ended, or `all_of_them`."""
        for annex in list(self.annexes):
            if all_of_them or annex.is_done():
                self.annexes.remove(annex)
                self._epoll.unregister(annex.executor.fileno())
                annex.close()

    def add(self, view: View, *, is_new: bool) -> None:
        """Serve a run from now on; unless it is new, ask which of its attempts the workers have."""
        self.views[view.profile] = view
        self._by_run[run_of(view.profile)] = view
        self.profiles.add(view.profile)
        if self.workers is not None and not is_new:
            self.workers.open_run(view)

    def close_view(self, view: View, marks: list[Mark]) -> None:
        """Stop serving a run; for LINGER_SECONDS the launcher keeps reports that its engine has not recorded."""
        if self.views.get(view.profile) is view:
            del self.views[view.profile]
            self._by_run.pop(run_of(view.profile), None)
        self.local.executor.forget(view.profile)
        for placed in view.placed.values():
            leave(placed)
        if marks:
            self._lingering.append((boot_seconds() + LINGER_SECONDS, marks))

    def collect(self, now: float) -> set[int]:
        """Pass the reports of this machine's launchers on to the views; return the runs whose engines have reports."""
        self.local.collect(self.views.get)
        for annex in self.annexes:
            annex.collect(self.views.get)
        while self._lingering and self._lingering[0][0] <= now:
            release(self._lingering.pop(0)[1])
        profiles, self.reporting = self.reporting, set()
        return {run_of(profile) for profile in profiles}

    def rank(self, view: View) -> None:
        """Put a run into the order for the next slot, if it has ready attempts and may start one more."""
        if not view.ready or view.closed or len(view.placed) >= view.parallel:
            return
        if view.entry is None:
            view.waiting_since = next(self._numbers)
        self._push(view)

    def _push(self, view: View) -> None:
        entry = ((-view.priority, len(view.placed), view.waiting_since), next(self._numbers), view)
        view.entry = entry
        heapq.heappush(self._order, entry)

    def assign(self) -> None:
        """Start ready attempts, while places have free slots for them."""
        passed: list[View] = []
        while self._order and any(place.has_slot() for place in self.places):
            entry = heapq.heappop(self._order)
            view = entry[2]
            if view.entry is not entry:
                continue
            view.entry = None
            if view.closed or not view.ready or len(view.placed) >= view.parallel:
                continue
            found = self._find_place(view)
            if found is None:
                passed.append(view)
                continue
            view.place(*found)
            self.rank(view)
        for view in passed:
            # It keeps its old rank: it has not stopped waiting.
            self._push(view)
        for place in self.places:
            place.flush()

    def _find_place(self, view: View) -> tuple[Key, Place] | None:
        """The first ready attempt of a run for which there is a place, with that place."""
        for number, (key, launch) in enumerate(view.ready.items()):
            if number == LOOKED_AT_MAX:
                break
            for place in self.places:
                if place.has_slot() and _suits(place, launch):
                    return key, place
        return None

    def descriptors_of(self, run: int, executor: Executor) -> list[int]:
        """The descriptors that the host must poll for a run besides the hub's: of functions, of a former launcher."""
        view = self._by_run.get(run)
        if view is None:
            # A run without a view has an executor of its own: its attempts run on blocks.
            return [executor.fileno()]
        found = [] if view.former is None else [view.former.fileno()]
        return found if id(view) == id(executor) else [*found, executor.fileno()]

    def abandon(self, run: int) -> None:
        """End this server's attempts of a run, because another engine has the run now."""
        if run in self._by_run:
            self._by_run[run].abandon()

    def recorded_runs(self) -> set[int]:
        """The runs with attempts that an earlier host left on record and that no engine has asked for yet."""
        return {run_of(narrow(job)[0]) for job in self._recorded_jobs()}

    def _recorded_jobs(self) -> set[int]:
        return {job for executor in self.executors() for job, _ in executor.spooled_keys()}

    def forget_records(self, run: int) -> None:
        """Forget the records that an earlier host left of this run's attempts."""
        jobs = {job for job in self._recorded_jobs() if run_of(narrow(job)[0]) == run}
        for executor in self.executors():
            executor.drop_spooled(jobs)

    def end_records(self, run: int) -> None:
        """End the attempts that an earlier host left running, because another server has their run now."""
        for executor in self.executors():
            keys = {key: True for key in executor.spooled_keys() if run_of(narrow(key[0])[0]) == run}
            executor.find(keys)
            for key in keys:
                executor.kill(*key)

    def close(self) -> None:
        """Disconnect from the launchers, which the next host may take over."""
        self.close_annexes(all_of_them=True)
        self._epoll.close()
        self.local.executor.close()

    def waiting_count(self) -> int:
        """The number of attempts that wait for a slot."""
        return sum([len(view.ready) for view in self.views.values()])

    def running_count(self) -> int:
        """The number of attempts that are in places."""
        return sum([len(view.placed) for view in self.views.values()])


def _suits(place: Place, launch: Launch) -> bool:
    """Does a place have the labels of an attempt, and room for it?"""
    return place.labels.issuperset(launch.labels) and place.room.fits(launch.share)
