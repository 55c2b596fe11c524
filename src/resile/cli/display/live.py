"""The live view on a terminal: a separate thread draws it, so that drawing never delays the run.

    engine thread: show() asks for a new picture          drawing thread: a picture at most 10 times a second

Small runs show every step; large ones a bar, running steps, and the latest failures. Both show the progress of maps,
and print their reports of failed items above the picture. The drawing thread loads the drawing library, and only if a
run takes longer than a blink. It reads statuses from the engine's own state: single values that the engine's thread may
replace, never structures that it changes in place.
"""

from __future__ import annotations

import os
import time
from collections import deque
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from resile.cli.display.maps import Progress, report
from resile.cli.display.output import STATUS_COLORS, duration, escape, plural, say, scoped_name
from resile.cli.display.watch import Display, Tally
from resile.core.actions import Note
from resile.core.state import ROOT, Job
from resile.engine.clock import clock_of
from resile.model.status import Status
from resile.model.workflow import Noop

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from resile.core.state import State

EVERY_STEP_MAX = 20
RUNNING_SHOWN_MAX = 8
MAPS_SHOWN_MAX = 5
BLINK_SECONDS = 0.15
DRAW_SECONDS = 0.1
IDLE_SECONDS = 1.0
# Drawing takes at most this share of the time, even on a slow terminal.
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


class Live(Display):
    """A view of one run that redraws itself until `finish`."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._over = Event()
        self._thread = Thread(target=self._work, name="live view", daemon=True)
        self._news = True
        self._notice = ""
        self._reports: deque[str] = deque()
        self._progress = Progress()
        self._room = 0
        self._problem: Exception | None = None
        self._run = 0
        self._since = time.monotonic()

    def begin(self, run: int, state: State, tally: Tally) -> None:
        """Start the drawing thread."""
        self._run, self._state, self._tally = run, state, tally
        self._thread.start()

    def show(self, notes: list[Note]) -> None:
        """Ask for a new picture."""
        self._reports.extend(
            report(scoped_name(note.scope, note.step), note.data) for note in notes if note.type == "errors_reported"
        )
        self._news = True

    def announce(self, text: str) -> None:
        """Put a line below the picture."""
        self._notice = text
        self._news = True

    def finish(self) -> None:
        """Draw the last picture and release the terminal."""
        self._over.set()
        self._thread.join()
        while self._reports:
            say(self._reports.popleft())
        if self._problem is not None:
            say(f"resile: the live view broke off: {self._problem}")

    def _work(self) -> None:
        """Draw in a thread; an error here must not affect the run."""
        try:
            if not self._over.wait(BLINK_SECONDS):
                self._draw_until_over()
        except Exception as problem:
            if os.environ.get("RESILE_TRACEBACK"):
                raise
            self._problem = problem

    def _draw_until_over(self) -> None:
        """Redraw after each change, and once a second for the clocks."""
        from rich.console import Console
        from rich.live import Live as Screen

        console = Console(stderr=True, highlight=False, color_system="auto" if self._color else None)
        small = self._tally.total <= EVERY_STEP_MAX and self._tally.total + FRAME_LINES <= console.height
        picture = self._every_step if small else self._overview
        self._room = console.height - self._tally.total - FRAME_LINES
        with Screen(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=not small
        ) as screen:
            pause = drawn = 0.0
            while not self._over.wait(pause):
                now = time.monotonic()
                pause = DRAW_SECONDS
                if self._news or now - drawn >= IDLE_SECONDS:
                    self._news = False
                    self._print_reports(console)
                    screen.update(picture(), refresh=True)
                    drawn = time.monotonic()
                    pause = max(DRAW_SECONDS, (drawn - now) / SHARE)
            self._print_reports(console)
            screen.update(picture(), refresh=True)

    def _print_reports(self, console: Console) -> None:
        while self._reports:
            console.print(self._reports.popleft(), style="red", markup=False)

    def _every_step(self) -> RenderableType:
        """Each step with its state, attempts and time."""
        from rich.console import Group
        from rich.text import Text

        state = self._state
        now = clock_of(state).now()
        maps = self._progress.running(state, now)
        rows, inner = _grid(4), _grid(3)
        inside = 0
        for job in list(state.jobs.values()):
            step = state.step_of(job)
            if job.status is Status.disabled or (state.is_end(job) and isinstance(step.action, Noop)):
                continue
            word, color = _word(job, now)
            elapsed = Text(_elapsed_time_of(state, job, now), "dim")
            tries = Text(f"attempt {job.attempt}" if job.attempt > 1 else "", "dim")
            mark = f"{_SYMBOLS.get(job.status_shown, '·')} "
            if job.scope == ROOT:
                name = Text(mark + escape(step.name), color, no_wrap=True)
                rows.add_row(name, Text(word, color, no_wrap=True), tries, elapsed)
            elif job.status is Status.running and not job.hosting:
                # Of repairs, items and child workflows show only running steps; the step around them shows the result.
                inside += 1
                if inside <= min(RUNNING_SHOWN_MAX, self._room - len(maps)):
                    scope = state.scopes.get(job.scope)
                    name = Text(mark + escape(scoped_name(scope.name if scope else "", step.name)), color, no_wrap=True)
                    inner.add_row(name, tries, elapsed)
        return Group(self._headline(), rows, *_map_lines(maps), inner, *self._foot())

    def _overview(self) -> RenderableType:
        """A bar, the longest-running steps, and the latest failures."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self._tally
        rows = _grid(3)
        now = clock_of(self._state).now()
        running = sorted(tally.running.values(), key=lambda note: note.at)
        for note in running[:RUNNING_SHOWN_MAX]:
            tries = f"attempt {note.attempt}" if note.attempt > 1 else ""
            rows.add_row(
                Text(f"▶ {escape(scoped_name(note.scope, note.step))}", "cyan", no_wrap=True),
                tries,
                Text(duration(max(0.0, now - note.at)), "dim"),
            )
        failed = [
            Text(
                f"✘ {escape(scoped_name(note.scope, note.step))}: {escape(note.data.get('message', ''))}",
                "red",
                no_wrap=True,
                overflow="ellipsis",
            )
            for note in list(tally.recent)
        ]
        bar = Table.grid(expand=True)
        bar.add_row(ProgressBar(total=max(1, tally.total), completed=tally.done))
        maps = self._progress.running(self._state, now)
        return Group(self._headline(), bar, *_map_lines(maps), rows, *failed, *self._foot())

    def _headline(self) -> RenderableType:
        """The run, its duration, and the counts."""
        from rich.text import Text

        tally = self._tally
        counts = [f"{tally.done} of {tally.total} done"]
        counts += [f"{tally.counts[word]} {word}" for word in ("failed", "parked") if tally.counts[word]]
        counts.append(f"{tally.busy} running")
        if tally.waiting:
            counts.append(f"{tally.waiting} waiting")
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"run {self._run} {escape(self._state.workflow.name)}", "bold")
        text.append(f"  {duration(time.monotonic() - self._since)}  {', '.join(counts)}")
        return text

    def _foot(self) -> list[Any]:
        from rich.text import Text

        return [Text(self._notice, "yellow")] if self._notice else []


