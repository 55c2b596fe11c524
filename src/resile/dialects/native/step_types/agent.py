"""`agent`: a prompt for an agent's command line."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.workflow import Agent


def _write(action: Agent, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the prompt and the agent settings that differ from the defaults."""
    more = changed_fields(action, prompt_by="prompt_by", cost_max="max_cost", tokens_max="max_tokens")
    if action.command != Agent("").command:
        more = {"command": list(action.command), **more}
    return {"agent": {"prompt": action.prompt, **more} if more else action.prompt}


AGENT = StepType("agent", Agent, _write)
