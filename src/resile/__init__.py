"""Resile: a workflow engine whose subject is failure.

    from resile import Workflow, run, step          docs/guides/python.md

The names below are the public API; each is loaded when it is first asked for, so `import resile` costs nothing.
"""

_WHERE = {
    "__version__": "resile.version",
    "Client": "resile.api.client",
    "Map": "resile.api.options",
    "OnFailure": "resile.api.options",
    "ResileError": "resile.errors",
    "Resources": "resile.api.options",
    "Result": "resile.api.build",
    "Retry": "resile.api.options",
    "Run": "resile.api.run",
    "Workflow": "resile.api.workflow",
    "current": "resile.api.step",
    "load": "resile.api.run",
    "resume": "resile.api.run",
    "run": "resile.api.run",
    "step": "resile.api.step",
}
__all__ = [
    "Client",
    "Map",
    "OnFailure",
    "ResileError",
    "Resources",
    "Result",
    "Retry",
    "Run",
    "Workflow",
    "__version__",
    "current",
    "load",
    "resume",
    "run",
    "step",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resile.api.build import Result
    from resile.api.client import Client
    from resile.api.options import Map, OnFailure, Resources, Retry
    from resile.api.run import Run, load, resume, run
    from resile.api.step import current, step
    from resile.api.workflow import Workflow
    from resile.errors import ResileError
    from resile.version import __version__


def __getattr__(name: str) -> object:
    """A public name, loaded now."""
    if name not in _WHERE:
        raise AttributeError(f"module 'resile' has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
    return found
