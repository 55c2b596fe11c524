"""The process of `resile server`: it starts the host and the API, and stops both on a signal.

    lock -> store -> tokens -> output -> socket -> host -> "listening on URL" ... SIGTERM -> host stops -> exit 0

After the first signal the server starts nothing new, writes its decisions, and gives up the leases of its runs.
Their steps go on, and the next server on this machine adopts them. A second signal ends the steps.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import msgspec
import uvicorn
from msgspec import Struct

from resile.engine.env_files import TOKEN_VARIABLE
from resile.engine.paths import claim_output
from resile.errors import ResileError, StoreError
from resile.executors.signals import StopSignals
from resile.server.access.origin import OriginGuard, is_loopback
from resile.server.access.step_tokens import StepTokens, open_step_tokens
from resile.server.access.tokens import TokenBook, read_token_file
from resile.server.app import Application
from resile.server.context import ServerContext
from resile.server.lock import ServerLock
from resile.server.requests.connection import BoundedConnection
from resile.server.stores import Stores
from resile.server.streams.watcher import Watcher
from resile.store.open import database_file, default_output, open_store
from resile.store.server_tables import SharedStore

STOP_SECONDS_MAX = 8.0
# How long the server waits for open connections once it has handed the runs back.
CLOSE_SECONDS_MAX = 1
LAG_SECONDS = 1.0
BACKLOG = 2048


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The options of `resile server`."""

    db: str | None
    output: str | None = None
    host: str = "127.0.0.1"
    port: int = 8700
    slots: int | None = None
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    json: bool = False


def serve(settings: ServerSettings) -> int:
    """Serve a database until a signal comes; return the exit code."""
    path = database_file(settings.db)
    is_file = path is not None
    if not is_file and not (settings.db or os.environ.get("RESILE_DB", "")).startswith("postgres"):
        raise ResileError("bad-call", "a store in memory can't be served", hint="name a file with --db")
    os.environ.pop(TOKEN_VARIABLE, None)
    store = open_store(settings.db)
    lock = ServerLock(path) if path is not None else None
    try:
        return _serve(settings, store)
    finally:
        store.close()
        if lock is not None:
            lock.close()


def _serve(settings: ServerSettings, store: SharedStore) -> int:
    """Serve an open database; the caller holds its lock, so that no other server on this machine serves it."""
    output = os.path.abspath(settings.output or default_output(settings.db))
    claim_output(output)
    tokens = _load_tokens(settings, store, open_step_tokens(output))
    scheme = _scheme(settings)
    listener = _listen(settings.host, settings.port)
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"{scheme}://{name}:{listener.getsockname()[1]}"
    slots = len(os.sched_getaffinity(0)) if settings.slots is None else settings.slots
    asyncio.run(_Process(settings, store, tokens, output, scheme, listener, url, slots).run())
    return 0


def _load_tokens(settings: ServerSettings, store: SharedStore, steps: StepTokens) -> TokenBook:
    """Load the tokens that the server accepts; a server that other machines can reach must have one."""
    local = is_loopback(settings.host)
    found = read_token_file(settings.token_file) if settings.token_file else ()
    book = TokenBook(found, steps=steps, is_loopback=local)
    book.load(store.server_tables())
    if not local and not book.has_any:
        message = f"--host {settings.host} lets other machines call this server, so it needs a token"
        hint = "`resile token create NAME --role admin` makes one, or name a file with --token-file"
        raise ResileError("token-needed", message, hint=hint)
    return book


def _scheme(settings: ServerSettings) -> str:
    """`https` if the settings have a certificate, which must load; else `http`."""
    if not settings.tls_cert and not settings.tls_key:
        return "http"
    if not settings.tls_cert or not settings.tls_key:
        raise ResileError("bad-call", "--tls-cert and --tls-key belong together", hint="give both")
    file, what = settings.tls_cert, "certificate"
    try:
        open(file, "rb").close()
        file, what = settings.tls_key, "key"
        open(file, "rb").close()
        file, what = settings.tls_cert, f"certificate with the key {settings.tls_key}"
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        message = f"the {what} can't be used: {error.strerror or error}"
        raise ResileError("bad-certificate", message, where=file) from error
    return "https"


