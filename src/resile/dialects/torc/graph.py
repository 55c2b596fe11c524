"""Jobs that wait for each other are refused, with everything on the way named. Iterative: a chain costs no stack."""

from __future__ import annotations

from collections.abc import Mapping

from resile.dialects.formats.nodes import Scalar
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.torc.jobs import Job
from resile.errors import shorten

CYCLE_JOBS_SHOWN = 50


def refuse_cycles(report: Diagnostics, needed: Mapping[str, Mapping[str, Scalar]], jobs: Mapping[str, Job]) -> None:
    """Take away jobs whose needs are met until none is left; of those that stay one cycle is named."""
    waiting = {name: len(others) for name, others in needed.items() if others}
    dependents: dict[str, list[str]] = {}
    for name, others in needed.items():
        for other in others:
            dependents.setdefault(other, []).append(name)
    ready = [name for name in needed if name not in waiting]
    while ready:
        for name in dependents.get(ready.pop(), ()):
            waiting[name] -= 1
            if not waiting[name]:
                del waiting[name]
                ready.append(name)
    if not waiting:
        return
    name = next(iter(waiting))
    seen: dict[str, int] = {}
    path: list[str] = []
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = next(other for other in needed[name] if other in waiting)
    cycle = path[seen[name] :]
    shown = [f"`{shorten(job)}`" for job in cycle[:CYCLE_JOBS_SHOWN]]
    if len(cycle) > CYCLE_JOBS_SHOWN:
        shown.append(f"{len(cycle) - CYCLE_JOBS_SHOWN} more")
    message = f"these jobs wait for each other: {' for '.join([*shown, shown[0]])}"
    hint = "files and data make jobs wait, too: who reads one waits for who writes it"
    report.error("cycle", message, jobs[cycle[0]].at("name"), hint=hint)
