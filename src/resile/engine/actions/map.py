"""`map` in the engine: lists the items of a fan-out into a file (items.py).

In `end`, the steps that make the list may not have run: then the fan-out has no items, and a remark says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from resile.core.scheduling.finish import execution
from resile.engine.actions.programs import VARIABLE, pack_settings, step_command
from resile.engine.items.listing import ItemsRefused, items_path, list_values, redact_items
from resile.engine.launch import Attempt
from resile.executors.contract import Launch
from resile.languages.contract import render_data
from resile.languages.references import ValueRefused, ValueTooLarge, is_one_reference, parse_json, render_text
from resile.languages.shell.quoting import render_shell
from resile.languages.surroundings import is_of_end
from resile.model.failure import Failure, Kind, Outcome, contract_failure
from resile.model.fanout import Source
from resile.model.workflow import FanOut

if TYPE_CHECKING:
    from resile.languages.references import Lookup


def prepare(attempt: Attempt) -> Launch | Outcome:
    """List the items of a fan-out: in this process if the engine knows them, else with a program."""
    action, performer, order = attempt.step.action, attempt.performer, attempt.order
    assert isinstance(action, FanOut)
    path = items_path(performer.folder, f"j{order.job}_r{performer.state.epoch}_a{order.attempt}")
    if attempt.job.again:
        from resile.engine.items.left import list_items_left

        count = list_items_left(performer.values.store, performer.values.id, performer.state, attempt.job, path)
        if count is not None:
            return Outcome(exit_code=0, values={"items": count, "again": True}, memory=attempt.memory)
    source = action.source
    known: Sequence[Any] = ()
    remarks: tuple[str, ...] = ()
    if (source.step or source.template or source.path) and (absent := _absent_in_end(attempt, source)):
        source, remarks = replace(source, values=(), step="", template="", path=""), (absent,)
    if not source.path and not source.command:
        try:
            known = _known_items(attempt, source)
        except ValueTooLarge as large:
            # The program reads it like the output of a command.
            file = os.fsdecode(attempt.write_file("input", large.copy))
            source = replace(source, step="", template="", command=f"cat {quote(file)}", program="sh")
    if source.path or source.command:
        folder = performer.state.workflow_of(attempt.job.scope).folder
        argv, settings = items_program(source, path, folder, attempt.lookup, performer.state.started_at)
        return attempt.launch(argv, variables=((VARIABLE, settings),))
    try:
        count = list_values(path, known, source)
        redact_items(path, performer.secrets)
        return Outcome(exit_code=0, values={"items": count}, memory=attempt.memory, remarks=remarks)
    except ItemsRefused as problem:
        failure = contract_failure(str(problem), "items")
    except OSError as error:
        failure = Failure(Kind.CONTRACT, f"can't list the items: {error.strerror}")
    return Outcome(failure=failure, memory=attempt.memory)


def _absent_in_end(attempt: Attempt, source: Source) -> str:
    """A remark if a fan-out in `end` has no items because the step that makes them never ran, else an empty text."""
    performer, job = attempt.performer, attempt.job
    state = performer.state
    if not is_of_end(state, job):
        return ""
    if source.step:
        other = state.job_named(source.step, job.scope)
        ran = other is not None and other.counts_as_success
        return "" if ran else f"{source.step!r} gave no list, so there are no items"
    if source.template:
        try:
            found = render_data(source.template, attempt.lookup)
        except ValueTooLarge:
            return ""
        except ValueRefused:
            found = None
        return "" if found not in (None, "") else f"`{source.template}` has no value, so there are no items"
    if execution(state)["status"] == "completed":
        return ""
    from resile.executors.programs.items.read import open_input

    path = render_text(source.path, attempt.lookup)
    try:
        open_input(path, state.workflow_of(job.scope).folder, performer.directory).close()
    except ItemsRefused:
        return f"there is no file {path}, so there are no items"
    return ""


def _known_items(attempt: Attempt, source: Source) -> Sequence[Any]:
    """The items that the engine knows; raises ValueRefused if they are not a list."""
    if source.values is not None:
        return source.values
    if not source.template:
        return attempt.performer.values.list_of(source.step, attempt.job)
    values = render_data(source.template, attempt.lookup)
    if is_one_reference(source.template):
        # If another step printed JSON text, use the value of the JSON.
        values = parse_json(values)
    if not isinstance(values, list):
        raise ValueRefused(f"`{source.template}` is not a list")
    return values


def items_program(
    source: Source, path: str, folder: str, lookup: Lookup, since: float | None = None
) -> tuple[tuple[bytes, ...], bytes]:
    """The command that lists a file or a command's output into `path`, and its settings.

    `since` is when the run began: a file that a step of the run wrote takes precedence over an older one elsewhere.
    """
    rendered = replace(
        source,
        path=render_text(source.path, lookup),
        command=render_shell(source.command, lookup, source.program),
        json_path=render_text(source.json_path, lookup),
    )
    into = os.path.abspath(path)
    settings = {"source": msgspec.to_builtins(rendered), "folder": folder, "into": into, "since": since}
    return step_command("items/items_step.py"), pack_settings(settings)
