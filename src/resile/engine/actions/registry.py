"""Which module prepares the attempts of which step type; a module is loaded with the first such step."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from resile.engine.actions.attempt import Attempt
from resile.executors.contract import Launch
from resile.model.builtin_actions import Ask, Collect, Log, Memory, Script
from resile.model.failure import Outcome
from resile.model.workflow import Agent, Child, FanOut, Function, Http, Noop, Python, Query, Shell, Validate, WriteFile

Prepare = Callable[[Attempt], Launch | Outcome]
"""Returns the launch of an attempt, or its outcome if nothing needs to run."""

MODULES: dict[type, str] = {
    Shell: "shell",
    Validate: "shell",
    Noop: "noop",
    Agent: "agent",
    WriteFile: "write_file",
    Http: "programs",
    Python: "programs",
    Query: "programs",
    Function: "function",
    Child: "workflow",
    FanOut: "items",
    Log: "log",
    Script: "builtin",
    Memory: "builtin",
    Ask: "builtin",
    Collect: "builtin",
}
_loaded: dict[type, Prepare] = {}


def prepare_of(struct: type) -> Prepare:
    """The function that prepares attempts of a step type, by the Struct of its action."""
    found = _loaded.get(struct)
    if found is None:
        found = _loaded[struct] = import_module(f"resile.engine.actions.{MODULES[struct]}").prepare
    return found
