"""`workflow`: another workflow, run as one step."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.workflow import Child


def _write(action: Child, writer: StepWriter, _: Inherited) -> dict[str, Any]:
    """Write the workflow inline, so that one file is enough."""
    more = changed_fields(action, inputs="inputs", result="result", shares="shares")
    return {"workflow": writer.workflow(action.workflow), **more}


WORKFLOW = StepType("workflow", Child, _write)
