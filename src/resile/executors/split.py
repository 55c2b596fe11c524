"""Combines two executors: commands go to one, calls of Python functions to the other."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resile.executors.contract import Executor, Launch, Report, Stream
from resile.executors.functions.spool import FOLDER
from resile.model.failure import LogRange

if TYPE_CHECKING:
    from resile.executors.functions.executor import FunctionExecutor

Key = tuple[int, int]


class Composite:
    """Sends each attempt to its executor; see the Executor contract for the methods."""

    def __init__(self, commands: Executor, functions: FunctionExecutor, is_call: Callable[[int], bool]) -> None:
        """`is_call` says whether a job calls a function."""
        self.commands = commands
        self._functions = functions
        self._is_call = is_call
        self.records = commands.records
        self._epoll = select.epoll()
        for executor in (commands, functions):
            self._epoll.register(executor.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def start(self, launches: Sequence[Launch]) -> None:
        calls = [launch for launch in launches if launch.call is not None]
        if calls:
            self._functions.start(calls)
        if len(calls) < len(launches):
            self.commands.start([launch for launch in launches if launch.call is None])

    def kill(self, job: int, attempt: int) -> None:
        (self._functions if self._is_call(job) else self.commands).kill(job, attempt)

    def find(self, attempts: Mapping[Key, bool]) -> None:
        for executor, calls in ((self._functions, True), (self.commands, False)):
            executor.find({key: doubt for key, doubt in attempts.items() if self._is_call(key[0]) is calls})

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:
        return self.commands.lacks_end(job, attempt, log)

    def drain(self) -> None:
        self._functions.drain()
        self.commands.drain()

    def reports(self) -> list[Report]:
        return self._functions.reports() + self.commands.reports()

    def queued_count(self) -> int:
        return self._functions.queued_count() + self.commands.queued_count()

    def acknowledge(self) -> None:
        self._functions.acknowledge()
        self.commands.acknowledge()

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        return b"" if log is None else self._writer_of(log).read_output(log, stream, start, length)

    def follow_output(self, log: LogRange, stream: Stream, start: int, length: int, *, job: int, attempt: int) -> bytes:
        return self._writer_of(log).follow_output(log, stream, start, length, job=job, attempt=attempt)

    def sync_output(self, logs: Iterable[LogRange]) -> None:
        # All output of an epoch is in one folder.
        self.commands.sync_output(logs)

    def _writer_of(self, log: LogRange) -> Executor:
        return self._functions if log.segment.startswith(f"{FOLDER}/") else self.commands

    def close(self, *, finished: bool = False) -> None:
        self._functions.close(finished=finished)
        self.commands.close(finished=finished)
        self._epoll.close()
