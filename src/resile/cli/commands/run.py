"""`run`, `resume`, `rerun`, `cancel`, `reset`: the commands that drive a run or change it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from resile.cli.display import output
from resile.cli.display.watch import Display, JsonDisplay, ProgressWatcher
from resile.cli.parse import Call, refusal
from resile.commands.load import CompileOptions
from resile.commands.start.call import Choice, Given, ResourceLimits, RunCall
from resile.engine.env_files import CREDENTIALS
from resile.errors import ResileError
from resile.model.status import EXIT_CODES, status_clause
from resile.store.errors import LeaseHeld, StoreDamaged, StoreGone

if TYPE_CHECKING:
    from resile.commands.documents.answers import CancelResult, ResetResult
    from resile.commands.documents.runs import RunDocument
    from resile.commands.run import RunOutcome

T = TypeVar("T")


def run(call: Call) -> int:
    """Run a workflow to its end."""
    asked = call_of(call)
    if call.flag("dry-run"):
        from resile.cli.commands.plan import show_plan

        return show_plan(call, asked)
    from resile.store.open import default_output

    asked.cluster_folder = asked.output or default_output(call.database)
    return drive_run(call, lambda watch: call.client.run(asked, watch, call.launcher))


def call_of(call: Call) -> RunCall:
    """The run that the caller asks for."""
    return RunCall(
        path=call.word("FILE"),
        inputs=_inputs(call),
        limits=limits_of(call),
        output=call.text("output") or call.settings.values.get("output"),
        retry_max=call.whole("retry-max"),
        loops_max=call.whole("max-loops"),
        failure_routing=not call.flag("no-failure-routing"),
        force=call.flag("force"),
        base=call.text("base"),
        labels=call.pairs("label"),
        compile_options=CompileOptions(call.word("dialect"), call.word("profile")),
        executor=call.text("executor"),
        choice=Choice(tuple(call.texts("from")), tuple(call.texts("only")), tuple(call.texts("skip"))),
        cached=call.flag("cached"),
    )


def resume(call: Call) -> int:
    """Resume a run."""
    limits = limits_of(call)
    return drive_run(call, lambda watch: call.client.resume(call.run, limits, watch, call.launcher))


def rerun(call: Call) -> int:
    """Run it again."""
    if call.flag("changed") or call.flag("dry-run") or call.flag("force"):
        return _rerun_changed(call)
    limits = limits_of(call)
    failed_only, as_new, inputs = call.flag("failed-only"), call.flag("as-new"), _inputs(call)
    return drive_run(
        call,
        lambda watch: call.client.rerun(
            call.run, limits, watch, call.launcher, failed_only=failed_only, as_new=as_new, inputs=inputs
        ),
    )


class _NothingChanged(Exception):
    """No step of a run has changed."""


def _rerun_changed(call: Call) -> int:
    """Run what changed, or list it; where nothing did, say so."""
    from resile.cli.commands.plan import refuse_watching, show_changes
    from resile.commands.documents.changes import Changes

    if not call.flag("changed"):
        option = "dry-run" if call.flag("dry-run") else "force"
        raise refusal(f"--{option} goes with --changed", f"resile rerun {call.run} --changed --{option}")
    for option in ("failed-only", "as-new"):
        if call.flag(option):
            raise refusal(f"--changed and --{option} exclude each other", "leave one of them out")
    limits, inputs, force = limits_of(call), _inputs(call), call.flag("force")
    if call.flag("dry-run"):
        refuse_watching(call)
        return show_changes(call, call.client.changes(call.run, inputs, force=force))

    def act(watch: ProgressWatcher) -> RunOutcome:
        finished = call.client.rerun_changed(call.run, limits, watch, call.launcher, inputs=inputs, force=force)
        if finished is None:
            raise _NothingChanged
        return finished

    try:
        return drive_run(call, act)
    except _NothingChanged:
        return show_changes(call, Changes(steps=[]))


def drive_run(call: Call, act: Callable[[ProgressWatcher], RunOutcome]) -> int:
    """Show progress while the command drives the run, then print the summary and write the reports."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return _drive_and_report(call, act, [])
    # We quote the output of steps, and GitHub would obey a line of it that looks like a command.
    token = os.urandom(16).hex()
    output.say(f"::stop-commands::{token}")
    annotations: list[str] = []
    try:
        return _drive_and_report(call, act, annotations)
    finally:
        for line in (f"::{token}::", *annotations):
            output.say(line)


