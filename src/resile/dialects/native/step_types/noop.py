"""`noop`: a step that does nothing."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.model.workflow import Noop


def _write(_: Noop, __: StepWriter, ___: Inherited) -> dict[str, Any]:
    """The key alone."""
    return {"noop": True}


NOOP = StepType("noop", Noop, _write)
