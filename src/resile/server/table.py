"""Every route of the API."""

from __future__ import annotations

from resile.server.declarations import Route
from resile.server.endpoints import (
    acts,
    check,
    clients,
    dead_letters,
    events,
    failure_handlers,
    failures,
    jobs,
    runs,
    system,
    tokens,
    user_data,
    workers,
)

ROUTES: tuple[Route, ...] = (
    *system.ROUTES,
    *acts.ROUTES[:1],
    *runs.ROUTES,
    *acts.ROUTES[1:],
    *jobs.ROUTES,
    *events.ROUTES,
    *failures.ROUTES,
    *clients.ROUTES,
    *dead_letters.ROUTES,
    *check.ROUTES,
    *user_data.ROUTES,
    *workers.ROUTES,
    *tokens.ROUTES,
    *failure_handlers.ROUTES,
)
