"""Compiles files with the version of Resile that is on PYTHONPATH: a path by line in, a document by line out.

A script that knows nothing of the version but the names in the tables below. The first name of each that exists is
taken, so a module that moves is one more row.

    {"model": …, "dialect": …, "check": …, "migrated": …}      what came of a file
    {"crash": "KeyError: 'x'"}                                 what never should
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from types import ModuleType
from typing import Any

import msgspec

LOADS = ("resile.commands.load", "resile.surfaces.verbs.load")
MIGRATES = ("resile.commands.migrate", "resile.surfaces.verbs.migrate")
CODECS = ("resile.model.codec",)
ERRORS = ("resile.errors",)


def first(names: tuple[str, ...]) -> ModuleType:
    """The first of these modules that there is; one that is there and can't be loaded is no excuse."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
    raise ModuleNotFoundError(f"none of {', '.join(names)} exists: add the new name in {__file__}")


def compiled(path: str) -> dict[str, Any]:
    """All that can be told of a file without running it."""
    load = first(LOADS)
    options = load.CompileOptions if hasattr(load, "CompileOptions") else load.Taken
    result = load.compile_any(path, options())
    model = None if result.workflow is None else json.loads(first(CODECS).encode(result.workflow))
    files = msgspec.to_builtins(load.check([path]))["files"]
    told = {"model": model, "dialect": [result.dialect, result.why], "check": {"files": files}}
    return told | {"migrated": migrated(path) if files[0]["ok"] else None}


def migrated(path: str) -> Any:
    """The native file that this one becomes, by line, or why it does not become one."""
    try:
        return first(MIGRATES).migrate(path).text.splitlines()
    except first(ERRORS).ResileError as error:
        return [error.code, error.message, error.where, error.hint]


def main() -> None:
    """Answer until there are no more paths; what a workflow prints while it is loaded goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    home = os.path.dirname(os.path.abspath(importlib.import_module("resile").__file__ or ""))
    print(json.dumps({"home": home}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            told = compiled(json.loads(line))
        except Exception as error:
            told = {"crash": f"{type(error).__name__}: {error}"}
        print(json.dumps(told, sort_keys=True, default=repr), file=answers, flush=True)


if __name__ == "__main__":
    main()
