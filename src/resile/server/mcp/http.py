"""The tools at `/mcp` of a server, by streamable HTTP: the role of the token decides what an agent may do.

    viewer            reads
    operator, admin   also judge failures, start and cancel runs

The package mcp is loaded with the first request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from resile.commands.agents.judge_many import AGENT
from resile.commands.client import Client
from resile.commands.load import CompileOptions
from resile.commands.redrive import RedriveCall
from resile.commands.service.submit import SubmitOptions, TextCall, submit_text
from resile.engine.replay import row_of
from resile.errors import ResileError
from resile.model.status import RUN_ENDED
from resile.server.mcp.toolbox import JUDGE_QUOTA, Acts, Right, Toolbox
from resile.store.open import open_store
from resile.store.server_tables import SharedStore

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send

    from resile.server.access.roles import Identity
    from resile.server.context import ServerContext

_IDENTITY = "resile.identity"
ANSWER_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.05


class McpEndpoint:
    """Speaks MCP with agents without sessions, so that a restart of the server loses none."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._manager: StreamableHTTPSessionManager | None = None
        self._serving: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def handle(self, scope: Scope, receive: Receive, send: Send, identity: Identity) -> None:
        """Answer one request of an agent."""
        manager = await self._open()
        await manager.handle_request({**scope, _IDENTITY: identity}, receive, send)

    async def _open(self) -> StreamableHTTPSessionManager:
        """Load the protocol and start to serve, once."""
        async with self._lock:
            if self._manager is None:
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                from resile.server.mcp.serve import make_server

                app = make_server(self._open_toolbox)
                self._manager = StreamableHTTPSessionManager(app, json_response=True, stateless=True)
                ready = asyncio.Event()
                self._serving = asyncio.create_task(self._serve(self._manager, ready))
                await ready.wait()
            return self._manager

    async def _serve(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        """Keep the protocol's tasks alive until the server stops."""
        async with manager.run():
            ready.set()
            await asyncio.Event().wait()

    @contextmanager
    def _open_toolbox(self, context: ServerRequestContext[Any]) -> Iterator[Toolbox]:
        """Open the database for one call of a tool."""
        request: Any = context.request
        identity: Identity = request.scope[_IDENTITY]
        rights: tuple[Right, ...] = ("read", "judge", "run") if identity.may("operator") else ("read",)
        by = f"{AGENT}{identity.name}"
        with closing(open_store(self._server.stores.db)) as store:
            acts = ServerActs(self._server, store, by)
            yield Toolbox(Client(store), store, acts, by, frozenset(rights), JUDGE_QUOTA)


class ServerActs(Acts):
    """Acts that the host of a server carries out."""

    def __init__(self, server: ServerContext, store: SharedStore, by: str) -> None:
        self._server = server
        self._store = store
        self._by = by

    def ring(self, run: int) -> None:
        """Hand the run to the host."""
        if row_of(self._store, run).status not in RUN_ENDED:
            self._store.server_tables().enqueue(run, time.time())
        self._server.host.ring()

    def redrive(self, run: int, condition: str | None) -> dict[str, Any]:
        """Let the host run dead letters again."""
        call = RedriveCall(run=run, filter=condition, by=self._by)
        Client(self._store).preview_redrive(call)
        done = self._ask(run, "redrive", msgspec.to_builtins(call))
        return {"run": run, "items": done["items"]}

    def run_text(self, text: str, dialect: str, inputs: dict[str, Any]) -> int:
        """Store the run, and hand it to the host."""
        call = TextCall(
            text=text,
            output=self._server.output,
            compile_options=CompileOptions(dialect),
            inputs=inputs,
            runs_here=self._server.host.slots > 0,
        )
        run = submit_text(self._store, call, SubmitOptions(by=self._by)).run
        self._server.host.ring()
        return run

    def cancel(self, run: int, reason: str) -> dict[str, Any]:
        """Let the host cancel the run."""
        row = row_of(self._store, run)
        if row.status not in RUN_ENDED:
            self._ask(run, "cancel", {"reason": reason})
        return {"run": run, "status": row_of(self._store, run).status, "requested": row.status not in RUN_ENDED}

    def _ask(self, run: int, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Leave a request for the engine of a run, and wait for its answer."""
        number = self._store.request(run, time.time(), kind, {**body, "by": self._by})
        # Do this last: a host that finds the run due before the request exists would release the run again.
        self._store.server_tables().enqueue(run, time.time())
        self._server.host.ring()
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while (result := self._store.result(number)) is None:
            if time.monotonic() > deadline:
                raise ResileError("no-answer", f"the engine of run {run} has been asked and has not answered")
            time.sleep(LOOK_SECONDS)
        error = result.get("error")
        if error is not None:
            raise ResileError(str(error.get("code")), str(error.get("message")), hint=str(error.get("hint", "")))
        return result
