"""`run`, `resume`, `rerun`, `cancel`, `reset`: the commands that drive a run or change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from resile.cli.display.drive import display_for, drive
from resile.cli.display.output import Page, abandon_stdout, answer, plural, say, stdout_reserved_for_json
from resile.cli.display.watch import ProgressWatcher
from resile.cli.parse import Call
from resile.commands.load import CompileOptions
from resile.commands.run import ResourceLimits, RunCall
from resile.model.status import EXIT_CODES

if TYPE_CHECKING:
    from resile.commands.documents.answers import CancelResult, ResetResult
    from resile.commands.documents.runs import RunDocument
    from resile.commands.run import RunOutcome


def run(call: Call) -> int:
    """Run a workflow to its end."""
    asked = RunCall(
        path=call.word("FILE"),
        inputs=call.texts("input"),
        input_files=call.texts("input-file"),
        limits=_limits(call),
        output=call.text("output"),
        retry_max=call.whole("retry-max"),
        loops_max=call.whole("max-loops"),
        failure_routing=not call.flag("no-failure-routing"),
        compile_options=CompileOptions(call.word("dialect"), call.word("profile")),
    )
    return drive_run(call, lambda watch: call.client.run(asked, watch, call.launcher))


def resume(call: Call) -> int:
    """Resume a run."""
    limits = _limits(call)
    return drive_run(call, lambda watch: call.client.resume(call.run, limits, watch, call.launcher))


def rerun(call: Call) -> int:
    """Run it again."""
    limits = _limits(call)
    failed_only, as_new = call.flag("failed-only"), call.flag("as-new")
    return drive_run(
        call,
        lambda watch: call.client.rerun(call.run, limits, watch, call.launcher, failed_only=failed_only, as_new=as_new),
    )


def drive_run(call: Call, act: Callable[[ProgressWatcher], RunOutcome]) -> int:
    """Show progress while the command drives the run, then print the summary."""
    finished, messages = drive(call, act)
    if finished is None:
        return EXIT_CODES["interrupted"]

    def lines_of(document: RunDocument, page: Page) -> list[str]:
        """The summary; of a run that did not begin here, earlier engines may have seen some of the failures."""
        from resile.cli.display.summary import last_messages, summary

        earlier = {} if call.command.name == "run" else last_messages(document, call.client)
        return summary(document, earlier | messages, page)

    try:
        answer(call, finished.document, lines_of)
    except OSError as error:
        # The summary is lost, but the exit code still tells how the run ended.
        abandon_stdout()
        if not isinstance(error, BrokenPipeError):
            say(f"resile: the summary could not be written: {error.strerror}")
    return finished.exit_code


def cancel(call: Call) -> int:
    """Cancel a run through its engine; if no engine drives it, end it here."""
    with stdout_reserved_for_json(call.json), ProgressWatcher(display_for(call)) as watch:
        result = call.client.cancel(call.run, call.word("reason"), watch)
    return answer(call, result, _cancel_lines)


def _cancel_lines(result: CancelResult, page: Page) -> Iterator[str]:
    """The status of the run, or that its engine was asked."""
    if result.requested:
        follow = page.command(f"events follow {result.run}")
        yield f"run {result.run}: its engine was asked to cancel it; `{follow}` shows how it goes"
    else:
        yield f"run {result.run} is {result.status}"


def reset(call: Call) -> int:
    """Reset steps, so that they run again."""
    return answer(call, call.client.reset(call.run, failed_only=call.flag("failed-only")), _reset_lines)


def _reset_lines(result: ResetResult, page: Page) -> Iterator[str]:
    go_on = page.command(f"resume {result.run}")
    yield f"run {result.run}: {plural(result.reset, 'step')} reset; `{go_on}` runs them"


def _limits(call: Call) -> ResourceLimits:
    """The resources that the caller lets a run use."""
    return ResourceLimits(
        max_parallel=call.whole("max-parallel"),
        cpus=call.number("cpus"),
        memory_bytes=call.size("memory"),
        gpus=call.whole("gpus"),
    )
