"""The programs that run `http`, `python` and `query` steps: their command, and their settings as JSON.

    Http, Python, Query --language--> Program --> python -I executors/programs/X_step.py, settings in RESILE_STEP

Settings that are too large for one variable go into a file of the attempt, if the language allows it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from msgspec.structs import replace

from resile.engine.launch import Attempt
from resile.executors.contract import Launch
from resile.languages.contract import Program, render_data, render_path
from resile.languages.references import ValueRefused, ValueTooLarge, is_one_reference
from resile.model.limits import PROGRAM_BYTES_MAX
from resile.model.workflow import Http, Python, Query

VARIABLE = b"RESILE_STEP"
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "executors", "programs")


def prepare(attempt: Attempt) -> Launch:
    """The launch of the program that runs a step."""
    action, lookup, performer = attempt.step.action, attempt.lookup, attempt.performer
    assert isinstance(action, Http | Python | Query)
    folder = performer.state.workflow_of(attempt.job.scope).folder
    name = attempt.step.name
    files: dict[str, str] = {}
    try:
        program = lookup.language.program(action, name, folder, performer.folder, lookup)
    except ValueTooLarge:
        if not isinstance(action, Python):
            raise
        action, files = _large_inputs(attempt, action)
        program = lookup.language.program(action, name, folder, performer.folder, lookup)
    if files:
        program.settings["input_files"] = files
    if isinstance(action, Http) and action.save_to:
        program.settings["save_to"] = render_path(action.save_to, lookup, attempt.directory)
    return launch_program(attempt, program)


def _large_inputs(attempt: Attempt, action: Python) -> tuple[Python, dict[str, str]]:
    """The action without the inputs that are too large for memory, and a file for each of these."""
    files: dict[str, str] = {}
    for number, (name, text) in enumerate(action.inputs.items()):
        try:
            render_data(text, attempt.lookup)
        except ValueTooLarge as large:
            if not is_one_reference(text):
                raise
            files[name] = os.fsdecode(attempt.write_file(f"input{number}", large.copy))
    rest = {name: value for name, value in action.inputs.items() if name not in files}
    return replace(action, inputs=rest), files


def launch_program(attempt: Attempt, program: Program) -> Launch:
    """The launch of one of our step programs, with its settings in a variable."""
    import json

    settings = program.settings
    if program.may_use_file and len(data := json.dumps(settings).encode()) > PROGRAM_BYTES_MAX:
        settings = {"settings_file": os.fsdecode(attempt.write_file("json", data))}
    command = step_command(f"{program.kind}_step.py")
    return attempt.launch(command, variables=((VARIABLE, pack_settings(settings)),))


def step_command(program: str) -> tuple[bytes, ...]:
    """The interpreter with one of the step programs; isolated (-I), so that it imports nothing from its directory."""
    return os.fsencode(sys.executable), b"-I", os.fsencode(os.path.join(_FOLDER, program))


def pack_settings(settings: dict[str, Any]) -> bytes:
    """The settings as the text of one environment variable: ASCII, bounded."""
    import json

    data = json.dumps(settings).encode()
    if len(data) > PROGRAM_BYTES_MAX:
        hint = "hand large values over in a file"
        raise ValueRefused(f"the step with its values has {len(data)} bytes, at most {PROGRAM_BYTES_MAX}: {hint}")
    return data
