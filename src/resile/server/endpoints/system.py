"""The server itself: its health, its version, the document of its API, its metrics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from resile.server.answers import Health, Version
from resile.server.declarations import TEXT, Answer, Request, Route
from resile.server.problems import Problem
from resile.store.lease import boot_seconds
from resile.version import __version__

if TYPE_CHECKING:
    from starlette.responses import Response

    from resile.store.server_tables import ServerTables

_PROBE = "readyz"
# How long a probe waits for the database. The store itself waits longer for one that is away, and who probes does not.
PROBE_SECONDS = 3.0


async def healthz(_request: Request) -> Health:
    """The process answers."""
    return Health("ok")


async def readyz(request: Request) -> Health:
    """The store can be written, the runs are driven, and the server does not stop."""
    if request.server.is_stopping:
        raise Problem("stopping", "the server stops")
    if request.server.host.error is not None:
        raise Problem(
            "store_unavailable", "no run is driven: the database has failed", hint="the server's log says why"
        )
    try:
        await asyncio.wait_for(request.server.stores.write(lambda connection: _write(connection.tables)), PROBE_SECONDS)
    except TimeoutError:
        message = f"the database has not taken a write within {PROBE_SECONDS:.0f} seconds"
        raise Problem("store_unavailable", message, hint="the server's log says why") from None
    return Health("ok")


def _write(tables: ServerTables) -> None:
    """Write to the store, and take it back."""
    tables.begin_call(_PROBE, "", time.time(), boot_seconds())
    tables.forget_call(_PROBE)


async def version(_request: Request) -> Version:
    """The version of the server."""
    return Version(__version__, "v1")


def openapi(request: Request) -> bytes:
    """This document, made when it is first asked for."""
    return request.server.make_openapi()


async def metrics(request: Request) -> Response:
    """The metrics of the server in the text format of Prometheus."""
    from resile.server.metrics.exposition import exposition

    return await exposition(request.server)


ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        handler=healthz,
        about="Does the server answer?",
        role=None,
        runs="loop",
        at_root=True,
        answers={200: Answer("It does", Health)},
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=readyz,
        about="Can the server drive runs now?",
        role=None,
        runs="loop",
        at_root=True,
        answers={200: Answer("It can", Health)},
        problems=("stopping", "store_unavailable"),
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        about="The metrics of the server, for Prometheus",
        runs="loop",
        at_root=True,
        answers={200: Answer("The metrics", media=TEXT)},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handler=openapi,
        about="This document",
        role=None,
        answers={200: Answer("The document", dict)},
    ),
    Route(
        method="GET",
        path="/version",
        handler=version,
        about="The version of the server",
        role=None,
        runs="loop",
        answers={200: Answer("The version", Version)},
    ),
)
