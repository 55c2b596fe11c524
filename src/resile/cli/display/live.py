"""The live view on a terminal: a separate thread draws it, so that drawing never delays the run.

    engine thread: show() asks for a new picture          drawing thread: a picture at most 10 times a second

Small runs show every step; large ones a bar, the steps that run longest, the failures that are being answered, and the
latest that stand. So the picture does not grow with the run. Both show the progress of maps, and print their reports of
failed items above the picture. Every status is a word or a sign, never only a color. The drawing thread loads the
drawing library, and only if a run takes longer than a blink. It reads statuses from the engine's own state: single
values that the engine's thread may replace, never structures that it changes in place.
"""

from __future__ import annotations

import os
import time
from collections import deque
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from resile.cli.display.maps import Progress, report
from resile.cli.display.output import STATUS_COLORS, duration, escape, fit, pad, plural, say, status_word, width
from resile.cli.display.watch import Display, Tally
from resile.core.actions import Note
from resile.core.state import ROOT, Job
from resile.engine.clock import clock_of
from resile.model.nested import step_name
from resile.model.status import Status
from resile.model.workflow import Noop

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from resile.core.state import State

EVERY_STEP_MAX = 20
RUNNING_SHOWN_MAX = 8
RECOVERING_SHOWN_MAX = 4
MAPS_SHOWN_MAX = 5
BLINK_SECONDS = 0.15
DRAW_SECONDS = 0.1
IDLE_SECONDS = 1.0
# Drawing takes at most this share of the time, even on a slow terminal.
SHARE = 0.05
FRAME_LINES = 5
NAME_COLUMNS_MIN = 10
MESSAGE_COLUMNS_MIN = 12

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
_TROUBLE = ("failed", "tolerated", "parked", "recovering")


