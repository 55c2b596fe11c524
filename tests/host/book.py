"""The workers of a server without a host: a hub that starts nothing itself, and the engine of one run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resile.engine.host.worker_place import Offer
from resile.engine.host.workers import Workers
from resile.executors.contract import Launch, Report, Share
from resile.executors.fence import Fence
from resile.executors.shared.hub import Hub
from resile.executors.shared.open_hub import ServerFolder, open_hub
from resile.executors.shared.open_view import open_view
from resile.executors.shared.places import Room
from resile.executors.shared.view import RunView
from resile.executors.worker.messages import (
    Appeal,
    Assignment,
    Chunk,
    End,
    Grant,
    Introduction,
    Reports,
    Start,
    Word,
)
from resile.store.server_tables import ServerTables

RUN = 7


class Book:
    """The workers of one server, and what a run of it does with them."""

    def __init__(self, hub: Hub, tables: ServerTables, folder: Path) -> None:
        self.hub = hub
        self.tables = tables
        self.workers = Workers(hub, tables)
        self.folder = folder

    def drive(self, epoch: int = 1, *, is_new: bool = True) -> RunView:
        """Begin to drive an epoch of the run."""
        folder = self.folder / f"wf{RUN}_r{epoch}"
        folder.mkdir(exist_ok=True)
        return open_view(
            self.hub,
            str(folder),
            run=RUN,
            epoch=epoch,
            priority=0,
            parallel=100,
            is_new=is_new,
            label="t",
            base_env={b"PLACE": b"here"},
            directory=os.fsencode(self.folder),
            fence=Fence(str(folder), time.time_ns() // 1000, lambda: None),
            secrets=(),
            clock_offset=self.hub.clock_offset,
        )

    def register(self, name: str = "one", **told: Any) -> str:
        """Make a worker known; return its id."""
        return self.workers.register(Introduction(name=name, **told)).id

    def claim(self, worker: str, slots: int = 1, **told: Any) -> Offer:
        """Let a worker wait for work, and give it what there is."""
        offer = self.workers.claim(worker, Appeal(slots=slots, **told))
        self.hub.assign()
        return offer

    def give(self, view: RunView, worker: str, *jobs: int, memory_bytes: int = 0) -> list[Assignment]:
        """Let a worker claim the first attempts of some jobs; return them as it gets them."""
        view.start([Launch(job, 1, (b"true",), share=Share(memory_bytes=memory_bytes)) for job in jobs])
        return granted(self.claim(worker, len(jobs))).attempts

    def tell(self, worker: str, *told: Start | Chunk | End) -> Word:
        """Let a worker report."""
        kinds: dict[type, list[Any]] = {Start: [], Chunk: [], End: []}
        for one in told:
            kinds[type(one)].append(one)
        return self.workers.report(worker, Reports(kinds[Start], kinds[Chunk], kinds[End]))

    def claims(self) -> list[int]:
        """The jobs whose attempts workers have, as the store says."""
        return [claim.job for claim in self.tables.claims(run=RUN)]


def granted(offer: Offer) -> Grant:
    """The answer to a claim, which is there."""
    return offer.answer.result(0)


def take(view: RunView) -> list[Report]:
    """What the engine of a run hears, and records."""
    reports = view.reports()
    view.acknowledge()
    return reports


@contextmanager
def book_in(folder: Path, tables: ServerTables) -> Iterator[Book]:
    """The workers of a server that keeps its files in a folder."""
    own = ServerFolder.take(str(folder / "output"))
    hub = open_hub(own, 0, frozenset(), Room(0.0, 0))
    try:
        yield Book(hub, tables, folder)
    finally:
        hub.close()
        own.close()
