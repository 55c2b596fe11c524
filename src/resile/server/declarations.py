"""Declarations of routes: the same ones validate requests and make the OpenAPI document.

A handler is called with a `Request`. `runs` says where:

    "read"     in a thread with a connection for reading: request.client, request.store
    "write"    in a thread with a connection for writing, likewise
    "loop"     on the event loop, a coroutine that must not block: it uses request.server.stores

It returns a document, which is answered with the first status of `answers`, or a `Reply`, or a response of Starlette.
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
    """A successful answer: what it has, as a type, and its media type; `headers` are described by name."""

    about: str
    document: Any = None
    media: str = JSON
    headers: dict[str, str] = {}


class Reply(Struct, frozen=True):
    """An answer with another status than the first, or with headers; None is an empty body."""

    document: Any
    status: int
    headers: Mapping[str, str] = {}


class Request(Struct, frozen=True):
    """A validated request: the values of its path, its query and body as the declared types, and who asks."""

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
    """The name of a call with an idempotency key; runs and requests that it makes keep it."""
    is_repeated: bool = False
    """May a server that is gone have carried this call out before?"""

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
        """A value of the path that is a number."""
        return int(self.path[name])


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path.

    A value of the path is a whole number unless `texts` names it. `role` None is open to all. `also_at_root` is also
    offered without the base path. `problems` are the codes that are its own; `shows_secret` marks an answer that must
    not be stored. Steps may call one that `is_for_steps` with the token of their run, where {run} is that run.
    One that `answers_while_stopping` is answered until the runs are handed back; one that `is_frequent`
    is logged only where it is refused.
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
        """The whole paths of the route."""
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
    """Which part of a list: at most `limit` items after the place that `cursor` names, a `next_cursor` of before."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: str = ""
