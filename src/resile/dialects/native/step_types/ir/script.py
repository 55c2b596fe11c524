"""`script`: JavaScript inside the engine."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.builtin_actions import Script


def _write(action: Script, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the code and its memory namespace."""
    more = changed_fields(action, namespace="namespace")
    return {"script": {"code": action.code, **more} if more else action.code}


SCRIPT = StepType("script", Script, _write)
