"""`write_file` in the engine: the engine writes the file itself, unless its content must be checked first."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from resile.engine.actions.programs import launch_program
from resile.engine.launch import Attempt
from resile.executors.contract import Launch
from resile.languages.contract import Program, render_data, render_path
from resile.languages.references import ValueTooLarge
from resile.model.failure import Failure, Kind, Outcome
from resile.model.folders import put_in_place
from resile.model.workflow import WriteFile


def prepare(attempt: Attempt) -> Launch | Outcome:
    """Write a file atomically."""
    action = attempt.step.action
    assert isinstance(action, WriteFile)
    path = render_path(action.path, attempt.lookup, attempt.directory)
    if action.format != "text":
        settings: dict[str, Any] = {"path": path, "mode": action.mode, "format": action.format}
        try:
            settings["content"] = render_data(action.content, attempt.lookup)
        except ValueTooLarge:
            content = attempt.write_file("content", lambda file: attempt.write_text(action.content, file))
            settings["content_file"] = os.fsdecode(content)
        return launch_program(attempt, Program("write", settings, may_use_file=True))
    folder, name = os.path.split(path)
    part = os.path.join(folder, f".{name}.part")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, action.mode), "wb") as file:
            try:
                attempt.write_text(action.content, file)
                put_in_place(file, part, path)
            except Exception:
                # On a full disk it would keep the disk full.
                with suppress(OSError):
                    os.unlink(part)
                raise
    except OSError as error:
        message = f"can't write {path}: {error.strerror}"
        return Outcome(1, Failure(Kind.EXIT, message, 1, signature=f"write_file: {error.strerror}"))
    return Outcome(exit_code=0)
