"""`memory`: one operation on the run's memory."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.builtin_actions import Memory


def _write(action: Memory, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the operation and its operands."""
    words = ("key", "namespace", "value", "code")
    return {"memory": {"operation": action.operation, **changed_fields(action, **{word: word for word in words})}}


MEMORY = StepType("memory", Memory, _write)
