"""A simulated world for the engine: a clock that jumps to what is next, and an executor that runs nothing."""

from __future__ import annotations

import heapq
import os
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count

from msgspec import structs

from resile.core.events import Capacity, Event, Machine, RunStarted
from resile.core.state import State
from resile.engine.loop import Engine
from resile.engine.session import Session, create, take
from resile.executors.contract import Ended, Launch, Lost, Records, Report, Started, Stream, Withdrawn, output_size
from resile.model import codec
from resile.model.failure import LogRange
from resile.model.status import RunStatus
from resile.model.workflow import Workflow
from resile.store.memory import MemoryDatabase, MemoryStore

START = 1_000_000.0


class HandClock:
    """Stands still while there is something to do, and then jumps to the next thing that is planned or waited for."""

    def __init__(self) -> None:
        self.machine = Machine("simulated", START)
        self.time = START
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def now(self) -> float:
        """The simulated time."""
        return self.time

    def boot_seconds(self) -> float:
        """The simulated time since the simulated boot."""
        return self.time - START

    def plan(self, seconds: float, act: Callable[[], None]) -> None:
        """Have something happen so many seconds from now."""
        heapq.heappush(self._planned, (self.time + seconds, next(self._numbers), act))

    def wait(self, poll: select.poll, until: float) -> list[int]:
        """Let the next planned thing happen where no descriptor is ready, or let the time pass until then."""
        ready = poll.poll(0)
        if not ready and self._planned and self._planned[0][0] <= until:
            self.time, _, act = heapq.heappop(self._planned)
            act()
            ready = poll.poll(0)
        elif not ready:
            self.time = max(self.time, until)
        return [descriptor for descriptor, _ in ready]


class MemoryOutput:
    """An OutputReader over texts: what attempts wrote, by segment and stream."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, Stream], bytes] = {}

    def write(self, segment: str, out: bytes = b"", err: bytes = b"") -> LogRange:
        """Keep what an attempt wrote; its log range."""
        self.texts[segment, "out"], self.texts[segment, "err"] = out, err
        return LogRange(segment, 0, len(out), 0, len(err))

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of one stream."""
        if log is None:
            return b""
        first = start if start >= 0 else max(0, output_size(log, stream) + start)
        text = self.texts.get((log.segment, stream), b"")[first:]
        return text if length is None else text[:length]

    def sync_output(self, logs: Iterable[LogRange]) -> None:
        """There is no disk."""

    def follow_output(self, log: LogRange, stream: Stream, start: int, length: int, *, job: int, attempt: int) -> bytes:
        """Bytes of one stream."""
        assert (job, attempt) > (0, 0)
        return self.texts.get((log.segment, stream), b"")[start : start + length]


class SimulatedExecutor(MemoryOutput):
    """Runs nothing: every attempt takes `seconds` of the clock and then exits with 0; `calls` tells what was asked."""

    def __init__(self, clock: HandClock, seconds: float = 1.0) -> None:
        super().__init__()
        self.records: Records = "here"
        # Attempts whose recorded ends its records lack.
        self.cut: set[tuple[int, int]] = set()
        self.finished = False
        self.clock = clock
        self.seconds = seconds
        self.calls: list[tuple[str, int, int]] = []
        self.launches: list[Launch] = []
        self.waiting: list[Report] = []
        self.running: dict[tuple[int, int], float] = {}
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def report(self, report: Report) -> None:
        """Have the engine hear this."""
        self.waiting.append(report)
        os.eventfd_write(self._signal, 1)

    def fileno(self) -> int:
        """Readable when reports wait."""
        return self._signal

    def start(self, launches: Sequence[Launch]) -> None:
        """Begin all of them at once."""
        for launch in launches:
            key = (launch.job, launch.attempt)
            self.calls.append(("start", *key))
            self.launches.append(launch)
            self.running[key] = self.clock.now()
            self.report(Started(*key, self.clock.now(), 7, LogRange(f"{launch.job}-{launch.attempt}")))
            self.clock.plan(self.seconds, lambda key=key: self.end(*key))

    def end(self, job: int, attempt: int, status: int = 0, reason: str = "") -> None:
        """An attempt exits, unless it is over."""
        started = self.running.pop((job, attempt), None)
        if started is not None:
            log = LogRange(f"{job}-{attempt}")
            self.report(Ended(job, attempt, started, self.clock.now(), status, 0.0, 0, log, reason))

    def kill(self, job: int, attempt: int) -> None:
        """End it at once."""
        self.calls.append(("kill", job, attempt))
        self.end(job, attempt, 15, "killed")

    def find(self, attempts: Mapping[tuple[int, int], bool]) -> None:
        """Nothing survives an engine here."""
        for key, in_doubt in attempts.items():
            now = self.clock.now()
            self.report(Lost(*key, now, "in doubt") if in_doubt else Withdrawn(*key, now))

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:
        """Only the ends that the test cut are missing."""
        assert (job, attempt, log.segment) > (0, 0, "")
        return (job, attempt) in self.cut

    def drain(self) -> None:
        """There is no queue."""
        self.calls.append(("drain", 0, 0))

    def reports(self) -> list[Report]:
        """Everything that happened since the last call."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._signal)
        reports, self.waiting = self.waiting, []
        return reports

    def queued_count(self) -> int:
        """There is no queue."""
        return 0

    def acknowledge(self) -> None:
        """Nothing is kept."""

    def close(self, *, finished: bool = False) -> None:
        """Give the descriptor back."""
        self.finished = finished
        os.close(self._signal)


class Simulation:
    """A run of one workflow in the simulated world, with the store in memory."""

    def __init__(self, workflow: Workflow, folder: str, executor: SimulatedExecutor | None = None) -> None:
        self.executor = executor or SimulatedExecutor(HandClock())
        self.clock = self.executor.clock
        self.database = MemoryDatabase()
        self.store = MemoryStore(self.database)
        self.events: list[str] = []
        self.first = RunStarted(self.clock.now(), Capacity(parallel=2, ahead=2))
        self.row, self.state = create(
            self.store,
            workflow,
            codec.encode(workflow),
            self.first,
            output=folder,
            directory=folder,
        )
        self.engine: Engine | None = None

    def drive(self, *events: Event) -> RunStatus:
        """Drive the run to its end, from its start and these events."""
        session = Session(
            self.store,
            self.row,
            self.state,
            env={},
            listener=self._listen,
            clock=self.clock,
            executor=self.executor,
        )
        lease = take(self.store, self.row.id, self.clock.boot_seconds())
        return session.drive(lease, [self.first, *events], parallel=2, launcher=None, ready=self._keep)

    def _keep(self, engine: Engine) -> None:
        """Know the engine, so that a test can interrupt it."""
        self.engine = engine

    def _listen(self, _state: State, notes: Sequence[object]) -> None:
        """Collect the events that became durable."""
        self.events += [str(structs.asdict(note)["type"]) for note in notes]  # type: ignore[arg-type]
