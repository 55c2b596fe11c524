"""Workers: they register, claim attempts and report them; people see them, and let them drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from resile.executors.worker.messages import (
    Appeal,
    Beat,
    Grant,
    Introduction,
    Reports,
    Welcome,
    Word,
    WorkerDocument,
)
from resile.server.declarations import Answer, Items, Page, Request, Route
from resile.server.requests.reading import page_of

if TYPE_CHECKING:
    from resile.engine.host.workers import Workers

T = TypeVar("T")


async def _call(request: Request, function: Callable[[Workers], T]) -> T:
    """Call a function in the thread of the host, which has the workers."""
    return await asyncio.wrap_future(request.server.host.call(function))


async def list_all(request: Request) -> Items[WorkerDocument]:
    """The workers, those that were lost in the last hour included."""
    return page_of(await _call(request, lambda workers: workers.documents()), request.query)


async def register(request: Request) -> Welcome:
    """Know a worker."""
    body: Introduction = request.body
    return await _call(request, lambda workers: workers.register(body))


async def claim(request: Request) -> Grant:
    """Wait for attempts; a worker that hangs up gets none."""
    body: Appeal = request.body
    number = request.path["id"]
    offer = await _call(request, lambda workers: workers.claim(number, body))
    answer = asyncio.wrap_future(offer.answer)
    assert request.hung_up is not None
    hung_up = asyncio.ensure_future(request.hung_up())
    try:
        either: set[asyncio.Future[Any]] = {answer, hung_up}
        await asyncio.wait(either, timeout=body.wait_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hung_up.cancel()
    if not answer.done():
        await _call(request, lambda workers: workers.end_claim(number, offer))
    return await answer


async def report(request: Request) -> Word:
    """Take starts, output and ends of a worker's attempts."""
    body: Reports = request.body
    return await _call(request, lambda workers: workers.report(request.path["id"], body))


async def heartbeat(request: Request) -> Word:
    """Hear that a worker lives."""
    return await _call(request, lambda workers: workers.heartbeat(request.path["id"], request.body))


async def drain(request: Request) -> None:
    """Let a worker finish what it has, and exit."""
    await _call(request, lambda workers: workers.drain(request.path["id"]))


ROUTES = (
    Route(
        method="GET",
        path="/workers",
        handler=list_all,
        about="List the workers",
        runs="loop",
        query=Page,
        answers={200: Answer("The workers", Items[WorkerDocument])},
    ),
    Route(
        method="POST",
        path="/workers",
        handler=register,
        about="Register a worker, or one that comes back",
        role="worker",
        runs="loop",
        body=Introduction,
        answers={201: Answer("The worker's id, and the attempts that it is to end", Welcome)},
        problems=("shared_output_not_seen",),
    ),
    Route(
        method="POST",
        path="/workers/{id}/claim",
        handler=claim,
        about="Wait for attempts to run; answered as soon as there is work",
        role="worker",
        runs="loop",
        texts=("id",),
        body=Appeal,
        answers={200: Answer("The attempts", Grant)},
        problems=("no_such_worker",),
        is_frequent=True,
    ),
    Route(
        method="POST",
        path="/workers/{id}/reports",
        handler=report,
        about="Report attempts that started, their output, and how they ended",
        role="worker",
        runs="loop",
        texts=("id",),
        body=Reports,
        answers={200: Answer("What to end, what is recorded, and what is the worker's no more", Word)},
        problems=("no_such_worker",),
        answers_while_stopping=True,
        is_frequent=True,
    ),
    Route(
        method="POST",
        path="/workers/{id}/heartbeat",
        handler=heartbeat,
        about="Renew a worker's lease",
        role="worker",
        runs="loop",
        texts=("id",),
        body=Beat,
        is_body_optional=True,
        answers={200: Answer("What to end, and what is recorded", Word)},
        problems=("no_such_worker",),
        answers_while_stopping=True,
        is_frequent=True,
    ),
    Route(
        method="POST",
        path="/workers/{id}/drain",
        handler=drain,
        about="Let a worker finish what it has, and exit",
        role="admin",
        runs="loop",
        texts=("id",),
        answers={202: Answer("It claims nothing more")},
        problems=("no_such_worker",),
    ),
)
