"""Watches a run: passes the engine's events to a display, and handles Ctrl-C.

    engine --started, notes--> ProgressWatcher --> Tally (counts)
                                 |-----> Display: JsonDisplay (--json), Lines (no terminal), Live (terminal)
    SIGINT, SIGTERM -----------> interrupt(), and a message to the user

Everything here runs on the engine's thread, so it only counts events and passes them on. SIGHUP keeps its usual
meaning: a closed terminal ends the engine, the steps go on, and `resile resume` adopts them.
"""

from __future__ import annotations

# Not `signal`: it builds enumerations of all signals, which takes 1 % of the time of a short run.
from _signal import SIGINT, SIGTERM
from _signal import signal as set_handler
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from resile.cli.display.output import plural, say
from resile.cli.startup import finish_loading
from resile.core.actions import Note
from resile.core.state import ROOT
from resile.executors.signals import StopSignals
from resile.model.status import STATUS_NAMES, TERMINAL, Status

if TYPE_CHECKING:
    from resile.core.state import State
    from resile.engine.loop import Interrupt

RECENT_MAX = 5

SETTLED = {
    "step_completed": "completed",
    "step_recovered": "recovered",
    "step_cached": "completed",
    "step_failed": "failed",
    "step_canceled": "canceled",
    "step_skipped": "skipped",
    "step_parked": "parked",
}


class Tally:
    """Counts of a run: its steps by status, the running attempts, and the latest failures.

    Only steps of the workflow itself are counted, not those inside items and child workflows, so that `done`, `active`,
    `recovering`, `parked` and `waiting` add up to `total`. `done_before` is the number of steps that had ended when the
    engine took over the run, or that a new epoch keeps. `failing` has the last failed attempt of each job that waits
    for a retry or a repair. `recent_failures` has the latest failures of steps that failed for good or are parked.
    """

    def __init__(self, state: State) -> None:
        self.total = 0
        self._state = state
        self.counts: Counter[str] = Counter()
        self.running: dict[int, Note] = {}
        self.failing: dict[int, Note] = {}
        self.recent_failures: deque[Note] = deque(maxlen=RECENT_MAX)
        self._settled: dict[int, str] = {}
        self._end = state.workflow.end.name
        for job in state.jobs.values():
            if job.scope != ROOT or job.step == state.plan.end or job.status is Status.disabled:
                continue
            self.total += 1
            if job.status is Status.running:
                began, step = state.times(job)[0] or 0.0, state.step_of(job).name
                self.running[job.id] = Note(0, began, "attempt_started", "root", step, job.id, job.attempt)
            elif job.status in TERMINAL or job.status is Status.pending_failed:
                self._settle(job.id, _count_of_status(STATUS_NAMES[job.status], job.recovered, job.tolerated))
        self.done_before = self.done

    @property
    def done(self) -> int:
        """The number of steps that have ended."""
        return len(self._settled) - self.counts["parked"]

    @property
    def active(self) -> int:
        """The number of steps of the workflow itself that run."""
        return self._of_workflow(self.running)

    @property
    def recovering(self) -> int:
        """The number of failed steps that wait for a retry, or whose handler runs."""
        return self._of_workflow(self.failing)

    @property
    def waiting(self) -> int:
        """The number of steps that have not started."""
        return max(0, self.total - len(self._settled) - self.active - self.recovering)

    @property
    def words(self) -> str:
        """The counts in words: `3 of 60 done (1 failed), 4 running, 53 waiting`."""
        special = [f"{count} {word}" for word in ("failed", "tolerated") if (count := self.counts[word])]
        parts = [f"{self.done} of {self.total} done" + (f" ({', '.join(special)})" if special else "")]
        numbers = {
            "running": self.active,
            "recovering": self.recovering,
            "parked": self.counts["parked"],
            "waiting": self.waiting,
        }
        return ", ".join([*parts, *(f"{count} {word}" for word, count in numbers.items() if count)])

    def _of_workflow(self, notes: dict[int, Note]) -> int:
        return sum(note.scope == "root" and note.step != self._end for note in list(notes.values()))

    @property
    def busy(self) -> int:
        """The number of steps that really run: a fan-out or a child workflow only waits for its own steps."""
        jobs = self._state.jobs
        return sum(number not in jobs or not jobs[number].hosting for number in list(self.running))

    def take(self, notes: list[Note]) -> None:
        """Count these events."""
        for note in notes:
            kind = note.type
            if kind == "attempt_started":
                self.running[note.job] = note
                self.failing.pop(note.job, None)
                if note.job in self._settled:
                    self.counts[self._settled.pop(note.job)] -= 1
            elif kind == "attempt_succeeded":
                self.running.pop(note.job, None)
            elif kind in SETTLED:
                self.running.pop(note.job, None)
                failed = self.failing.pop(note.job, None)
                if kind in ("step_failed", "step_parked"):
                    self.recent_failures.append(note if "message" in note.data or failed is None else failed)
                if note.scope == "root" and note.step != self._end:
                    tolerated = bool(note.data.get("tolerated"))
                    self._settle(note.job, "tolerated" if tolerated else SETTLED[kind])
            elif kind in ("attempt_failed", "attempt_lost"):
                self.running.pop(note.job, None)
                self.failing[note.job] = note
            elif kind == "run_resumed" and "epoch" in note.data:
                self._start_over(note.data["failed_only"])

    def _start_over(self, failed_only: bool) -> None:
        """Start a new epoch: count no step as ended, or with `failed_only` the completed ones only."""
        self.running.clear()
        self.failing.clear()
        for job, word in list(self._settled.items()):
            if not failed_only or word not in ("completed", "recovered"):
                del self._settled[job]
                self.counts[word] -= 1
        self.done_before = self.done

    def _settle(self, job: int, word: str) -> None:
        """Count a step that ended."""
        before = self._settled.get(job)
        if before is not None:
            self.counts[before] -= 1
        self._settled[job] = word
        self.counts[word] += 1


