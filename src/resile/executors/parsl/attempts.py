"""The attempts that nodes have: reads what the nodes write about them, and settles those whose node is gone.

The engine's thread and the thread that tends pools share the attempts, under a lock. The latter asks Slurm without the
lock, because Slurm may be slow.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from resile.executors.contract import Adopted, Ended, Lost, Records, Report, Started, Withdrawn
from resile.executors.fence import Fence
from resile.executors.local import processes, wire
from resile.executors.local.segments import SegmentReader
from resile.executors.parsl.former import Former
from resile.executors.parsl.node import files
from resile.executors.parsl.nodes import Happening, Key, Node, Nodes
from resile.executors.parsl.orders import Durations, Item
from resile.executors.parsl.verdicts import Verdicts, missing, name_of, with_memory
from resile.model.failure import LogRange
from resile.model.folders import make_folder


class AttemptsOnNodes(SegmentReader, ABC):
    """The attempts of a run on nodes, which write into its folder; see the Executor contract for the methods."""

    def __init__(self, folder: str, fence: Fence, clock_offset: float) -> None:
        super().__init__(folder)
        self._folder, self._fence, self._clock_offset = folder, fence, clock_offset
        self._cluster = os.path.join(folder, files.CLUSTER)
        make_folder(os.path.join(folder, wire.FOLDER))
        make_folder(self._cluster)
        self._orders = os.path.join(self._cluster, files.ORDERS)
        # The first engine of an epoch begins these records, so they are never missing.
        self.records: Records = "here"
        self._lock = threading.RLock()
        self._items: dict[Key, Item] = {}
        self._durations = Durations()
        self._nodes = Nodes(folder)
        self._former = Former()
        self._verdicts = Verdicts(self._cluster)
        self._ready: list[Report] = []
        # Attempts that their nodes have ended, until `_judge` finds out why.
        self._unjudged: list[tuple[Key, Item]] = []
        # The next time at which the thread looks for nodes that are gone.
        self._nodes_at = 0.0
        self._is_draining = False
        self._is_closed = threading.Event()
        self._has_work = threading.Event()
        self._wakeup_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Remember what nodes of earlier engines have written, until `find` asks for it.
        self._nodes.find_all()
        for happening in self._nodes.read():
            self._former.remember(happening)

    @abstractmethod
    def _try_again(self, keys: Sequence[Key], submission: str) -> None:
        """Submit those of these attempts again that no node has taken."""

    # --- the contract

    def find(self, attempts: Mapping[Key, bool]) -> None:
        with self._lock:
            self._collect()
            for key, in_doubt in attempts.items():
                taken, last = self._former.forget(key)
                item = self._items[key] = Item(sought=True, in_doubt=in_doubt)
                if taken is not None:
                    item.node, item.submission = taken.node, taken.taken
                if last is not None:
                    item.node, item.begun = last.node, True
                    self._answer(key, item, last)
                elif taken is None:
                    self._end(key, missing(key, self._now(), in_doubt))
            # Have the thread settle the attempts of nodes that are gone at once.
            self._nodes_at = 0.0
        self._has_work.set()

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:
        parts = log.segment.split("/")
        node = self._nodes.known.get(parts[1]) if len(parts) == 3 else None
        return len(parts) == 3 and (node is None or (job, attempt) not in node.ends)

    # --- what nodes have written

    def _collect(self) -> None:
        """Read everything new that nodes have written, then submit dropped attempts again."""
        dropped = []
        for happening in self._nodes.read():
            item = self._items.get(happening.key)
            if item is None or (item.node not in (None, happening.node) and not happening.taken):
                self._former.remember(happening)
            elif happening.taken:
                if happening.taken == item.submission:
                    item.node = happening.node
            elif happening.dropped:
                if happening.dropped == item.submission and item.node is happening.node:
                    item.node = None
                    dropped.append((happening.key, happening.dropped))
            elif item.node is happening.node:
                self._answer(happening.key, item, happening)
        # Submitting again calls `_collect`, so first handle every line that was read.
        for key, submission in dropped:
            item = self._items.get(key)
            if item is not None and item.node is None and item.submission == submission:
                self._settle_unbegun(key, item)

    def _settle_unbegun(self, key: Key, item: Item) -> None:
        """Settle an attempt that its node never began and never will: end it, or submit it again."""
        if item.sought:
            self._end(key, missing(key, self._now(), item.in_doubt))
        elif item.is_killed or self._is_draining:
            self._end(key, Withdrawn(*key, self._now()))
        else:
            self._try_again([key], item.submission)

    def _answer(self, key: Key, item: Item, happening: Happening) -> None:
        """Report what a node's line says about an attempt."""
        if not item.begun and item.pool is not None and (identity := happening.node.identity) is not None:
            item.pool.note_work(identity.block)
        item.begun = True
        report: Report | None = happening.report
        if isinstance(report, Started):
            item.leader, item.started_at, item.log = (report.pid, happening.born), report.at, report.log
            if item.sought:
                item.sought = False
                self._report(Adopted(*key, report.at, report.pid, report.log))
            else:
                self._report(report)
            return
        if report is None:
            return
        if isinstance(report, Ended):
            if item.launch is not None:
                self._durations.note(item.launch, report)
                report = with_memory(report, item.launch.memory_bytes)
            if report.reason == "killed" and not item.is_killed:
                item.ended = report
                self._unjudged.append((key, item))
                return
        elif isinstance(report, Lost):
            report = replace(report, why=f"the launcher on {name_of(happening.node)} died while it ran")
        elif isinstance(report, Withdrawn) and item.sought and item.in_doubt:
            report = missing(key, self._now(), True)
        self._end(key, report)

    def _end(self, key: Key, report: Report) -> None:
        self._items.pop(key, None)
        self._report(report)

    def _report(self, report: Report) -> None:
        self._ready.append(report)
        self._wake()

    def _wake(self) -> None:
        if not self._is_closed.is_set():
            os.eventfd_write(self._wakeup_fd, 1)

    def _now(self) -> float:
        return processes.boot_seconds() + self._clock_offset

    # --- nodes that are gone

    def _settle_gone(self) -> None:
        """Settle the attempts of nodes that are gone: report those that had begun as ended, submit the others again.

        It asks Slurm without the lock: Slurm may be slow, and the engine waits for the lock.
        """
        with self._lock:
            held = {item.node.token: item.node for item in self._items.values() if item.node is not None}
        self._verdicts.begin_round()
        gone = [node for node in held.values() if self._verdicts.is_over(node)]
        for node in gone:
            self._verdicts.ask(node)
        for node in gone:
            with self._lock:
                self._settle_node(node)

    def _settle_node(self, node: Node) -> None:
        """Settle the attempts of a node that is gone."""
        # The node may have written more in its last moments.
        self._collect()
        left = {key: one for key, one in self._items.items() if one.node is node and one.ended is None}
        if not node.is_dead():
            # Order the node to end them if it comes back.
            taken = {key: item.submission.encode() for key, item in left.items() if item.submission}
            files.append(self._orders, [b"%s %d %d %s" % (files.END, *key, name) for key, name in taken.items()])
        for key, item in left.items():
            self._settle(key, item, node)
        # The engine has not read the reports yet, so it has not started other attempts of these jobs.
        node.end_leftovers({key: item.leader for key, item in left.items()})

    def _settle(self, key: Key, item: Item, node: Node) -> None:
        """Report the end of an attempt whose node is gone, or submit it again if it had not begun."""
        item.expect_end(node)
        if not item.begun:
            item.node = None
            self._settle_unbegun(key, item)
        else:
            self._end(key, self._verdicts.of(key, node, item.started_at, self._now(), item.log))

    def _judge(self) -> None:
        """Report attempts that their nodes have ended, with the reason; this asks Slurm without the lock, too."""
        with self._lock:
            unjudged, self._unjudged = self._unjudged, []
        for key, item in unjudged:
            assert item.ended is not None
            assert item.node is not None
            item.expect_end(item.node)
            report = self._verdicts.of_ended(item.ended, item.node)
            with self._lock:
                self._end(key, report)
