"""What every surface can do. Each verb is imported when it is first used, because a surface needs few of them.

load          compile and check files           run           run, resume, rerun, reset, cancel
inspect       status and events                 logs          what steps wrote
judge         parked failures                   metrics       how often each rule fired
dead_letters  list, count and remove them       redrive       run dead letters again
migrate       any dialect to a native file      rehearse      one step's rules against a supposed failure
explain       which rule answered, and why      events        the types of events
documents     the JSON that every surface prints
"""

from __future__ import annotations

_MODULES = {
    "check": "load",
    "RunOutcome": "run",
    "RunCall": "run",
    "EngineListener": "run",
    "cancel": "run",
    "rerun": "run",
    "reset": "run",
    "resume": "run",
    "run": "run",
    "events": "inspect",
    "follow": "inspect",
    "status": "inspect",
    "Judgement": "judge",
    "parked": "judge",
    "judge": "judge",
    "letter": "dead_letters",
    "letters": "dead_letters",
    "purge": "dead_letters",
    "stats": "dead_letters",
    "RedriveCall": "redrive",
    "preview": "redrive",
    "redrive": "redrive",
    "explain": "explain",
    "metrics": "metrics",
    "migrate": "migrate",
    "rehearse": "rehearse",
    "supposed": "rehearse",
    "LogPart": "logs",
    "export_logs": "logs",
    "follow_logs": "logs",
    "logs": "logs",
}


def __getattr__(name: str) -> object:
    """Find a verb in its module."""
    if name not in _MODULES:
        raise AttributeError(name)
    import importlib

    return getattr(importlib.import_module(f"resile.commands.{_MODULES[name]}"), name)
