"""All step types of the native file, in the order in which messages name them."""

from __future__ import annotations

from resile.dialects.native.step_types.agent import AGENT
from resile.dialects.native.step_types.contract import StepType
from resile.dialects.native.step_types.http import HTTP
from resile.dialects.native.step_types.ir.ask import ASK
from resile.dialects.native.step_types.ir.collect import COLLECT
from resile.dialects.native.step_types.ir.function import FUNCTION
from resile.dialects.native.step_types.ir.log import LOG
from resile.dialects.native.step_types.ir.memory import MEMORY
from resile.dialects.native.step_types.ir.query import QUERY
from resile.dialects.native.step_types.ir.script import SCRIPT
from resile.dialects.native.step_types.map import MAP
from resile.dialects.native.step_types.noop import NOOP
from resile.dialects.native.step_types.python import PYTHON
from resile.dialects.native.step_types.shell import SHELL, VALIDATE
from resile.dialects.native.step_types.workflow import WORKFLOW
from resile.dialects.native.step_types.write_file import WRITE_FILE

STEP_TYPES: tuple[StepType, ...] = (
    SHELL, AGENT, VALIDATE, HTTP, PYTHON, FUNCTION, WRITE_FILE, WORKFLOW, MAP, SCRIPT, LOG, MEMORY, ASK, COLLECT,
    QUERY, NOOP
)  # fmt: skip
BY_STRUCT: dict[type, StepType] = {row.struct: row for row in STEP_TYPES}
