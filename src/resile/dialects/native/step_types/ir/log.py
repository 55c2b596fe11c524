"""`log`: the step type that prints a message for people."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.builtin_actions import Log


def _write(action: Log, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """The message, and its level."""
    more = changed_fields(action, level="level", with_outputs="with_outputs")
    return {"log": {"message": action.message, **more} if more else action.message}


LOG = StepType("log", Log, _write)
