"""All step types that the modules of this package define, in the order of the model, in which messages name them."""

from __future__ import annotations

from typing import get_args

from resile.dialects.native.step_types import builtin, commands, function, nested, programs
from resile.dialects.native.step_types.contract import StepType
from resile.model.workflow import Action

_NAMES = [vars(module) for module in (builtin, commands, function, nested, programs)]
BY_STRUCT = {row.struct: row for names in _NAMES for row in names.values() if isinstance(row, StepType)}
STEP_TYPES: tuple[StepType, ...] = tuple(BY_STRUCT[struct] for struct in get_args(Action))
IR_TYPES = (
    builtin.SCRIPT, builtin.LOG, builtin.MEMORY, builtin.COLLECT, programs.QUERY, function.FUNCTION
)  # fmt: skip
"""The step types under the key `ir`, which only translated files of other systems use."""
BY_KEY: dict[str, StepType] = {key.name: row for row in STEP_TYPES for key in (row.key, *row.aliases)}
