"""Finds functions and classes of the user's programs by file or module and by name, the same way in every process."""

from __future__ import annotations

import os
import sys
from threading import RLock
from typing import Any

MAIN = "__resile_main__"
"""The name under which every process loads the workflow's own file, so that pickles find their classes."""

Home = tuple[str, str]
"""The program that defines a workflow, by its file or its module; both empty if it is unknown."""
NO_HOME: Home = ("", "")

_lock = RLock()
_loads = 0


def is_loading() -> bool:
    """Is a workflow's file being loaded right now?"""
    return _loads > 0


def object_named(home: Home, name: str) -> Any:
    """The object of this name, which may have dots, in a file or a module."""
    file, module = home
    found = load_file(file) if file else import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def import_module(module: str) -> Any:
    """Import a module by its name."""
    import importlib

    return importlib.import_module(module)


def load_file(file: str) -> Any:
    """The module of a workflow's own file: the running program if it is that file, else loaded once.

    `<stdin>` and notebook cells have no file: their functions belong to the running program. Threads that need the file
    at the same time wait for the one that loads it.
    """
    if file.startswith("<"):
        return sys.modules["__main__"]
    with _lock:
        for name in ("__main__", MAIN):
            known = sys.modules.get(name)
            where = getattr(known, "__file__", None)
            if where is not None and os.path.abspath(where) == file:
                sys.modules.setdefault(MAIN, known)  # type: ignore[arg-type]
                return known
        return _load(file)


def _load(file: str) -> Any:
    """Load the module in a file."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(MAIN, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    sys.path.insert(0, os.path.dirname(file))
    global _loads
    _loads += 1
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(MAIN, None)
        raise
    finally:
        _loads -= 1
        sys.path.remove(os.path.dirname(file))
    return module


def type_name(kind: type) -> str:
    """The name of a type in rules; built-in types and those of the workflow's own file have no module prefix."""
    module = kind.__module__
    if module == "__main__":
        # Workers know a program started with `python -m` by its module.
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = MAIN if spec is None else spec.name
    return kind.__qualname__ if module in ("builtins", MAIN) else f"{module}.{kind.__qualname__}"