def _grid(count: int) -> Table:
    """A table whose first column takes the remaining width, and is cut if there is too little."""
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    rows.add_column(overflow="ellipsis", no_wrap=True, max_width=48)
    for _ in range(count - 1):
        rows.add_column(no_wrap=True)
    return rows


def _map_lines(maps: list[str]) -> list[Any]:
    """The progress of the first few maps."""
    from rich.text import Text

    lines = [Text(line, "cyan", no_wrap=True, overflow="ellipsis") for line in maps[:MAPS_SHOWN_MAX]]
    hidden = len(maps) - len(lines)
    return [*lines, Text(f"and {plural(hidden, 'more map')}", "dim")] if hidden else lines


def _word(job: Job, now: float) -> tuple[str, str]:
    """A job's status in a word, and its color."""
    status = job.status_shown
    if status in _WAITING:
        return "waiting", "dim"
    if status is Status.recovering and job.timer_at:
        return f"retry in {duration(max(0.0, job.timer_at - now))}", "yellow"
    word = "tolerated" if job.tolerated else "recovered" if job.recovered else status.name
    return ("parked" if status is Status.pending_failed else word), STATUS_COLORS.get(status.name, "dim")


def _elapsed_time_of(state: State, job: Job, now: float) -> str:
    began, ended = state.times(job)
    return "" if began is None else duration(max(0.0, (ended or now) - began))
