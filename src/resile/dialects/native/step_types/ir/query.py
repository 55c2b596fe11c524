"""`query`: statements for a database."""

from __future__ import annotations

from typing import Any

import msgspec

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.model.workflow import Query


def _write(action: Query, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the fields that differ from their defaults."""
    return {"query": {key: value for key, value in msgspec.to_builtins(action).items() if key != "type"}}


QUERY = StepType("query", Query, _write)
