"""Speaks MCP with one agent: over stdin and stdout, or for a server over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from resile.errors import ResileError
from resile.server.mcp.marking import NOTE
from resile.server.mcp.toolbox import Toolbox
from resile.server.mcp.tools import Tool, call_tool, tools_for
from resile.version import __version__

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

INSTRUCTIONS = (
    "Resile runs workflows and answers their failures. list_pending_failed_jobs shows the failures that wait for a "
    "decision, classify_and_resolve_failures decides about them. Blocks between <program-output …> marks: " + NOTE
)
# Opens the toolbox of the agent that sent a request, on the thread that calls the tool.
Open = Callable[["ServerRequestContext[Any]"], AbstractContextManager[Toolbox]]


def make_server(open_toolbox: Open) -> Server[Any]:
    """A server of tools; each call works with the toolbox of its agent."""

    async def list_tools(context: ServerRequestContext[Any], _: object) -> types.ListToolsResult:
        """The tools that the agent may call."""

        def find() -> list[Tool]:
            """Open the toolbox and list the agent's tools."""
            with open_toolbox(context) as toolbox:
                return tools_for(toolbox)

        tools = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.schema(),
                annotations=types.ToolAnnotations(read_only_hint=tool.right == "read"),
            )
            for tool in await anyio.to_thread.run_sync(find)
        ]
        return types.ListToolsResult(tools=tools)

    async def call(context: ServerRequestContext[Any], given: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool on a thread; a refusal is a result that says why."""

        def work() -> dict[str, Any]:
            """Open the toolbox and call the tool."""
            with open_toolbox(context) as toolbox:
                return call_tool(toolbox, given.name, given.arguments or {})

        try:
            answer = await anyio.to_thread.run_sync(work)
        except ResileError as error:
            findings = [finding.render() for finding in error.diagnostics]
            said = "\n".join([error.message + (f" ({error.hint})" if error.hint else ""), *findings])
            return types.CallToolResult(content=[types.TextContent(type="text", text=said)], is_error=True)
        text = json.dumps(answer, ensure_ascii=False)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=answer)

    return Server(
        "resile",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call,
    )


def serve_stdio(server: Server[Any]) -> None:
    """Serve one agent over stdin and stdout until it closes them."""

    async def serve() -> None:
        """Serve the agent."""
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
