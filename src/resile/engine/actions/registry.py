"""Which module prepares the attempts of a step type: the one named like the type, unless types share a module.

A module is loaded with the first such step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from resile.executors.contract import Launch
from resile.model.failure import Outcome

_SHARED = {
    "validate": "shell",
    **dict.fromkeys(("http", "python", "query"), "programs"),
    **dict.fromkeys(("script", "memory", "ask", "collect"), "builtin"),
}


@cache
def prepare_of(struct: type[Any]) -> Callable[[Any], Launch | Outcome]:
    """The function that prepares an Attempt of a step type, by the Struct of its action.

    It returns the launch of the attempt, or its outcome if nothing needs to run.
    """
    name = struct.__struct_config__.tag
    module = __import__(f"resile.engine.actions.{_SHARED.get(name, name)}", fromlist=["prepare"])
    prepare: Callable[[Any], Launch | Outcome] = module.prepare
    return prepare
