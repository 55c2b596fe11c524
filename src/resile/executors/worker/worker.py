"""A worker: its main thread runs attempts, one thread claims them, one reports them.

    claim --> inbox --> runner --> book --> report --> the server has recorded the end: the worker drops the attempt

If the server does not answer, the worker calls again; meanwhile attempts go on, and the book keeps what the worker must
report. If the server no longer knows the worker, the worker registers again. The server then says which attempts the
worker no longer owns; the worker ends those before it claims any more.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from threading import Condition, Thread
from types import FrameType

from msgspec import Struct
from msgspec.json import Decoder

from resile.errors import ResileError
from resile.executors.signals import StopSignals
from resile.executors.worker.book import Book
from resile.executors.worker.connection import Away, Connection, Problem, Refused, Unknown
from resile.executors.worker.messages import AHEAD, Appeal, Beat, Grant, Introduction, Welcome, Word
from resile.executors.worker.reports import gather, note_sent
from resile.executors.worker.runner import Runner
from resile.executors.worker.shared_folder import share, unshare

CALL_SECONDS_MAX = 30.0
CLAIM_SECONDS = 20.0
# How often the worker looks for new output, and how long it may be silent before it sends a heartbeat.
LOOK_SECONDS, BEAT_SECONDS = 0.5, 4.0
AWAY_SECONDS_MAX = 2.0
# While attempts queue for its slots, the worker pauses this long before it reads the launcher, and before it reports.
GATHER_SECONDS, REPORT_SECONDS = 0.002, 0.01
# How long a worker that stops tries to deliver the ends of its steps to a server that does not answer.
DELIVER_SECONDS_MAX = 30.0


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """The options of `resile worker`, with their defaults filled in."""

    server: str
    token: str
    name: str
    slots: int
    labels: tuple[str, ...]
    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...]
    directory: str
    max_idle_seconds: float | None = None
    shared_output: str = ""


class Worker:
    """One worker process, from its start to its end."""

    def __init__(self, settings: WorkerSettings, env: dict[bytes, bytes]) -> None:
        self._settings = settings
        self._book = Book(settings.directory)
        self._shared = share(settings.shared_output, self._book.read_mark()) if settings.shared_output else None
        self._runner = Runner(self._book, settings.slots, env, self._shared.path if self._shared else "")
        self._id = self._book.read_id()
        # Guards the book and all attributes below; a thread that changes any of them notifies the others.
        self._changed = Condition()
        self._inbox: list[Grant] = []
        self._is_registered = False
        # How often it has registered: a refusal that was meant for an earlier registration changes nothing.
        self._registrations = 0
        self._is_draining = False
        self._is_over = False
        self._signals = 0
        self._stop_signals = StopSignals()
        self._away_since: float | None = None
        self._refusal: ResileError | None = None
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._connections = [Connection(settings.server, settings.token) for _ in range(2)]

    def run(self) -> int:
        """Work until the worker has drained, has been idle for too long, or gives up; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Before any thread starts: msgspec crashes if two threads use a type for the first time at the same moment.
        for kind in (Grant, Problem, Welcome, Word):
            Decoder(kind)
        talks = [
            Thread(target=self._guard, args=(self._claim,), name="claim", daemon=True),
            Thread(target=self._guard, args=(self._report,), name="report", daemon=True),
        ]
        for thread in talks:
            thread.start()
        try:
            code = self._work()
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
                finished = not self._book.entries
        talks[1].join(LOOK_SECONDS * 4)
        if self._refusal is None and self._is_registered:
            with suppress(Away, Unknown, Refused):
                beat = Beat(leaving=finished)
                Connection(self._settings.server, self._settings.token).post(self._path("heartbeat"), beat, Word, 2.0)
        self._runner.close(finished=finished)
        self._book.close()
        if self._shared is not None:
            unshare(self._shared)
        if self._refusal is not None:
            raise self._refusal
        return code

    # --- the main thread

    def _work(self) -> int:
        """Run attempts until the worker must stop and holds none; return the exit code."""
        poll = select.poll()
        poll.register(self._runner.fileno(), select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        busy_at = dropped_at = time.monotonic()
        while True:
            with self._changed:
                self._go_round()
                now = time.monotonic()
                if self._book.entries or self._inbox:
                    busy_at = now
                elif self._is_draining or self._refusal is not None or self._is_idle(now - busy_at):
                    return 0
                has_reserve = self._has_reserve()
                code = self._give_up(now)
                if code is not None:
                    return code
            if has_reserve:
                # The slots are busy: handle all that ends within this pause in one round.
                time.sleep(GATHER_SECONDS)
            if now - dropped_at > BEAT_SECONDS:
                dropped_at = now
                with self._changed:
                    self._runner.drop_unused()
            poll.poll(1000)
            with suppress(BlockingIOError):
                os.eventfd_read(self._wakeup)

    def _go_round(self) -> None:
        """Start claimed attempts, kill those that the server or a signal ends, and read the launcher's reports."""
        inbox, self._inbox = self._inbox, []
        for grant in inbox:
            self._runner.start(grant.attempts, grant.profiles)
        if self._signals:
            self._is_draining = True
        for entry in list(self._book.entries.values()):
            entry.is_stopped = entry.is_stopped or self._signals > 1
            if entry.end is None and (entry.is_killed or entry.is_gone or entry.is_stopped):
                self._runner.kill(entry)
        is_new = self._runner.collect()
        for entry in list(self._book.entries.values()):
            if entry.is_gone and entry.end is not None:
                self._book.drop(entry)
                is_new = True
        if is_new or inbox:
            self._changed.notify_all()

    def _has_reserve(self) -> bool:
        """Does the worker hold more than twice as many unfinished attempts as it has slots?"""
        return len(self._runner.unfinished) > 2 * self._settings.slots

    def _is_idle(self, seconds: float) -> bool:
        longest = self._settings.max_idle_seconds
        return longest is not None and seconds >= longest

    def _give_up(self, now: float) -> int | None:
        """The exit code of a worker that drains but can't deliver its last ends; None while it goes on."""
        live = any(entry.end is None for entry in self._book.entries.values())
        if not self._is_draining or live or self._away_since is None:
            return None
        if now - self._away_since < DELIVER_SECONDS_MAX:
            return None
        _say(
            f"the server is away: {len(self._book.entries)} ends stay in {self._book.folder} for the next worker there"
        )
        return 1

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Drain at the first signal; end the steps at the second."""
        if not self._stop_signals.add(number):
            return
        self._signals += 1
        words = ("draining: finishes what it has; another signal ends the steps", "ending the steps")
        _say(words[min(self._signals, 2) - 1])
        os.eventfd_write(self._wakeup, 1)

    # --- the threads that talk

    def _guard(self, talk: object) -> None:
        """Run `talk` until the worker ends; if the server refuses the worker, keep the error and drain."""
        assert callable(talk)
        try:
            talk()
        except ResileError as error:
            with self._changed:
                self._refusal = error
                self._signals = max(self._signals, 1)
                self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        os.eventfd_write(self._wakeup, 1)

    def _path(self, name: str) -> str:
        return f"/workers/{self._id}/{name}"

    def _claim(self) -> None:
        """Claim attempts while the worker does not drain."""
        pause = 0.1
        connection = self._connections[0]
        while True:
            with self._changed:
                # First end the attempts that the worker no longer owns, and start those that it has claimed.
                while any(entry.is_gone for entry in self._book.entries.values()) or self._inbox:
                    self._changed.wait(LOOK_SECONDS)
                if self._is_draining or self._is_over:
                    return
                held = list(self._book.entries)
                path = self._path("claim")
                is_registered, registration = self._is_registered, self._registrations
            try:
                if not is_registered:
                    self._register(connection)
                    continue
                appeal = Appeal(
                    slots=self._settings.slots + max(self._settings.slots, AHEAD), wait_seconds=CLAIM_SECONDS, held=held
                )
                grant = connection.post(path, appeal, Grant, CLAIM_SECONDS + CALL_SECONDS_MAX)
            except Away as problem:
                self._note_away(problem)
                time.sleep(pause)
                pause = min(pause * 2, AWAY_SECONDS_MAX)
                continue
            except Unknown:
                with self._changed:
                    self._note_unknown(registration)
                continue
            pause = 0.1
            with self._changed:
                self._hear(grant.word)
                if grant.attempts:
                    self._inbox.append(grant)
                self._wake()

    def _report(self) -> None:
        """Send reports to the server, or a heartbeat if there is nothing to report."""
        pause, last_at = 0.1, 0.0
        connection = self._connections[1]
        while True:
            if self._has_reserve():
                # Reports may wait: the worker does not need more attempts yet.
                time.sleep(REPORT_SECONDS)
            with self._changed:
                told = gather(self._book, time.monotonic())
                is_empty = not (told.starts or told.output or told.ends)
                is_due = self._is_registered and (not is_empty or time.monotonic() - last_at >= self._beat_seconds())
                if not is_due:
                    if self._is_over:
                        return
                    self._changed.wait(self._look_seconds())
                    continue
                path = self._path("heartbeat" if is_empty else "reports")
                beat, registration = Beat(draining=self._is_draining), self._registrations
            try:
                word = connection.post(path, beat if is_empty else told, Word, CALL_SECONDS_MAX)
            except Away as problem:
                self._note_away(problem)
                if self._is_over:
                    return
                time.sleep(pause)
                pause = min(pause * 2, AWAY_SECONDS_MAX)
                continue
            except Unknown:
                with self._changed:
                    self._note_unknown(registration)
                    if self._is_draining and not self._is_registered:
                        # The claiming thread, which registers otherwise, has ended.
                        self._register_soon(connection)
                continue
            pause, last_at = 0.1, time.monotonic()
            with self._changed:
                note_sent(self._book, told, time.monotonic())
                self._hear(word)
                self._wake()

    def _beat_seconds(self) -> float:
        """The longest silence before a heartbeat; short while a draining worker waits for its ends to be recorded."""
        waits = self._is_draining and any(entry.end_sent_at for entry in self._book.entries.values())
        return 0.1 if waits else BEAT_SECONDS

    def _look_seconds(self) -> float:
        return min(LOOK_SECONDS, self._beat_seconds())

    def _register_soon(self, connection: Connection) -> None:
        """Try once to register; if the server does not answer, note that."""
        try:
            self._register(connection)
        except (Away, Unknown) as problem:
            self._note_away(problem)

    def _register(self, connection: Connection) -> None:
        """Introduce the worker to the server, with the attempts that it holds; mark those that it no longer owns."""
        own = self._settings
        with self._changed:
            told = Introduction(
                name=own.name,
                slots=own.slots,
                labels=list(own.labels),
                cpus=own.cpus,
                memory_bytes=own.memory_bytes,
                gpus=list(own.gpus),
                id=self._id,
                held=list(self._book.entries),
                shared_output=self._shared,
            )
        welcome = connection.post("/workers", told, Welcome, CALL_SECONDS_MAX)
        with self._changed:
            if welcome.id != self._id:
                self._id = welcome.id
                self._book.write_id(welcome.id)
            for entry in self._book.entries.values():
                entry.is_start_sent, entry.end_sent_at, entry.sent = False, 0.0, {}
            self._hear(Word([], welcome.gone, [], {}, False))
            self._is_registered = True
            self._registrations += 1
            self._wake()
        _say(f"registered as {welcome.id} at {own.server}")

    def _note_unknown(self, registration: int) -> None:
        """The server did not know the worker of this registration; the other thread may have registered again since."""
        if self._registrations == registration:
            self._is_registered = False

    def _note_away(self, problem: Exception) -> None:
        """Note, and log once, that the server does not answer."""
        with self._changed:
            if self._away_since is None:
                self._away_since = time.monotonic()
                _say(f"the server does not answer ({problem}); running steps go on")
                self._wake()

    def _hear(self, word: Word) -> None:
        """Note the server's orders in the book, and drain if it says so."""
        self._away_since = None
        entries = self._book.entries
        for token in word.kill:
            if token in entries:
                entries[token].is_killed = True
        for token in word.recorded:
            if token in entries and entries[token].end is not None:
                self._book.drop(entries[token])
        for token in word.gone:
            if token in entries and not entries[token].is_gone:
                entries[token].is_gone = True
                _say(f"attempt {token} is not this worker's any more")
        for token, (out, err) in word.need.items():
            if token in entries:
                entries[token].sent, entries[token].end_sent_at = {"out": out, "err": err}, 0.0
        if word.drain:
            self._is_draining = True


def _say(text: str) -> None:
    """Write a line of the worker's log to standard error."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()
