"""How a host begins to drive a run that is due: from the run's log and from the requests that wait for it.

ended     rerun, retry and redrive start the run again; other requests are refused
else      the run goes on where it was; its engine answers the requests

`resume` and `rerun` may change the capacity of the run: `limits` in their body has fields of a Capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from resile.core.events import Capacity, EpochStarted, Event, RunResumed, RunStarted
from resile.core.state import State
from resile.engine.clock import Clock
from resile.engine.journal import Journal
from resile.engine.neighbours.requests import Result, refuse, retry_job
from resile.engine.session import next_event
from resile.errors import ResileError
from resile.model.workflow import Workflow
from resile.store.contract import Lease, Request, RunRow, Store, Writer

# Begins a redrive: returns its events, which may end with a resume, and the caller's result. It may raise ResileError.
Redrive = Callable[[Store, RunRow, State, Mapping[str, Any], Clock], tuple[list[Event], Result]]


class Opening(msgspec.Struct):
    """The first events of an engine, the results of requests that the host has answered, and the `left` requests."""

    events: list[Event]
    results: dict[int, Result]
    left: list[Request]
    capacity: Capacity

    @property
    def parallel(self) -> int:
        """How many attempts of the run may run at a time."""
        return self.capacity.parallel


def refuse_blocks_here(workflow: Workflow) -> None:
    """Refuse blocks on the machine of a server that runs no steps there."""
    if workflow.executor is not None and workflow.executor.provider == "local":
        message = "this server runs no steps on its own machine (`--slots 0`), and `executor` asks for blocks there"
        raise ResileError("no-slots-here", message, hint="choose another `provider`, or leave `executor` out")


def open_run(
    store: Store,
    row: RunRow,
    state: State,
    requests: list[Request],
    machine: Capacity,
    clock: Clock,
    redrive: Redrive | None,
) -> Opening:
    """Answer requests and choose the first events of the engine; without events there is nothing to drive."""
    opening = Opening([], {}, [], capacity_of(row, state, machine))
    for request in requests:
        _take(opening, store, row, state, request, clock, redrive)
    is_over = state.phase == "ended" and not opening.events
    if not is_over and not any(isinstance(event, RunResumed) for event in opening.events):
        event = next_event(row, state, opening.capacity, clock)
        by = [str(request.body.get("by", "")) for request in requests if request.kind == "resume"]
        opening.events.append(
            msgspec.structs.replace(event, by=by[0]) if by and isinstance(event, RunResumed) else event
        )
    return opening


def _without_early(event: Event) -> Event:
    """Set `early` to 0: a host has several places, so it reserves an attempt only when the attempt's needs hold."""
    if not isinstance(event, RunResumed):
        return event
    return msgspec.structs.replace(event, capacity=msgspec.structs.replace(event.capacity, early=0))


def capacity_of(row: RunRow, state: State, machine: Capacity) -> Capacity:
    """How much a run may use: the capacity of its last engine, or of the call that made the run.

    After a reset the file or the machine decides. A last engine that reserved early was not a host's: it measured its
    own machine, so only its number of attempts counts here.
    """
    replace = msgspec.structs.replace
    known, first = state.capacity, row.summary.get("first")
    if known is None and not first:
        blocks = state.workflow.executor
        here = machine.parallel if blocks is None else blocks.slots
        return replace(machine, parallel=state.workflow.max_parallel or here)
    if known is None:
        known = msgspec.convert(first, RunStarted).capacity
    elif known.early:
        return replace(machine, parallel=known.parallel)
    return replace(machine, parallel=known.parallel, cpus=known.cpus, memory_bytes=known.memory_bytes, gpus=known.gpus)


def write_results(writer: Writer, lease: Lease, results: Mapping[int, Result]) -> None:
    """Write the results of requests to a run that has nothing to drive."""
    if not results:
        return
    share = writer.share()
    journal = Journal(share, lease.run, lease.token)
    for number, result in results.items():
        journal.answer(number, result)
    journal.submit_answers()
    share.flush()
    share.close()


def _take(
    opening: Opening, store: Store, row: RunRow, state: State, request: Request, clock: Clock, redrive: Redrive | None
) -> None:
    """Answer a request now, before there is an engine, or leave it to the engine."""
    body, may_restart = request.body, state.phase == "ended" or row.status == "parked"
    match request.kind:
        case "rerun" if may_restart and not opening.events:
            failed_only, by = bool(body.get("failed_only")), str(body.get("by", ""))
            opening.events.append(EpochStarted(clock.now(), failed_only, by, body.get("inputs")))
            opening.capacity = msgspec.structs.replace(opening.capacity, **body.get("limits", {}))
            opening.results[request.id] = {"ok": True, "epoch": state.epoch + 1}
        case "redrive" if state.phase in ("ended", "redriving") and not opening.events and redrive is not None:
            try:
                events, opening.results[request.id] = redrive(store, row, state, body, clock)
                opening.events = [_without_early(event) for event in events]
            except ResileError as error:
                opening.results[request.id] = refuse(error.code, error.message, error.hint)
        case "retry" if state.phase == "ended" and not opening.events:
            event, opening.results[request.id] = retry_job(state, request, clock.now(), offline=True)
            opening.events += [] if event is None else [event]
        case _ if state.phase == "ended" and not opening.events:
            message = f"run {row.id} has ended ({row.status})"
            opening.results[request.id] = refuse("run-ended", message, f"`resile rerun {row.id}` runs it again")
        case "resume" if not opening.events:
            opening.capacity = msgspec.structs.replace(opening.capacity, **body.get("limits", {}))
            opening.results[request.id] = {"ok": True}
        case _:
            opening.left.append(request)