def _listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens at this address; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Name the protocol: asyncio turns Nagle's algorithm off only for sockets that it knows to be TCP.
        listener = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        message = f"can't listen on {host} port {port}: {error.strerror or error}"
        hint = "name another with --host and --port; --port 0 takes a free one"
        raise ResileError("no-address", message, hint=hint) from error


class _Uvicorn(uvicorn.Server):
    """The HTTP server. It leaves signals to `_Process`, and calls `started_up` when it accepts connections."""

    def __init__(self, config: uvicorn.Config, started_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._started_up = started_up

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Install no signal handlers."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections, then call `started_up`."""
        await super().startup(sockets)
        self._started_up()


class _Process:
    """One server from its start to its end."""

    def __init__(
        self,
        settings: ServerSettings,
        store: SharedStore,
        tokens: TokenBook,
        output: str,
        scheme: str,
        listener: socket.socket,
        url: str,
        slots: int,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._url = url
        self._slots = slots
        self._store = store
        self._context = ServerContext(
            stores=Stores(settings.db, self._store.identity()),
            watcher=Watcher(settings.db),
            tokens=tokens,
            guard=OriginGuard(settings.host, scheme),
            output=output,
        )
        self._app = Application(self._context)
        config = uvicorn.Config(
            self._app,
            loop="asyncio",
            http=BoundedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=CLOSE_SECONDS_MAX,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        self._server = _Uvicorn(config, self._announce)
        self._beginning: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._has_to_kill = False
        self._signals = StopSignals()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Serve until a signal comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        lag = asyncio.create_task(self._measure_lag())
        try:
            await self._server.serve([self._listener])
            for task in (self._beginning, self._stopping):
                if task is not None:
                    await task
            if self._failure is not None:
                raise self._failure
        finally:
            lag.cancel()
            self._context.stores.close()
            self._context.log("stopped")

    async def _begin(self) -> None:
        """Load the endpoints and start the host; if that fails, the server exits."""
        from resile.server.begin import begin

        loop = asyncio.get_running_loop()

        def fail(error: BaseException) -> None:
            """End the server with this error; another thread calls it."""
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._fail, error)

        try:
            routes = await asyncio.to_thread(begin, self._context, self._store, self._slots, self._url, fail)
        except BaseException:
            self._server.should_exit = True
            raise
        self._app.open(routes)

    def _fail(self, error: BaseException) -> None:
        """End the server with an error, because its host can no longer drive the runs."""
        self._failure = error
        self._server.should_exit = True

    def _announce(self) -> None:
        """Print the address, and begin to drive runs; the server accepts connections by now."""
        self._beginning = asyncio.create_task(self._begin())
        text = f"listening on {self._url}"
        if self._settings.json:
            text = msgspec.json.encode({"url": self._url, "pid": os.getpid()}).decode()
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        self._context.log(f"serving on {self._url} with {self._slots} slots, output in {self._context.output}")

    def _on_signal(self, number: int) -> None:
        """Stop at the first signal; end the steps at the second."""
        if not self._signals.add(number):
            return
        if self._stopping is None:
            self._context.log("stopping: running steps go on, another signal ends them")
            self._stopping = asyncio.create_task(self._stop())
        elif self._stopping.done():
            self._context.log("the runs are handed back already, their steps go on")
        else:
            self._context.log("ending the steps that run")
            self._has_to_kill = True
            if self._beginning is not None and self._beginning.done():
                self._context.host.stop(kill=True)

    async def _stop(self) -> None:
        """Hand the runs back, then end the connections."""
        self._context.is_stopping = True
        self._context.watcher.close()
        if self._beginning is None:
            self._server.should_exit = True
            return
        await self._beginning
        host = self._context.host
        host.stop(kill=self._has_to_kill)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await asyncio.to_thread(self._context.keeper.join, STOP_SECONDS_MAX)
                await asyncio.to_thread(host.wait, STOP_SECONDS_MAX)
        except TimeoutError:
            self._context.log("the runs could not be handed back in time; their leases expire")
        except StoreError as error:
            self._context.log(f"the runs could not be handed back, and their leases expire: {error}")
        finally:
            self._server.should_exit = True

    async def _measure_lag(self) -> None:
        """Measure again and again how late the event loop wakes up."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            self._context.loop_lag_seconds = max(0.0, loop.time() - due)
