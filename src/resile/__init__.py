"""Resile: a workflow engine whose subject is failure.

    from resile import Workflow, run, step          docs/python.md

The names below are the public API; each is loaded when it is first asked for, so `import resile` costs nothing.
"""

__version__ = "0.1.0"

_WHERE = {
    "ResileError": "resile.errors",
    "Result": "resile.api.workflow",
    "Run": "resile.api.run",
    "Workflow": "resile.api.workflow",
    "current": "resile.api.workflow",
    "load": "resile.api.run",
    "resume": "resile.api.run",
    "run": "resile.api.run",
    "step": "resile.api.workflow",
}
__all__ = ["ResileError", "Result", "Run", "Workflow", "__version__", "current", "load", "resume", "run", "step"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resile.api.run import Run, load, resume, run
    from resile.api.workflow import Result, Workflow, current, step
    from resile.errors import ResileError


def __getattr__(name: str) -> object:
    """A public name, loaded now."""
    if name not in _WHERE:
        raise AttributeError(f"module 'resile' has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
    return found
