"""The live view on a terminal: drawn by a thread of its own, so that looking never holds up the run.

    engine thread: show() marks that there is news        drawing thread: a picture at most 10 times a second

Small runs show every step; large ones a bar, what runs, and what failed last. The drawing library is loaded by the
drawing thread, and only when a run takes longer than a blink. Step states are read from the engine's own state:
single words that another thread may replace, never structures that it takes apart.
"""

from __future__ import annotations

import os
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from resile.core.actions import Note
from resile.core.state import ROOT, Job
from resile.model.status import Status
from resile.model.workflow import Noop
from resile.surfaces.cli.output import STATUS_COLORS, duration, say, visible
from resile.surfaces.cli.watch import Tally

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from resile.core.state import State

EVERY_STEP_MAX = 20
RUNNING_SHOWN_MAX = 8
BLINK_SECONDS = 0.15
DRAW_SECONDS = 0.1
IDLE_SECONDS = 1.0
# Drawing takes at most this share of the time, however slow the terminal is.
SHARE = 0.05
FRAME_LINES = 4

_SYMBOLS = {
    Status.running: "▶",
    Status.completed: "✔",
    Status.failed: "✘",
    Status.recovering: "↻",
    Status.pending_failed: "■",
    Status.canceled: "–",
    Status.terminated: "–",
    Status.skipped: "–",
}
_WAITING = (Status.uninitialized, Status.blocked, Status.ready, Status.pending)


class Live:
    """A view of one run that redraws itself until `finish`."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._over = Event()
        self._thread = Thread(target=self._work, name="live view", daemon=True)
        self._news = True
        self._notice = ""
        self._problem: Exception | None = None
        self._run = 0
        self._since = time.time()

    def begin(self, run: int, state: State, tally: Tally) -> None:
        """Start drawing soon."""
        self._run, self._state, self._tally = run, state, tally
        self._thread.start()

    def show(self, _notes: list[Note]) -> None:
        """There is news for the next picture."""
        self._news = True

    def announce(self, text: str) -> None:
        """Put a line below the picture."""
        self._notice = text
        self._news = True

    def finish(self) -> None:
        """Draw the last picture and give the terminal back."""
        self._over.set()
        self._thread.join()
        if self._problem is not None:
            say(f"resile: the live view broke off: {self._problem}")

    def _work(self) -> None:
        """The drawing thread; whatever goes wrong here must not touch the run."""
        try:
            if not self._over.wait(BLINK_SECONDS):
                self._draw_until_over()
        except Exception as problem:
            if os.environ.get("RESILE_TRACEBACK"):
                raise
            self._problem = problem

    def _draw_until_over(self) -> None:
        """Redraw when there is news, and once a second for the clocks."""
        from rich.console import Console
        from rich.live import Live as Screen

        console = Console(stderr=True, highlight=False, color_system="auto" if self._color else None)
        small = self._tally.total <= EVERY_STEP_MAX and self._tally.total + FRAME_LINES <= console.height
        picture = self._every_step if small else self._overview
        with Screen(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=not small
        ) as screen:
            pause = drawn = 0.0
            while not self._over.wait(pause):
                now = time.monotonic()
                pause = DRAW_SECONDS
                if self._news or now - drawn >= IDLE_SECONDS:
                    self._news = False
                    screen.update(picture(), refresh=True)
                    drawn = time.monotonic()
                    pause = max(DRAW_SECONDS, (drawn - now) / SHARE)
            screen.update(picture(), refresh=True)

    def _every_step(self) -> RenderableType:
        """Each step with its state, attempts and time."""
        from rich.console import Group
        from rich.text import Text

        state = self._state
        rows = _grid(4)
        for job in list(state.jobs.values()):
            step = state.step_of(job)
            if job.status is Status.disabled or (state.is_end(job) and isinstance(step.action, Noop)):
                continue
            # Of repairs only what runs is shown; the step that they are for tells what came of them.
            if job.scope != ROOT and job.status is not Status.running:
                continue
            word, color = _word(job)
            name = visible(step.name if job.scope == ROOT else f"  {step.name}")
            mark = Text(f"{_SYMBOLS.get(job.status, '·')} {name}", color, no_wrap=True)
            tries = Text(f"attempt {job.attempt}" if job.attempt > 1 else "", "dim")
            rows.add_row(mark, Text(word, color, no_wrap=True), tries, Text(_elapsed(job), "dim"))
        return Group(self._headline(), rows, *self._foot())

    def _overview(self) -> RenderableType:
        """A bar, what runs longest, and what failed last."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self._tally
        rows = _grid(3)
        now = time.time()
        running = sorted(tally.running.values(), key=lambda note: note.at)
        for note in running[:RUNNING_SHOWN_MAX]:
            tries = f"attempt {note.attempt}" if note.attempt > 1 else ""
            rows.add_row(
                Text(f"▶ {visible(note.step)}", "cyan", no_wrap=True),
                tries,
                Text(duration(max(0.0, now - note.at)), "dim"),
            )
        failed = [
            Text(
                f"✘ {visible(note.step)}: {visible(note.data.get('message', ''))}",
                "red",
                no_wrap=True,
                overflow="ellipsis",
            )
            for note in list(tally.recent)
        ]
        bar = Table.grid(expand=True)
        bar.add_row(ProgressBar(total=max(1, tally.total), completed=tally.done))
        return Group(self._headline(), bar, rows, *failed, *self._foot())

    def _headline(self) -> RenderableType:
        """The run, how long it goes, and the counts."""
        from rich.text import Text

        tally = self._tally
        counts = [f"{tally.done} of {tally.total} done"]
        counts += [f"{tally.counts[word]} {word}" for word in ("failed", "parked") if tally.counts[word]]
        counts.append(f"{len(tally.running)} running")
        if tally.waiting:
            counts.append(f"{tally.waiting} waiting")
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"run {self._run} {visible(self._state.workflow.name)}", "bold")
        text.append(f"  {duration(time.time() - self._since)}  {', '.join(counts)}")
        return text

    def _foot(self) -> list[Any]:
        """What the user was told last."""
        from rich.text import Text

        return [Text(self._notice, "yellow")] if self._notice else []


def _grid(count: int) -> Table:
    """Rows whose first column takes the room that is left, and is cut where there is none."""
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    rows.add_column(overflow="ellipsis", no_wrap=True, max_width=48)
    for _ in range(count - 1):
        rows.add_column(no_wrap=True)
    return rows


def _word(job: Job) -> tuple[str, str]:
    """A job's state in a word and its color."""
    status = job.status
    if status in _WAITING:
        return "waiting", "dim"
    if status is Status.recovering and job.due:
        return f"retry in {duration(max(0.0, job.due - time.time()))}", "yellow"
    word = "tolerated" if job.tolerated else "recovered" if job.recovered else status.name
    return ("parked" if status is Status.pending_failed else word), STATUS_COLORS.get(status.name, "dim")


def _elapsed(job: Job) -> str:
    """How long a job has been at it."""
    if job.started_at is None:
        return ""
    return duration(max(0.0, (job.ended_at or time.time()) - job.started_at))
