"""`agent` in the engine: the command line of an agent with its prompt."""

from __future__ import annotations

import os

from resile.engine.launch import ARGUMENT_BYTES_MAX, Attempt
from resile.executors.contract import Launch
from resile.languages.contract import render_text
from resile.model.workflow import Agent


def prepare(attempt: Attempt) -> Launch:
    """The agent with its prompt as the last argument, or on standard input if the prompt is too long."""
    action = attempt.step.action
    assert isinstance(action, Agent)
    prompt = os.fsencode(render_text(action.prompt, attempt.lookup))
    command = tuple(map(os.fsencode, action.command))
    if action.prompt_by == "argument" and len(prompt) <= ARGUMENT_BYTES_MAX:
        return attempt.launch((*command, prompt))
    return attempt.launch(attempt.with_stdin(command, "prompt", prompt))
