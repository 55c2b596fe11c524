"""What a server loads once it accepts connections: the host with the engine, and every endpoint.

Loading them takes longer than all that comes before, so the first requests wait for it, and the start does not.

A host ends when its store fails: the database is away for long, its disk is full. The server goes on, `/readyz` says
so, and a new host takes the runs when the store is back.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from threading import Thread

import msgspec

from resile.commands.redrive import redrive_events
from resile.core.events import Event, RunStarted
from resile.core.state import State
from resile.engine.host.host import Host
from resile.errors import StoreError
from resile.model.workflow import Workflow
from resile.server.context import ServerContext, write_log
from resile.server.declarations import Route
from resile.server.metrics.tally import Tally
from resile.server.openapi import document
from resile.server.table import ROUTES
from resile.store.errors import StoreDamaged, StoreGone, StoreTooNew
from resile.store.server_tables import SharedStore

# How many objects are made between two looks for cycles of garbage.
GARBAGE_OBJECTS = 10_000
# How long to wait for a store that has failed before looking at it again.
PAUSE_SECONDS = 1.0


def begin(
    context: ServerContext, store: SharedStore, slots: int, url: str, fail: Callable[[BaseException], None]
) -> Sequence[Route]:
    """Drive the runs of a store from now on, and add what endpoints need to the context; return the routes.

    `fail` is called in another thread when the runs can't be driven any more.
    """
    _know_types()
    tally = context.tally = Tally()
    context.make_openapi = _make_openapi

    def start_host() -> None:
        """Start a host."""
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
        context.host.start()

    # All that is loaded stays. What runs leave is mostly free at once: to look for cycles more often finds few.
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    start_host()
    Thread(target=_keep_driving, args=(context, start_host, fail), name="resile-keeper", daemon=True).start()
    return ROUTES


def _keep_driving(
    context: ServerContext, start_host: Callable[[], None], fail: Callable[[BaseException], None]
) -> None:
    """Start a new host whenever the store has failed and is back, until the server stops."""
    while True:
        try:
            context.host.wait()
            return
        except StoreGone:
            # It was deleted or replaced, so nothing can be driven any more; requests are answered with that.
            return
        except (StoreDamaged, StoreTooNew) as error:
            fail(error)
            return
        except StoreError:
            pass
        except BaseException as error:
            fail(error)
            return
        time.sleep(PAUSE_SECONDS)
        if context.is_stopping:
            return
        # First the leases: the new host would end the steps of runs that another one seems to drive.
        with suppress(StoreError):
            context.host.hand_back()
            start_host()
            write_log("a new host drives the runs")


def _know_types() -> None:
    """Let msgspec look at the types that threads decode: two that do so at once for the first time crash it."""
    declared = [kind for route in ROUTES for kind in (route.body, route.query) if kind is not None]
    for kind in (Workflow, State, Event, RunStarted, *declared):
        msgspec.json.Decoder(kind)


@cache
def _make_openapi() -> bytes:
    return msgspec.json.encode(document(ROUTES))
