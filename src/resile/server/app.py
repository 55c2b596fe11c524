"""Turns a request into an answer. The order of the checks is fixed, because each protects those after it:

    for this host, from this site? -> which path? -> who? -> which method? -> may they? -> query -> body -> handler
      421, 403                                       401    405               403         422      413, 415, 400, 422

So a caller without the right learns nothing about what exists, and its body is not read.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from resile.errors import ResileError, StoreError
from resile.server.declarations import Reply, Request, Route
from resile.server.problems import MEDIA_TYPE, Problem, problem_of
from resile.server.requests.idempotency import Remembered, begin, finish, hold, release
from resile.server.requests.reading import BODY_BYTES_MAX, read_body, read_query

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from resile.server.access.roles import Identity
    from resile.server.context import ServerContext
    from resile.server.mcp.http import McpEndpoint
    from resile.server.stores import Connection

_NUMBER, _TEXT = r"(?P<{}>\d{{1,18}})", r"(?P<{}>.+)"
_JSON_TYPE = re.compile(r'application/json(\s*;\s*charset="?utf-?8"?)?\s*', re.IGNORECASE)
_FREQUENT = "resile.frequent"
_CHANGES = frozenset(("POST", "PUT", "DELETE"))
MCP_PATH = "/mcp"


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body without fields."""


class RouteTable:
    """Finds the routes of a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._fixed: dict[str, dict[str, Route]] = {}
        patterns: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in routes:
            for path in route.paths:
                if not route.parameters:
                    self._fixed.setdefault(path, {})[route.method] = route
                    continue
                pattern = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
                for name in route.parameters:
                    kind = _TEXT if name in route.texts else _NUMBER
                    pattern = pattern.replace(f"{{{name}}}", kind.format(name))
                patterns.setdefault(pattern, (re.compile(pattern), {}))[1][route.method] = route
        self._patterns = list(patterns.values())

    def find(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of a path by method, and the values in the path; no routes for an unknown path."""
        if path in self._fixed:
            return self._fixed[path], {}
        for pattern, routes in self._patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return routes, found.groupdict()
        return {}, {}


