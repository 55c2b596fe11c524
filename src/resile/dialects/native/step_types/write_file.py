"""`write_file`: a file made from text."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.model.workflow import WriteFile


def _write(action: WriteFile, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """The path and the content."""
    mode = {"mode": f"{action.mode:o}"} if action.mode != WriteFile("", "").mode else {}
    return {"write_file": {"path": action.path, "content": action.content, **mode}}


WRITE_FILE = StepType("write_file", WriteFile, _write)