class _Row(NamedTuple):
    """One step in the picture; all texts are free of control characters."""

    color: str
    name: str
    word: str
    tries: str
    time: str
    message: str = ""


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
        self._columns = 80
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
            report(step_name(note.scope, note.step), note.data) for note in notes if note.type == "errors_reported"
        )
        self._news = True

    def announce(self, text: str) -> None:
        """Put a line below the picture."""
        self._notice = escape(text)
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
                    self._columns = console.width
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

        state = self._state
        now = clock_of(state).now()
        maps = self._progress.running(state, now)
        room = min(RUNNING_SHOWN_MAX, self._room - len(maps))
        rows: list[_Row] = []
        inner: list[_Row] = []
        messages = {
            note.job: _message(note)
            for note in (*list(self._tally.recent_failures), *list(self._tally.failing.values()))
        }
        for job in list(state.jobs.values()):
            step = state.step_of(job)
            if job.status is Status.disabled or (state.is_end(job) and isinstance(step.action, Noop)):
                continue
            word, color = _word(job, now)
            facts = (_tries(job.attempt), _elapsed_time_of(state, job, now))
            mark = f"{_SYMBOLS.get(job.status_shown, '·')} "
            if job.scope == ROOT:
                message = messages.get(job.id, "") if word in _TROUBLE or job.timer_at else ""
                rows.append(_Row(color, mark + escape(step.name), word, *facts, message))
            elif job.status is Status.running and not job.hosting and len(inner) < room:
                # Of repairs, items and child workflows show only running steps; the step around them shows the result.
                scope = state.scopes.get(job.scope)
                name = mark + escape(step_name(scope.name if scope else "", step.name))
                inner.append(_Row(color, name, "", *facts))
        return Group(
            self._headline(), *self._row_lines(rows), *_map_lines(maps), *self._row_lines(inner), *self._foot()
        )

    def _overview(self) -> RenderableType:
        """A bar, the longest-running steps, the failures that are being answered, and the latest that stand."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self._tally
        now = clock_of(self._state).now()
        running = sorted(tally.running.values(), key=lambda note: note.at)
        rows = [
            _Row("cyan", f"▶ {_name(note)}", "", _tries(note.attempt), duration(max(0.0, now - note.at)))
            for note in running[:RUNNING_SHOWN_MAX]
        ]
        more = len(running) - RUNNING_SHOWN_MAX
        rest = [Text(f"  and {more} more running", "dim")] if more > 0 else []
        failing = [note for note in list(tally.failing.values()) if note.job not in tally.running]
        answered = [_line(f"↻ {_failure_text(note)}", "yellow") for note in failing[-RECOVERING_SHOWN_MAX:]]
        failed = [_line(f"✘ {_failure_text(note)}", "red") for note in list(tally.recent_failures)]
        bar = Table.grid(expand=True)
        bar.add_row(ProgressBar(total=max(1, tally.total), completed=tally.done))
        maps = self._progress.running(self._state, now)
        shown = (*_map_lines(maps), *self._row_lines(rows), *rest, *answered, *failed)
        return Group(self._headline(), bar, *shown, *self._foot())

    def _row_lines(self, rows: list[_Row]) -> list[Text]:
        """Lines with aligned columns: long names are cut, messages get the remaining width."""
        from rich.text import Text

        if not rows:
            return []
        words, tries, times = (max(map(len, cells)) for cells in list(zip(*rows, strict=True))[2:5])
        room = self._columns - sum(size + 2 for size in (words, tries, times) if size)
        names = max(NAME_COLUMNS_MIN, min(room, max(width(row.name) for row in rows)))
        lines = []
        for row in rows:
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(pad(fit(row.name, names), names), row.color)
            line.append(f"  {row.word:<{words}}" if words else "", row.color)
            line.append(
                (f"  {row.tries:<{tries}}" if tries else "") + (f"  {row.time:>{times}}" if times else ""), "dim"
            )
            line.append(f"  {row.message}" if row.message and room - names > MESSAGE_COLUMNS_MIN else "", row.color)
            line.rstrip()
            lines.append(line)
        return lines

    def _headline(self) -> RenderableType:
        """The run, its duration, and the counts."""
        from rich.text import Text

        took, counts = duration(time.monotonic() - self._since), self._tally.words
        name = fit(
            escape(self._state.workflow.name), max(NAME_COLUMNS_MIN, self._columns - len(f"run {self._run}  {took}"))
        )
        text = Text()
        text.append(f"run {self._run} {name}", "bold")
        text.append(f"  {took}")
        # A narrow terminal has the counts on lines of their own.
        fits = width(text.plain) + 2 + len(counts) <= self._columns
        text.append(f"  {counts}" if fits else f"\n{counts}")
        return text

    def _foot(self) -> list[Any]:
        from rich.text import Text

        return [Text(self._notice, "yellow")] if self._notice else []


def _tries(attempt: int) -> str:
    return f"attempt {attempt}" if attempt > 1 else ""


def _name(note: Note) -> str:
    return escape(step_name(note.scope, note.step))


def _message(note: Note) -> str:
    return escape(note.data.get("message", ""))


def _failure_text(note: Note) -> str:
    """A failure after the name of its step."""
    return f"{_name(note)}: {_message(note)}"


def _line(text: str, color: str) -> Text:
    """A text on one line, cut if there is too little width."""
    from rich.text import Text

    return Text(text, color, no_wrap=True, overflow="ellipsis")


def _map_lines(maps: list[str]) -> list[Any]:
    """The progress of the first few maps."""
    from rich.text import Text

    lines = [_line(line, "cyan") for line in maps[:MAPS_SHOWN_MAX]]
    hidden = len(maps) - len(lines)
    return [*lines, Text(f"and {plural(hidden, 'more map')}", "dim")] if hidden else lines


def _word(job: Job, now: float) -> tuple[str, str]:
    """A job's status in a word, and its color."""
    status = job.status_shown
    if status is Status.recovering and job.timer_at:
        return f"retry in {duration(max(0.0, job.timer_at - now))}", "yellow"
    word = status_word(status.name, recovered=job.recovered, tolerated=job.tolerated)
    return word, STATUS_COLORS.get(word, "dim")


def _elapsed_time_of(state: State, job: Job, now: float) -> str:
    began, ended = state.times(job)
    return "" if began is None else duration(max(0.0, (ended or now) - began))
