"""Starts the parts of a server that it loads after it accepts connections: the host with the engine, and all endpoints.

Loading them takes longer than the rest of the start, so the first requests wait for it, and the start does not. A host
ends when its store fails, for example because the disk is full. The server goes on, `/readyz` reports the failure, and
a new host takes the runs when the store works again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import cache
from threading import Thread

import msgspec

from resile.commands.redrive import redrive_events
from resile.core.events import Event, RunStarted
from resile.core.state import State
from resile.engine.host.host import Host
from resile.errors import ResileError, StoreError
from resile.model.workflow import Workflow
from resile.server.context import ServerContext, write_log
from resile.server.declarations import Route
from resile.server.metrics.tally import Tally
from resile.server.openapi import document
from resile.server.table import ROUTES
from resile.store.errors import StoreDamaged, StoreGone, StoreTooNew
from resile.store.server_tables import SharedStore

# How many objects Python makes between two garbage collections.
GARBAGE_OBJECTS = 10_000
# How long to wait after a failure of the store before trying it again.
PAUSE_SECONDS = 1.0


def begin(
    context: ServerContext, store: SharedStore, slots: int, url: str, fail: Callable[[BaseException], None]
) -> Sequence[Route]:
    """Drive the runs of a store from now on, and add what endpoints need to the context; return the routes.

    If the server can no longer drive runs, another thread calls `fail`.
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

    # Loaded modules stay for good. Most objects of runs are freed without the collector, so frequent collections find
    # little.
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    start_host()
    arguments = context, start_host, fail
    context.keeper = Thread(target=_keep_driving, args=arguments, name="resile-keeper", daemon=True)
    context.keeper.start()
    return ROUTES


def _keep_driving(
    context: ServerContext, start_host: Callable[[], None], fail: Callable[[BaseException], None]
) -> None:
    """Start a new host whenever the store works again after a failure, until the server stops."""
    while True:
        try:
            context.host.wait()
            return
        except StoreGone:
            # The database was deleted or replaced, so no run can be driven any more; requests get this error.
            return
        except (StoreDamaged, StoreTooNew) as error:
            fail(error)
            return
        except StoreError:
            pass
        except BaseException as error:
            fail(error)
            return
        if not _replace_host(context, start_host):
            return
        if context.is_stopping:
            # The server stopped the former host, and may have missed the new one.
            context.host.stop()


def _replace_host(context: ServerContext, start_host: Callable[[], None]) -> bool:
    """Try until a new host drives the runs; what is missing may come back. Return False if the server stops."""
    said = ""
    while True:
        time.sleep(PAUSE_SECONDS)
        if context.is_stopping:
            return False
        try:
            # Release the leases first: the new host would end the steps of runs that another host seems to drive.
            context.host.hand_back()
            start_host()
        except (ResileError, OSError) as error:
            if str(error) != said:
                said = str(error)
                write_log(f"no new host yet: {said}")
        else:
            write_log("a new host drives the runs")
            return True


def _know_types() -> None:
    """Let msgspec prepare the types that threads decode: it crashes if two threads do so at the same time."""
    declared = [kind for route in ROUTES for kind in (route.body, route.query) if kind is not None]
    for kind in (Workflow, State, Event, RunStarted, *declared):
        msgspec.json.Decoder(kind)


@cache
def _make_openapi() -> bytes:
    return msgspec.json.encode(document(ROUTES))
