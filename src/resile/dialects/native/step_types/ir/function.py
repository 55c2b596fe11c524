"""`function`: a call of a Python function."""

from __future__ import annotations

from typing import Any

import msgspec

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.model.workflow import Function


def _write(action: Function, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the fields that differ from their defaults."""
    return {"function": {key: value for key, value in msgspec.to_builtins(action).items() if key != "type"}}


FUNCTION = StepType("function", Function, _write)
