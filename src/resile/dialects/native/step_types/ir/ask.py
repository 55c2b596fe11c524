"""`ask`: the step type that asks a person."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.builtin_actions import Ask


def _write(action: Ask, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the question and its default answer."""
    more = changed_fields(action, default="default")
    return {"ask": {"question": action.question, **more} if more else action.question}


ASK = StepType("ask", Ask, _write)
