"""How routes are declared; the server validates requests by the declarations and makes its OpenAPI document of them.

The server calls the handler of a route with a `Request`. `runs` says where:

    "read"     in a thread with a connection for reading: request.client, request.store
    "write"    in a thread with a connection for writing, likewise
    "loop"     on the event loop, a coroutine that must not block: it uses request.server.stores

The handler returns a document, which the server sends with the first status of `answers`, or a `Reply`, or a response
of Starlette.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from resile.commands.service.tokens import Role
from resile.server.access.roles import Identity

if TYPE_CHECKING:
    from resile.commands.client import Client
    from resile.server.context import ServerContext
    from resile.server.stores import Connection
    from resile.store.server_tables import ServerTables, SharedStore

T = TypeVar("T")
BASE = "/api/v1"
JSON, TEXT, EVENTS = "application/json", "text/plain; charset=utf-8", "text/event-stream"
_PARAMETER = re.compile(r"\{(\w+)\}")


class Answer(Struct, frozen=True):
    """A successful answer: the type of its document and its media type; `headers` has their names and descriptions."""

    about: str
    document: Any = None
    media: str = JSON
    headers: dict[str, str] = {}


class Reply(Struct, frozen=True):
    """An answer with headers, or with another status than the first of its route; None is an empty body."""

    document: Any
    status: int
    headers: Mapping[str, str] = {}


class Request(Struct, frozen=True):
    """A validated request: the values in its path, its query and body in the declared types, and its caller."""

    server: ServerContext
    identity: Identity
    path: dict[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    connection: Connection | None = None
    hung_up: Callable[[], Awaitable[None]] | None = None
    """Waits until the caller has closed the connection."""
    call: str = ""
    """The name of a call with an idempotency key; the store keeps it with the runs and requests that the call makes."""
    is_repeated: bool = False
    """May a server that has exited since have carried out this call before?"""

    @property
    def client(self) -> Client:
        """The commands on the connection of this thread."""
        assert self.connection is not None
        return self.connection.client

    @property
    def store(self) -> SharedStore:
        """The store, on the connection of this thread."""
        assert self.connection is not None
        return self.connection.store

    @property
    def tables(self) -> ServerTables:
        """The tables that servers share, on the connection of this thread."""
        assert self.connection is not None
        return self.connection.tables

    def number(self, name: str) -> int:
        """The value in the path with this name, as a number."""
        return int(self.path[name])


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path.

    A value in the path is a whole number unless `texts` names it.

        role                    the role that a caller must have; None: all may call it, without a token
        problems                the codes of its errors, besides those that every route has
        at_root, also_at_root   it has no base path; it is offered without it, too
        shows_secret            the answer must not be stored
        is_for_steps            steps may call it with the token of their run, if {run} in the path is that run
        answers_while_stopping  a server that stops answers it, and refuses other calls that change something
        is_frequent             the server logs only calls that it refuses
    """

    method: str
    path: str
    handler: Callable[[Request], Any]
    about: str
    answers: dict[int, Answer]
    role: Role | None = "viewer"
    runs: Literal["read", "write", "loop"] = "read"
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    is_body_optional: bool = False
    problems: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    at_root: bool = False
    also_at_root: bool = False
    shows_secret: bool = False
    answers_while_stopping: bool = False
    is_frequent: bool = False
    is_for_steps: bool = False

    @property
    def paths(self) -> list[str]:
        """The paths of the route, with the base path where it has one."""
        if self.at_root:
            return [self.path]
        return [BASE + self.path, self.path] if self.also_at_root else [BASE + self.path]

    @property
    def parameters(self) -> list[str]:
        """The names of the values in the path."""
        return _PARAMETER.findall(self.path)


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A query without parameters."""


class Items(Struct, Generic[T], frozen=True):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[T]
    next_cursor: str | None


class Page(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which part of a list: at most `limit` items, from where `cursor` points: the `next_cursor` of an earlier page."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: str = ""
