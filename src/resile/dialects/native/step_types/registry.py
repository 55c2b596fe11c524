"""All step types of the native file, in the order in which messages name them."""

from __future__ import annotations

from resile.dialects.native.step_types.builtin import ASK, COLLECT, LOG, MEMORY, SCRIPT
from resile.dialects.native.step_types.commands import AGENT, NOOP, SHELL, VALIDATE, WRITE_FILE
from resile.dialects.native.step_types.contract import StepType
from resile.dialects.native.step_types.function import FUNCTION
from resile.dialects.native.step_types.nested import MAP, WORKFLOW
from resile.dialects.native.step_types.programs import HTTP, PYTHON, QUERY

STEP_TYPES: tuple[StepType, ...] = (
    SHELL, AGENT, VALIDATE, HTTP, PYTHON, FUNCTION, WRITE_FILE, WORKFLOW, MAP, SCRIPT, LOG, MEMORY, ASK, COLLECT,
    QUERY, NOOP
)  # fmt: skip
IR_TYPES = (SCRIPT, LOG, MEMORY, ASK, COLLECT, QUERY, FUNCTION)
"""Those that stand under `ir`: only files of other systems have them."""
BY_KEY: dict[str, StepType] = {key.name: row for row in STEP_TYPES for key in (row.key, *row.aliases)}
BY_STRUCT: dict[type, StepType] = {row.struct: row for row in STEP_TYPES}
