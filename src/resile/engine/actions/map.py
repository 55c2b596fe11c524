"""`map` in the engine: lists the items of a fan-out into a file (items.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from resile.engine.actions.items import ItemsRefused, items_path, list_values, redact_items
from resile.engine.actions.programs import VARIABLE, pack_settings, step_command
from resile.engine.launch import Attempt
from resile.executors.contract import Launch
from resile.languages.contract import render_data
from resile.languages.references import ValueRefused, is_one_reference, parse_json, render_text
from resile.languages.shell.quoting import render_shell
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
    source = action.source
    if source.path or source.command:
        folder = performer.state.workflow_of(attempt.job.scope).folder
        argv, settings = items_program(source, path, folder, attempt.lookup, performer.state.started_at)
        return attempt.launch(argv, variables=((VARIABLE, settings),))
    try:
        count = list_values(path, _known_items(attempt, source), source)
        redact_items(path, performer.secrets)
        return Outcome(exit_code=0, values={"items": count}, memory=attempt.memory)
    except ItemsRefused as problem:
        failure = contract_failure(str(problem), "items")
    except OSError as error:
        failure = Failure(Kind.CONTRACT, f"can't list the items: {error.strerror}")
    return Outcome(failure=failure, memory=attempt.memory)


def _known_items(attempt: Attempt, source: Source) -> Sequence[Any]:
    """The items that the engine knows; raises ValueRefused if they are not a list."""
    if source.values is not None:
        return source.values
    if not source.template:
        return attempt.performer.values.list_of(source.step, attempt.job)
    values = render_data(source.template, attempt.lookup)
    if is_one_reference(source.template):
        # JSON text that another step printed is its value.
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
