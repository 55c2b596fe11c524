"""`shell` and `validate`: a command for a shell; with `validate` it is a check."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.model.workflow import Shell, Validate


def _write_shell(action: Shell, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the command and its standard input."""
    return {"shell": action.command} | ({"stdin": action.stdin} if action.stdin else {})


def _write_validate(action: Validate, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """The command."""
    return {"validate": action.command}


SHELL = StepType("shell", Shell, _write_shell)
VALIDATE = StepType("validate", Validate, _write_validate)
