"""`python`: code for a separate interpreter."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.workflow import Python


def _write(action: Python, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """The code or its file, and the inputs."""
    more = changed_fields(action, names="names", places="places", status_fails="status_fails")
    code: Any = {"file": action.file} if action.file else action.source
    if more:
        code = {**({"file": action.file} if action.file else {"source": action.source}), **more}
    return {"python": code} | ({"inputs": action.inputs} if action.inputs else {})


PYTHON = StepType("python", Python, _write)
