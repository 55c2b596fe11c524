"""Calls one tool of an MCP server with the official client, as the code of a `python` step.

    main(settings)   transport (stdio, http, sse), command, args, directory, url, headers, method, arguments

The arguments are data, or a text that holds them as JSON. The result is that of the server: `content`, and
`structuredContent` where there is some. A result that says that it is an error fails the step with its text. The
server of a command inherits the environment of the step.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from typing import Any

NEEDED = "mcp steps need the package mcp: pip install 'resile[mcp]'"


def main(settings: dict[str, Any]) -> Any:
    """Call the tool; return its result."""
    try:
        import anyio  # type: ignore[import-not-found, unused-ignore]
        import mcp  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        sys.exit(NEEDED)
    given = settings["arguments"]
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            sys.exit(f"argsTransform gave no JSON: {error}")
    if not isinstance(given, dict):
        sys.exit("the arguments of a tool are a mapping of names to values")
    problem = ""
    try:
        result: dict[str, Any] = anyio.run(_call, settings, given)
    except Exception as error:
        problem = _innermost(error)
    if problem:
        sys.exit(f"{settings['method']}: {problem}")
    if result.pop("isError", False):
        said = " ".join(str(part.get("text", "")) for part in result.get("content", ())).strip()
        sys.exit(f"{settings['method']}: {said or 'the tool failed'}")
    return result


def _innermost(error: BaseException) -> str:
    """The message of the first error inside a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def _call(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The result of the tool, as plain data."""
    from mcp import ClientSession

    async with _transport(settings) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        result = await session.call_tool(settings["method"], given)
    found: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    found.pop("resultType", None)
    return found


def _transport(settings: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    """The connection to the server."""
    if settings["transport"] == "stdio":
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        server = StdioServerParameters(
            command=settings["command"],
            args=[str(word) for word in settings["args"]],
            env=dict(os.environ),
            cwd=settings["directory"] or None,
        )
        return stdio_client(server)
    if settings["transport"] == "sse":
        from mcp.client.sse import sse_client

        return sse_client(settings["url"], headers=settings["headers"])
    import httpx2  # type: ignore[import-not-found, unused-ignore]
    from mcp.client.streamable_http import streamable_http_client

    client = httpx2.AsyncClient(
        headers=settings["headers"], follow_redirects=True, timeout=httpx2.Timeout(30, read=None)
    )
    return streamable_http_client(settings["url"], http_client=client)
