"""Shows the progress of an engine while a command drives a run, and reports if the engine has to leave the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from resile.cli.display.output import Page, command_hint, is_terminal, say, stdout_reserved_for_json
from resile.cli.display.watch import Display, JsonDisplay, ProgressWatcher
from resile.cli.parse import Call
from resile.errors import ResileError

T = TypeVar("T")


def drive(
    call: Call, act: Callable[[ProgressWatcher], T], what: str = "run {run}", go_on: str = "resume {run}"
) -> tuple[T | None, dict[int, str]]:
    """Show progress while `act` drives a run; return its result, and the last message of every failed job.

    The result is None if the engine had to leave the run (a full disk, a lost lease). A message then says that `what`
    is interrupted, and that the command `go_on` continues it.
    """
    with ProgressWatcher(display_for(call), _say_debug if call.flag("debug") else None) as watch:
        try:
            with stdout_reserved_for_json(call.json):
                return act(watch), watch.messages
        except (ResileError, OSError) as error:
            if not watch.run:
                raise
            from resile.cli.display.problems import report

            report(error, json=call.json, debug=call.flag("debug"))
            command = command_hint(go_on.format(run=watch.run), call.db)
            say(f"  {what.format(run=watch.run)} is interrupted; `{command}` goes on")
            return None, watch.messages
        finally:
            if call.launcher is not None:
                # Close a launcher that no run used; one that was used is closed already.
                call.launcher.socket.close()


def display_for(call: Call) -> Display:
    """The display for this call: JSON for programs, lines for files, a live view for people."""
    if call.json:
        return JsonDisplay()
    if call.flag("debug") or not is_terminal(sys.stderr):
        from resile.cli.display.lines import Lines

        return Lines(every_event=call.flag("debug"))
    from resile.cli.display.live import Live

    return Live(color=Page(call.color, sys.stderr).is_colored)


def _say_debug(text: str) -> None:
    say(f"debug: {text}")