def _drive_and_report(call: Call, act: Callable[[ProgressWatcher], RunOutcome], annotations: list[str]) -> int:
    """As drive_run, with the annotations for GitHub, where it wants some, added to the list."""
    junit = call.text("junit")
    if junit is not None:
        from resile.cli.reports import refuse_unwritable

        refuse_unwritable(junit)
    finished = drive(call, act)
    if finished is None:
        return EXIT_CODES["interrupted"]

    def lines_of(document: RunDocument, page: output.Page) -> list[str]:
        """The summary."""
        from resile.cli.display.summary import summary

        return summary(document, lambda jobs: call.client.last_failures(document.run, jobs), page)

    if junit is not None or os.environ.get("GITHUB_ACTIONS") == "true":
        from resile.cli.reports import annotation_lines, write_junit

        failed = [job.id for job in finished.document.jobs if job.status in ("failed", "pending_failed")]
        failures = call.client.last_failures(finished.run, failed)
        known = {job: failure.message for job, failure in failures.items()}
        if junit is not None:
            write_junit(finished.document, known, junit)
        annotations += annotation_lines(finished.document, known, finished.workflow)

    try:
        output.answer(call, finished.document, lines_of)
    except OSError as error:
        # The summary is lost, but the exit code still tells how the run ended.
        output.abandon_stdout()
        if not isinstance(error, BrokenPipeError):
            output.say(f"resile: the summary could not be written: {error.strerror}")
    return finished.exit_code


def drive(
    call: Call, act: Callable[[ProgressWatcher], T], what: str = "run {run}", go_on: str = "resume {run}"
) -> T | None:
    """Show progress while `act` drives a run; return its result.

    The result is None if the engine had to leave the run (a full disk, a lost lease). A message then says that `what`
    is interrupted, and that the command `go_on` continues it.
    """
    if credentials := call.text("credentials"):
        os.environ[CREDENTIALS] = os.path.abspath(credentials)
    with ProgressWatcher(_display_for(call), _say_debug if call.flag("debug") else None) as watch:
        try:
            with output.stdout_reserved_for_json(call.json):
                return act(watch)
        except (ResileError, OSError) as error:
            # An engine that was stopped before it began may find that another one has the run.
            is_interrupted = bool(watch.run) or (isinstance(error, LeaseHeld) and error.code == "lease-lost")
            if not is_interrupted or isinstance(error, StoreDamaged) or call.server:
                raise
            from resile.cli.display.problems import report

            report(error, json=call.json, debug=call.flag("debug"))
            if not watch.run:
                return None
            command = output.command_hint(go_on.format(run=watch.run), output.place_of(call))
            after = "" if isinstance(error, StoreGone) else f"; `{command}` goes on"
            output.say(f"  {what.format(run=watch.run)} is interrupted{after}")
            return None
        finally:
            if call.launcher is not None:
                # Close a launcher that no run used; one that was used is closed already.
                call.launcher.socket.close()


def _display_for(call: Call) -> Display:
    """The display for this call: JSON for programs, lines for files, a live view for people."""
    if call.flag("verbose"):
        from resile.cli.display.verbose import Verbose

        color = output.Page(call.color, sys.stderr).is_colored
        return Verbose(call.client, every_event=call.flag("debug"), json=call.json, color=color)
    if call.json:
        return JsonDisplay()
    if call.flag("debug") or not output.is_terminal(sys.stderr):
        from resile.cli.display.lines import Lines

        return Lines(every_event=call.flag("debug"))
    from resile.cli.display.live import Live

    return Live(color=output.Page(call.color, sys.stderr).is_colored)


def _say_debug(text: str) -> None:
    output.say(f"debug: {text}")


def cancel(call: Call) -> int:
    """Cancel a run through its engine; if no engine drives it, end it here."""
    with output.stdout_reserved_for_json(call.json), ProgressWatcher(_display_for(call)) as watch:
        result = call.client.cancel(call.run, call.word("reason"), watch)
    return output.answer(call, result, _cancel_lines)


def _cancel_lines(result: CancelResult, page: output.Page) -> Iterator[str]:
    """The status of the run, or that its engine was asked."""
    if result.requested:
        follow = page.command(f"events follow {result.run}")
        yield f"run {result.run}: its engine was asked to cancel it; `{follow}` shows how it goes"
    else:
        yield f"run {result.run} {status_clause(result.status)}"


def reset(call: Call) -> int:
    """Reset steps, so that they run again."""
    return output.answer(call, call.client.reset(call.run, failed_only=call.flag("failed-only")), _reset_lines)


def _reset_lines(result: ResetResult, page: output.Page) -> Iterator[str]:
    go_on = page.command(f"resume {result.run}")
    yield f"run {result.run}: {output.plural(result.reset, 'step')} reset; `{go_on}` runs them"


def _inputs(call: Call) -> Given:
    """The inputs that the caller gives."""
    return Given(call.texts("input"), call.texts("input-file"), call.texts("inputs"))


def limits_of(call: Call) -> ResourceLimits:
    """The resources that the caller lets a run use."""
    return ResourceLimits(
        max_parallel=call.whole("max-parallel"),
        parallel_default=call.settings.values.get("max_parallel"),
        cpus=call.number("cpus"),
        memory_bytes=call.size("memory"),
        gpus=call.whole("gpus"),
    )
