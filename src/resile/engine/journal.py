"""Collects the core's decisions and submits them to the writer as one batch.

Orders wait here too: the engine gets them only when the batch with their event is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from resile.core.actions import Action, DropLetter, KeepLetter, KeepScope, Note, Order, StartAttempt, StopEngine
from resile.core.events import Event
from resile.core.state import FORMAT, ROOT, Job, State, encode
from resile.model.items import KeptScope
from resile.model.limits import ITEM_HISTORY_MAX
from resile.model.status import RUN_ENDED, RunStatus, Status
from resile.store.contract import AttemptRow, Batch, Entry, JobRow, RunRow, Snapshot, Writer

SNAPSHOT_ENTRIES_MIN = 20_000
GATHER_SECONDS = 0.020
# If a host drives many runs, one run's attempts end less often: a batch that no order waits for may wait longer.
GATHER_UNAWAITED_SECONDS = 0.100
_KEPT = (KeepLetter, DropLetter, KeepScope)


class Journal:
    """The entries, rows and orders of one driven run on their way to the store."""

    def __init__(self, writer: Writer, run: int, token: str) -> None:
        self._writer = writer
        self._run = run
        self._token = token
        self._entries: list[Entry] = []
        self._attempts: dict[tuple[int, int, int], AttemptRow] = {}
        self._touched: set[int] = set()
        self._rows: dict[int, JobRow] = {}
        self._letters: dict[tuple[str, int], KeepLetter | DropLetter] = {}
        self._scopes: dict[int, KeptScope] = {}
        self._orders: list[Order] = []
        self._notes: list[Note] = []
        self._row: RunRow | None = None
        self._answered: dict[int, dict[str, Any] | None] = {}
        self._written: deque[tuple[int, list[Order], list[Note]]] = deque()
        self._since_snapshot = 0
        # When the first of the entries was collected.
        self.gathers_since = 0.0
        # Makes the closing row of a run from its state.
        self.closing: Callable[[State, RunStatus], RunRow] | None = None
        self._closed_seq = -1

    def add(self, state: State, event: Event, actions: list[Action], attempt: AttemptRow | None) -> None:
        """Add one event with its notes and orders, and remember which rows it changed."""
        notes: list[Note] = []
        for action in actions:
            # The most frequent first, and by its exact type: isinstance is slow to reject a Struct.
            if type(action) is StartAttempt:
                self._orders.append(action)
            elif isinstance(action, Note):
                notes.append(action)
            elif isinstance(action, _KEPT):
                self._keep(action)
            else:
                self._orders.append(action)
        self._entries.append(Entry(notes[0].seq if notes else state.seq, event, tuple(notes)))
        self._notes += notes
        for number in set(state.touched):
            job = state.jobs[number]
            if job.scope == ROOT:
                self._touched.add(number)
            else:
                # Make the row now: the next event may drop the job's scope.
                self._rows[number] = job_row(state, job)
        state.touched.clear()
        if attempt is not None:
            self._attempts[attempt.job, attempt.epoch, attempt.attempt] = attempt

    def _keep(self, record: KeepLetter | DropLetter | KeepScope) -> None:
        """Add a changed dead letter, or the scope that a letter needs, to the next batch."""
        if isinstance(record, KeepScope):
            self._scopes[record.kept.scope] = record.kept
            return
        if isinstance(record, DropLetter):
            self._letters[record.name, record.index] = record
            return
        letter = record.letter
        key = letter.name, letter.item.index
        before = self._letters.get(key)
        # The letter takes over the history of an earlier letter of the same item in this batch.
        if record.goes_on and isinstance(before, KeepLetter) and before.letter.item.value == letter.item.value:
            history = (*before.letter.item.history, *letter.item.history)[-ITEM_HISTORY_MAX:]
            record = KeepLetter(replace(letter, item=replace(letter.item, history=history)), before.goes_on)
        self._letters[key] = record

    def copy_attempts(self, rows: Iterable[AttemptRow]) -> None:
        """Write rows of attempts whose events are elsewhere in the log, or in that of another run."""
        self._attempts |= {(row.job, row.epoch, row.attempt): row for row in rows}

    def skip_ready(self, state: State) -> None:
        """Leave out rows of jobs that are still ready: the run was stored with them."""
        self._touched = {number for number in self._touched if state.jobs[number].status is not Status.ready}

    def forget_orders(self) -> None:
        """Drop the orders so far: a resume repeats every order that is still to be performed."""
        self._orders.clear()

    def answer(self, request: int, result: dict[str, Any] | None = None) -> None:
        """Mark a request as answered in the next batch, which holds its event; `result` is for its caller."""
        self._answered[request] = result

    def write_row(self, row: RunRow) -> None:
        """Write the run's own row with the next batch."""
        self._row = row

    def is_closed(self, state: State) -> bool:
        """Did the last batch have the end of the run and its closing row?"""
        return self._closed_seq == state.seq

    def has_entries(self) -> bool:
        """Are there entries or rows that have not been submitted to the writer?"""
        return bool(self._entries or self._answered) or self._row is not None

    def has_orders(self) -> bool:
        """Do orders wait for a batch that has not been submitted?"""
        return bool(self._orders)

    def gathers_until(self, among_many: bool) -> float:
        """Until when to collect before the next batch; `among_many` if the run is one of many that a host drives."""
        is_awaited = self._orders or self._answered or not among_many
        return self.gathers_since + (GATHER_SECONDS if is_awaited else GATHER_UNAWAITED_SECONDS)

    def is_unfinished(self) -> bool:
        """Is a batch not durable yet, or has the engine not taken its orders?"""
        return bool(self._entries or self._answered or self._written) or self._row is not None

    def submit(self, state: State, *, snapshot: bool = False, at_once: bool = False) -> None:
        """Submit the collected batch to the writer; `at_once` if the engine is idle until it is durable."""
        self._since_snapshot += len(self._entries)
        picture = None
        last = self._orders[-1] if self._orders else None
        if type(last) is StopEngine and last.status in RUN_ENDED and self.closing is not None:
            self._row, self._closed_seq, snapshot = self.closing(state, last.status), state.seq, True
        # A snapshot holds every job, so its interval grows with the number of jobs: snapshots together cost no more
        # than the entries between them.
        if snapshot or self._since_snapshot >= max(SNAPSHOT_ENTRIES_MIN, len(state.jobs)):
            self._since_snapshot = 0
            picture = Snapshot(state.seq, FORMAT, encode(state))
        rows = self._rows
        _add_root_rows(state, self._touched, rows)
        batch = Batch(self._run, self._token, self._entries, rows, self._attempts, self._row, picture, self._answered)
        if self._letters:
            batch.letters = tuple(self._letters.values())
            self._letters = {}
        if self._scopes:
            batch.scopes = tuple(self._scopes.values())
            self._scopes = {}
        self._written.append((self._writer.submit(batch, at_once=at_once), self._orders, self._notes))
        self._entries, self._orders, self._notes = [], [], []
        self._attempts, self._touched, self._rows, self._row, self._answered = {}, set(), {}, None, {}

    def submit_answers(self) -> None:
        """Submit nothing but answers to requests, of a run that no engine drives."""
        self._writer.submit(Batch(self._run, self._token, [], {}, {}, answered=self._answered))
        self._answered = {}

    def take_durable(self) -> tuple[list[Order], list[Note]]:
        """Take the orders and notes whose batches are durable: they may be performed and shown."""
        orders: list[Order] = []
        notes: list[Note] = []
        done = self._writer.durable()
        while self._written and self._written[0][0] <= done:
            _, more_orders, more_notes = self._written.popleft()
            orders += more_orders
            notes += more_notes
        return orders, notes


def job_row(state: State, job: Job) -> JobRow:
    """The row of a job."""
    scope = state.scopes.get(job.scope)
    return _row(state, job, state.step_of(job).name, "root" if scope is None else scope.name)


def _add_root_rows(state: State, numbers: Iterable[int], rows: dict[int, JobRow]) -> None:
    """Add the rows of these jobs of the root scope; the scope's name is looked up once for all."""
    jobs, steps = state.jobs, state.plans[ROOT].steps
    for number in numbers:
        job = jobs[number]
        rows[number] = _row(state, job, steps[job.step].name, "root")


def _row(state: State, job: Job, step: str, scope: str) -> JobRow:
    """The row of a job, given the names of its step and its scope."""
    cause = job.cause
    began, ended = state.times(job)
    return JobRow(
        job.id,
        step,
        scope,
        job.status_shown,
        job.attempts_started,
        job.exit_code,
        job.recovered,
        job.tolerated,
        None if cause is None else {"step": cause.step, "job": cause.job, "status": cause.status},
        began,
        ended,
    )
