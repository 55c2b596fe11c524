"""`run`, `resume`, `rerun`: the commands that drive a run and show its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from resile.cli.display.output import (
    Paint,
    abandon_stdout,
    columns,
    command_hint,
    is_terminal,
    print_document,
    say,
    stdout_reserved_for_json,
    write_text,
)
from resile.cli.display.watch import Display, JsonDisplay, ProgressWatcher
from resile.cli.parse import Call
from resile.commands.load import CompileOptions
from resile.commands.run import ResourceLimits, RunCall
from resile.errors import ResileError
from resile.model.status import EXIT_CODES

if TYPE_CHECKING:
    from resile.commands.run import RunOutcome


def run(call: Call) -> int:
    """Run a workflow to its end."""
    asked = RunCall(
        path=call.texts("FILE")[0],
        inputs=call.texts("input"),
        input_files=call.texts("input-file"),
        limits=_limits(call),
        output=call.text("output"),
        retry_max=call.whole("retry-max"),
        loops_max=call.whole("max-loops"),
        failure_routing=not call.flag("no-failure-routing"),
        compile_options=CompileOptions(call.text("dialect") or "", call.text("profile") or ""),
    )
    return drive(call, lambda watch: call.client.run(asked, watch, call.launcher))


def say_debug(text: str) -> None:
    """Print one evaluation of an expression, for --debug."""
    say(f"debug: {text}")


def resume(call: Call) -> int:
    """Resume a run."""
    limits = _limits(call)
    return drive(call, lambda watch: call.client.resume(call.run, limits, watch, call.launcher))


def rerun(call: Call) -> int:
    """Run it again."""
    limits = _limits(call)
    failed_only, as_new = call.flag("failed-only"), call.flag("as-new")
    return drive(
        call,
        lambda watch: call.client.rerun(call.run, limits, watch, call.launcher, failed_only=failed_only, as_new=as_new),
    )


def display_for(call: Call) -> Display:
    """The display for this call: JSON for programs, lines for files, a live view for people."""
    if call.json:
        return JsonDisplay()
    if call.flag("debug") or not is_terminal(sys.stderr):
        from resile.cli.display.lines import Lines

        return Lines(every_event=call.flag("debug"))
    from resile.cli.display.live import Live

    return Live(color=Paint(call.color, sys.stderr).on)


def drive(call: Call, act: Callable[[ProgressWatcher], RunOutcome]) -> int:
    """Show progress while the command drives the run, then print the summary."""
    with ProgressWatcher(display_for(call), say_debug if call.flag("debug") else None) as watch:
        try:
            with stdout_reserved_for_json(call.json):
                finished = act(watch)
        except (ResileError, OSError) as error:
            if not watch.run:
                raise
            return _broke_off(call, watch.run, error)
        finally:
            if call.launcher is not None:
                # Close a launcher that no run used; one that was used is closed already.
                call.launcher.socket.close()
    try:
        if call.json:
            print_document(finished.document)
        else:
            from resile.cli.display.summary import summary

            paint = Paint(call.color, sys.stdout)
            messages = _messages(call, watch, finished)
            write_text(summary(finished.document, messages, paint, columns(sys.stdout), call.db))
    except OSError as error:
        # The summary is lost, but the exit code still tells how the run ended.
        abandon_stdout()
        if not isinstance(error, BrokenPipeError):
            say(f"resile: the summary could not be written: {error.strerror}")
    return finished.exit_code


def _messages(call: Call, watch: ProgressWatcher, finished: RunOutcome) -> dict[int, str]:
    """The last messages of failed steps: from this process, and from earlier ones if the run did not begin here."""
    if call.command.name == "run":
        return watch.messages
    from resile.cli.commands.look import last_words

    return last_words(finished.document, call.client) | watch.messages


def _broke_off(call: Call, run: int, error: ResileError | OSError) -> int:
    """Report that the engine had to leave a run (a full disk, a lost lease), and how to resume it."""
    from resile.cli.display.problems import report

    report(error, json=call.json, debug=call.flag("debug"))
    say(f"  run {run} is interrupted; `{command_hint(f'resume {run}', call.db)}` goes on")
    return EXIT_CODES["interrupted"]


def _limits(call: Call) -> ResourceLimits:
    """The resource limits that the caller sets."""
    return ResourceLimits(
        max_parallel=call.whole("max-parallel"),
        cpus=call.number("cpus"),
        memory_bytes=call.size("memory"),
        gpus=call.whole("gpus"),
    )
