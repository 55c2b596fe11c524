"""What a server loads once it accepts connections: the host with the engine, and every endpoint.

Loading them takes longer than all that comes before, so the first requests wait for it, and the start does not.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache

import msgspec

from resile.commands.redrive import redrive_events
from resile.engine.host.host import Host
from resile.server.context import ServerContext, write_log
from resile.server.declarations import Route
from resile.server.metrics.tally import Tally
from resile.server.openapi import document
from resile.server.table import ROUTES
from resile.store.server_tables import SharedStore

# How many objects are made between two looks for cycles of garbage.
GARBAGE_OBJECTS = 10_000


def begin(context: ServerContext, store: SharedStore, slots: int, url: str) -> Sequence[Route]:
    """Start to drive the runs of a store, and add what endpoints need to the context; return the routes."""
    tally = context.tally = Tally()
    context.make_openapi = _make_openapi
    context.host = Host(
        store,
        context.output,
        slots=slots,
        log=write_log,
        redrive=redrive_events,
        api_url=url,
        step_token=context.tokens.steps.token_for,
        listener=tally.add,
        note_commit=tally.commits.add,
    )
    # All that is loaded stays. What runs leave is mostly free at once: to look for cycles more often finds few.
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    context.host.start()
    return ROUTES


@cache
def _make_openapi() -> bytes:
    return msgspec.json.encode(document(ROUTES))