class Application:
    """The API as an ASGI application."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._table = RouteTable(())
        self._is_open = asyncio.Event()
        self._agents: McpEndpoint | None = None

    def open(self, routes: Sequence[Route]) -> None:
        """Answer requests by these routes from now on; earlier requests wait for this call."""
        self._table = RouteTable(routes)
        self._is_open.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        who: list[str] = []
        try:
            if scope["path"] == MCP_PATH:
                await self._serve_agent(scope, receive, send, headers)
                return
            response = await self._answer(scope, receive, headers, who)
        except Problem as problem:
            response = _problem_response(problem)
        except ResileError as error:
            if isinstance(error, StoreError):
                self._server.log(f"store: {error.code}: {error.message}")
            response = _problem_response(problem_of(error))
        except Exception as error:
            for line in "".join(traceback.format_exception(error)).splitlines():
                self._server.log(line)
            response = _problem_response(Problem("internal_error", "an unexpected error; the server's log has it"))
        if scope["method"] in _CHANGES and not (scope.get(_FREQUENT) and response.status_code < 400):
            self._server.log(f"{''.join(who) or '-'} {scope['method']} {_raw_path(scope)} {response.status_code}")
        await response(scope, receive, send)

    async def _serve_agent(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        """Pass the request of an agent to the tools, if it may read at least."""
        self._server.guard.check(headers, (scope.get("server") or ("", 0))[0] or "")
        await self._is_open.wait()
        identity = await self._identify(headers, (scope.get("client") or ("", 0))[0], {})
        if not identity.may("viewer"):
            raise Problem("role_too_low", f"the role {identity.role} may not use the tools of agents")
        if self._agents is None:
            from resile.server.mcp.http import McpEndpoint

            self._agents = McpEndpoint(self._server)
        await self._agents.handle(scope, receive, send, identity)

    async def _answer(self, scope: Scope, receive: Receive, headers: dict[str, str], who: list[str]) -> Response:
        """Find the route, check the caller's rights, read the request and call the handler."""
        server = self._server
        server.guard.check(headers, (scope.get("server") or ("", 0))[0] or "")
        await self._is_open.wait()
        routes, values = self._table.find(scope["path"])
        identity = await self._identify(headers, (scope.get("client") or ("", 0))[0], routes)
        who.append(identity.name)
        if not routes:
            raise Problem("no_such_path", "there is no such path", hint="/api/v1/openapi.json lists them")
        route = routes.get(scope["method"])
        if route is None:
            allow = ", ".join(sorted(routes))
            raise Problem("method_not_allowed", f"this path has {allow}", headers={"Allow": allow})
        is_step = identity.run is not None and route.is_for_steps and values.get("run") == str(identity.run)
        if route.role is not None and not identity.may(route.role) and not is_step:
            has = identity.role if identity.run is None else "none: it is that of a step"
            message = f"this needs the role {route.role}; the token {identity.name!r} has {has}"
            raise Problem("role_too_low", message)
        scope[_FREQUENT] = route.is_frequent
        if server.is_stopping and scope["method"] in _CHANGES and not route.answers_while_stopping:
            raise Problem("stopping", "the server stops", headers={"Retry-After": "5"})
        query = read_query(scope["query_string"], route.query)
        data = await self._read(receive, headers) if scope["method"] in _CHANGES else b""
        body = _body_of(route, data, headers)
        request = Request(server, identity, values, query, body, headers, hung_up=partial(_wait_for_hang_up, receive))
        key = headers.get("idempotency-key") if scope["method"] == "POST" else None
        if key is None:
            return await self._call(route, request)
        return await self._call_once(route, request, key, b"\0".join((scope["raw_path"], scope["query_string"], data)))

    async def _identify(self, headers: dict[str, str], address: str, routes: dict[str, Route]) -> Identity:
        """Find the identity of the caller; a path that is open to all needs no token."""
        tokens = self._server.tokens
        if routes and all(route.role is None for route in routes.values()):
            return tokens.anyone
        if tokens.is_stale:
            await self._server.stores.read(lambda connection: tokens.load(connection.tables))
        return tokens.identify(headers.get("authorization", ""), address)

    async def _read(self, receive: Receive, headers: dict[str, str]) -> bytes:
        """The body, if it is not too large."""
        too_large = Problem(
            "body_too_large", f"a body has at most {BODY_BYTES_MAX} bytes", headers={"Connection": "close"}
        )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length[:19]) > BODY_BYTES_MAX:
            raise too_large
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem("malformed_request", "the body ended early")
            part = message.get("body", b"")
            size += len(part)
            if size > BODY_BYTES_MAX:
                raise too_large
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _call(self, route: Route, request: Request) -> Response:
        """Call the handler in the thread that the route names, and make a response of its result."""
        if route.runs == "loop":
            return _response(route, await route.handler(request))

        def handle(connection: Connection) -> Response:
            """Make the response in the thread of the handler, because it takes long to encode a large document."""
            return _response(route, route.handler(msgspec.structs.replace(request, connection=connection)))

        stores = self._server.stores
        return await (stores.read if route.runs == "read" else stores.write)(handle)

    async def _call_once(self, route: Route, request: Request, key: str, content: bytes) -> Response:
        """Call the handler unless a request with this key was answered already; then give that answer again."""
        known = await begin(request, key, content)
        if isinstance(known, Remembered):
            return Response(known.body, known.status, {**known.headers, "Idempotent-Replayed": "true"})
        request = msgspec.structs.replace(request, call=known.name, is_repeated=known.is_repeated)
        holding = asyncio.create_task(hold(request, known))
        try:
            try:
                response = await self._call(route, request)
            except Problem as problem:
                response = _problem_response(problem)
            except ResileError as error:
                response = _problem_response(problem_of(error))
        except BaseException:
            await release(request, known.key)
            raise
        finally:
            holding.cancel()
        if response.status_code >= 500:
            await release(request, known.key)
        else:
            kept = {name: value for name, value in response.headers.items() if name != "content-length"}
            await finish(
                request, known.key, Remembered(response.status_code, kept, bytes(response.body)), route.shows_secret
            )
        return response


async def _wait_for_hang_up(receive: Receive) -> None:
    """Wait until the caller has closed the connection; the body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _raw_path(scope: Scope) -> str:
    return str(scope.get("raw_path", b"").decode("latin-1"))


def _body_of(route: Route, data: bytes, headers: dict[str, str]) -> Any:
    """The body as its declared type; None if it is missing and optional."""
    if route.method not in _CHANGES:
        return None
    if not data and (route.body is None or route.is_body_optional):
        return route.body() if route.body is not None else None
    if not _JSON_TYPE.fullmatch(headers.get("content-type", "")):
        raise Problem("wrong_content_type", "the body must be JSON", hint="send `Content-Type: application/json`")
    return read_body(data, route.body or NoBody)


def _response(route: Route, result: Any) -> Response:
    """Make a response of a handler's result."""
    if isinstance(result, Response):
        return result
    if not isinstance(result, Reply):
        result = Reply(result, next(iter(route.answers)))
    if result.document is None:
        return Response(None, result.status, dict(result.headers))
    body = result.document if isinstance(result.document, bytes) else msgspec.json.encode(result.document)
    return Response(body, result.status, dict(result.headers), media_type="application/json")


def _problem_response(problem: Problem) -> Response:
    body = msgspec.json.encode(problem.document)
    return Response(body, problem.status, dict(problem.headers), media_type=MEDIA_TYPE)
