"""What every surface can do. Each verb is imported when it is first used, because a surface needs few of them.

load.py   compile and check files       drive.py  run, resume, rerun, reset, cancel
look.py   status, events                logs.py   what steps wrote
judge.py  parked failures               metrics.py  how the rules did
dlq.py    dead letters                  redrive.py  dead letters run again
migrate.py  a file of any dialect as a native one
rehearse.py  one step's ladder against a supposed failure
explain.py  which rule answered which failure, and why
names.py  the types of events
"""

from __future__ import annotations

_MODULES = {
    "check": "load",
    "Finished": "drive",
    "RunCall": "drive",
    "Watcher": "drive",
    "cancel": "drive",
    "rerun": "drive",
    "reset_status": "drive",
    "resume": "drive",
    "run": "drive",
    "events": "look",
    "follow": "look",
    "status": "look",
    "Judgement": "judge",
    "failures": "judge",
    "judge": "judge",
    "letter": "dlq",
    "letters": "dlq",
    "purge": "dlq",
    "stats": "dlq",
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

    return getattr(importlib.import_module(f"resile.surfaces.verbs.{_MODULES[name]}"), name)
