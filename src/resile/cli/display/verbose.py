"""What `--verbose` shows: plain progress lines, and between them every line that a step prints, with the step's name.

    14:02:11 build started
    build | compiling              what it printed on stdout
    build ! 2 warnings             what it printed on stderr
    14:02:13 build completed in 2.1 s

    engine thread: show() queues progress lines and attempts     this thread: reads their output, prints everything

An attempt's end is shown after all its output, and `finish` waits until everything is printed. While steps run and
print nothing, the thread looks at their files less and less often; while nothing runs it only waits. Everything goes to
stderr, so that stdout has the summary or the JSON document alone. Output is redacted where it is stored.
"""

from __future__ import annotations

import os
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from resile.cli.display.lines import Lines
from resile.cli.display.output import escape, say
from resile.cli.display.terminal import RESET, Harmless
from resile.cli.display.watch import Display, JsonDisplay, Tally
from resile.commands.logs import ATTEMPT_EVENTS, RUNNING_EVENTS, AttemptOutput
from resile.core.actions import Note

if TYPE_CHECKING:
    from resile.commands.client import Client
    from resile.core.state import State
    from resile.executors.contract import Stream
    from resile.store.contract import RunRow

LOOK_SECONDS_MIN = 0.02
LOOK_SECONDS_MAX = 0.5
# A longer line is shown as several.
LINE_CHARACTERS_MAX = 64 * 1024
_MARKS: dict[Stream, str] = {"out": "|", "err": "!"}
_Key = tuple[int, int]


class _Change(NamedTuple):
    """An attempt that runs, or that is over and has written all of its output."""

    attempt: AttemptOutput
    row: RunRow
    is_over: bool


class Verbose(Display):
    """Shows the progress of a run and the output of its steps."""

    def __init__(self, client: Client, *, every_event: bool, json: bool, color: bool) -> None:
        self._client = client
        self._color = color
        self._queue: SimpleQueue[str | _Change | None] = SimpleQueue()
        self._progress: Display = JsonDisplay() if json else Lines(every_event=every_event, say=self._queue.put)
        self._row: RunRow | None = None
        self._open: dict[_Key, _Printer] = {}
        self._pause = LOOK_SECONDS_MIN
        self._problem: Exception | None = None
        self._thread = Thread(target=self._work, name="output of steps", daemon=True)

    def begin(self, run: int, state: State, tally: Tally) -> None:
        """Start the printing thread."""
        self._run = run
        self._progress.begin(run, state, tally)
        self._thread.start()

    def show(self, notes: list[Note]) -> None:
        """Queue the attempts that the events name, and the lines of the events, in order."""
        known: dict[_Key, AttemptOutput | None] = {}
        for note in notes:
            if note.type in ATTEMPT_EVENTS:
                key = note.job, note.attempt
                if key not in known:
                    known[key] = self._client.attempt_output(self._run, note)
                if attempt := known[key]:
                    # Not earlier: the row has its folder when the first event is stored.
                    self._row = self._row or self._client.run_row(self._run)
                    self._queue.put(_Change(attempt, self._row, note.type not in RUNNING_EVENTS))
            self._progress.show([note])

    def finish(self) -> None:
        """Print what is left."""
        self._queue.put(None)
        self._thread.join()
        if self._problem is not None:
            say(f"resile: the output of steps broke off: {self._problem}; `resile logs {self._run}` has it")

    def _work(self) -> None:
        """Print until `finish`; an error here must not affect the run."""
        try:
            while self._work_on():
                pass
            for printer in self._open.values():
                printer.print_all()
        except Exception as problem:
            if os.environ.get("RESILE_TRACEBACK"):
                raise
            self._problem = problem

    def _work_on(self) -> bool:
        """Print the next queued line, or the next output of each attempt; False at the end."""
        try:
            item = self._queue.get(timeout=self._pause if self._open else None)
        except Empty:
            news = [printer.print_next() for printer in self._open.values()]
            self._pause = LOOK_SECONDS_MIN if any(news) else min(2 * self._pause, LOOK_SECONDS_MAX)
            return True
        self._pause = LOOK_SECONDS_MIN
        if isinstance(item, str):
            say(item)
        elif item is not None:
            self._follow(item)
        return item is not None

    def _follow(self, change: _Change) -> None:
        """Follow the output of an attempt; when it is over, print all that is left of it."""
        key = change.attempt.tried.job, change.attempt.tried.attempt
        printer = self._open.setdefault(key, _Printer(change.attempt, change.row, is_colored=self._color))
        printer.attempt.tried = change.attempt.tried
        if change.is_over:
            del self._open[key]
            printer.print_all()


class _Printer:
    """Prints the output of one attempt in whole lines, each after the name of its step."""

    def __init__(self, attempt: AttemptOutput, row: RunRow, *, is_colored: bool) -> None:
        self.attempt = attempt
        self._row = row
        name = escape(attempt.name)
        self._name = f"\x1b[36m{name}{RESET}" if is_colored else name
        self._texts = {stream: Harmless(is_colored=is_colored) for stream in _MARKS}
        self._unfinished = dict.fromkeys(_MARKS, "")

    def print_next(self) -> bool:
        """Print the lines that were written since the last call; False if there is nothing new."""
        has_news = False
        for stream, data in self.attempt.pieces(self._row):
            has_news = True
            self._print(stream, self._texts[stream].feed(data))
        return has_news

    def print_all(self) -> None:
        """Print everything that is left, also a line that lacks its end."""
        while self.print_next():
            pass
        for stream, text in self._texts.items():
            self._print(stream, text.feed(b"", is_last=True), is_last=True)

    def _print(self, stream: Stream, text: str, *, is_last: bool = False) -> None:
        """Print the whole lines of a text, and keep the rest for later."""
        *lines, rest = (self._unfinished[stream] + text).split("\n")
        while len(rest) > LINE_CHARACTERS_MAX or (rest and is_last):
            lines.append(rest[:LINE_CHARACTERS_MAX])
            rest = rest[LINE_CHARACTERS_MAX:]
        self._unfinished[stream] = rest
        if lines:
            before = f"{self._name} {_MARKS[stream]} "
            say("\n".join(before + line + (RESET if "\x1b" in line else "") for line in lines))
