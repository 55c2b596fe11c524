"""`resile mcp --server`: passes the calls of an agent on stdin to the tools of a server.

The token decides which tools the server offers; the flags of the command can only remove some.
"""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from resile.errors import ResileError
from resile.server.mcp.serve import INSTRUCTIONS
from resile.server.mcp.toolbox import Right
from resile.server.mcp.tools import refuse_right, rights_of
from resile.version import __version__

CONNECT_SECONDS_MAX = 30


def serve_remote(url: str, token: str, rights: frozenset[Right]) -> None:
    """Serve one agent over stdin and stdout with the tools of a server, until it closes them."""
    try:
        anyio.run(_serve, url.rstrip("/") + "/mcp", token, rights)
    except* (httpx2.HTTPError, MCPError) as errors:
        error = errors.exceptions[0]
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        hint = "is the server running, and may the token call it?"
        raise ResileError("server-unreachable", f"{url}: {error}", hint=hint) from error


async def _serve(url: str, token: str, rights: frozenset[Right]) -> None:
    """Connect to the server, then to the agent."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limits = httpx2.Timeout(CONNECT_SECONDS_MAX, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=limits) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as remote,
        stdio_server() as (read, write),
    ):
        await remote.initialize()
        server = _bridge(remote, rights)
        await server.run(read, write, server.create_initialization_options())


def _bridge(remote: ClientSession, rights: frozenset[Right]) -> Server[Any]:
    """A server that offers those tools of the remote server that these rights allow."""

    async def list_tools(_context: object, _given: object) -> types.ListToolsResult:
        """The tools that both the server and the flags allow."""
        found = await remote.list_tools()
        return types.ListToolsResult(tools=[tool for tool in found.tools if rights_of(tool.name) <= rights])

    async def call(_context: object, given: types.CallToolRequestParams) -> types.CallToolResult:
        """Pass a call on, if the flags allow it."""
        try:
            refuse_right(rights, given.name, given.arguments or {})
        except ResileError as error:
            said = types.TextContent(type="text", text=error.message)
            return types.CallToolResult(content=[said], is_error=True)
        result = await remote.call_tool(given.name, given.arguments or {})
        assert isinstance(result, types.CallToolResult)
        return result

    return Server("resile", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call)
