"""`collect`: the values that a workflow returns to its caller."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.model.builtin_actions import Collect


def _write(action: Collect, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """The names, each with its template or its code."""
    return {"collect": {each.name: {"code": each.code} if each.code else each.template for each in action.values}}


COLLECT = StepType("collect", Collect, _write)
