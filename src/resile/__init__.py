"""Resile: a workflow engine whose subject is failure.

    from resile import Workflow, run, step          docs/python.md

The names below are the public API; each is loaded when it is first asked for, so `import resile` costs nothing.
"""

__version__ = "0.1.0"

_WHERE = {
    "ResileError": "resile.errors",
    "Result": "resile.surfaces.python.build",
    "Run": "resile.surfaces.python.api",
    "Workflow": "resile.surfaces.python.build",
    "current": "resile.surfaces.python.build",
    "load": "resile.surfaces.python.api",
    "resume": "resile.surfaces.python.api",
    "run": "resile.surfaces.python.api",
    "step": "resile.surfaces.python.build",
}
__all__ = ["ResileError", "Result", "Run", "Workflow", "__version__", "current", "load", "resume", "run", "step"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resile.errors import ResileError
    from resile.surfaces.python.api import Run, load, resume, run
    from resile.surfaces.python.build import Result, Workflow, current, step


def __getattr__(name: str) -> object:
    """A public name, loaded now."""
    if name not in _WHERE:
        raise AttributeError(f"module 'resile' has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
    return found