def _count_of_status(status: str, recovered: bool, tolerated: bool) -> str:
    """The word under which `counts` has a job that ended before this process watched the run."""
    if status == "completed":
        return "recovered" if recovered else "completed"
    if status == "failed":
        return "tolerated" if tolerated else "failed"
    return {"terminated": "canceled", "pending_failed": "parked"}.get(status, status)


class Display:
    """Shows the progress of a run. This base class shows only urgent messages."""

    def begin(self, run: int, state: State, tally: Tally) -> None:
        """Show that the run has begun; `run` is its id."""

    def show(self, notes: list[Note]) -> None:
        """Show events that are on disk, after `tally` has counted them."""

    def announce(self, text: str) -> None:
        """Show an urgent message; called from a signal handler."""
        say(f"resile: {text}")

    def finish(self) -> None:
        """Clean up the display; the engine has stopped driving the run."""


class JsonDisplay(Display):
    """For programs: prints the run's id on stderr at once, and the failure reports of fan-outs."""

    def begin(self, run: int, _state: State, _tally: Tally) -> None:
        """Print the run's id."""
        say(f"run {run}")

    def show(self, notes: list[Note]) -> None:
        """Print failure reports; the document at the end has the rest."""
        for note in notes:
            if note.type == "errors_reported":
                from resile.cli.display.maps import report

                say(report(note.step, note.data))


class ProgressWatcher:
    """Watches one driven run; as a context manager it restores the signal handlers at its exit."""

    def __init__(self, display: Display, debug: Callable[[str], None] | None = None) -> None:
        self._display = display
        self.debug = debug
        self._interrupt: Interrupt | None = None
        self._interrupts = 0
        self._signals = StopSignals()
        self._before: dict[int, Any] = {}
        self.tally: Tally | None = None
        self.run = 0

    def __enter__(self) -> ProgressWatcher:
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            set_handler(number, handler)
        if self.tally is not None:
            self._display.finish()

    def on_start(self, run: int, state: State, interrupt: Interrupt) -> None:
        """Begin to watch the run with this id; from here on the first Ctrl-C starts no more steps."""
        finish_loading()
        self.run = run
        self._interrupt = interrupt
        self.tally = Tally(state)
        for number in (SIGINT, SIGTERM):
            self._before[number] = set_handler(number, self._stop)
        self._display.begin(run, state, self.tally)

    def notes(self, _state: State, notes: list[Note]) -> None:
        """Count the events, and pass them to the display."""
        assert self.tally is not None
        self.tally.take(notes)
        self._display.show(notes)

    def warn(self, text: str) -> None:
        """Show a warning of the engine."""
        self._display.announce(text)

    def introduce(self, text: str) -> None:
        """Print which system the file was taken to be for, before the display begins."""
        say(f"resile: {text}")

    def _stop(self, number: int, _frame: object) -> None:
        """Handle a signal: after the first one the engine starts no more steps, the second kills those that run."""
        assert self._interrupt is not None
        if self._signals.add(number):
            self._interrupt(self._stopping)

    def _stopping(self) -> None:
        """Tell the user the effect of a signal: the run waits for its running steps, or they are being killed."""
        self._interrupts += 1
        running = 0 if self.tally is None else self.tally.busy
        if self._interrupts == 1:
            waiting = f"waiting for {plural(running, 'running step')}; press Ctrl-C again to kill "
            text = waiting + ("it" if running == 1 else "them") if running else "nothing is running"
            self._display.announce(f"stopping: {text}")
        elif self._interrupts == 2:
            self._display.announce(f"killing {plural(running, 'running step')}")
