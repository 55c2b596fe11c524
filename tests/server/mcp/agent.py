"""A scripted agent: it starts the tools that a config names, with the official client, and calls some of them.

As a program: `agent.py CONFIG ACTION` reads the prompt on stdin, and decides ACTION about every parked failure.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


class Refused(Exception):
    """A tool refused; the text says why."""


class Tools:
    """The tools of one server."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def names(self) -> list[str]:
        """The tools that are offered."""
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def schema(self, name: str) -> dict[str, Any]:
        """The schema of the arguments of a tool."""
        return next(tool.input_schema for tool in (await self._session.list_tools()).tools if tool.name == name)

    async def call(self, name: str, **given: Any) -> dict[str, Any]:
        """The structured answer of a tool."""
        result = await self._session.call_tool(name, given)
        text = result.content[0].text  # type: ignore[union-attr]
        if result.is_error:
            raise Refused(text)
        assert json.loads(text) == result.structured_content
        found: dict[str, Any] = result.structured_content
        return found


def with_tools(
    command: str, args: list[str], env: dict[str, str], work: Callable[[Tools], Coroutine[Any, Any, Any]]
) -> Any:
    """Start a server over stdio, and let some work call its tools."""

    async def session() -> Any:
        """One session."""
        server = StdioServerParameters(command=command, args=args, env=env)
        async with stdio_client(server) as streams, ClientSession(streams[0], streams[1]) as client:
            await client.initialize()
            return await work(Tools(client))

    return anyio.run(session)


def main(config: str, action: str) -> None:
    """Decide the same about every failure of the run that the prompt names."""
    prompt = sys.stdin.read()
    found = re.search(r"workflow_id (\d+)", prompt)
    assert found is not None
    run = int(found[1])
    with open(config) as file:
        [server] = json.load(file)["mcpServers"].values()

    async def decide(tools: Tools) -> None:
        """Look at what is parked, and decide."""
        parked = (await tools.call("list_pending_failed_jobs", workflow_id=run))["jobs"]
        decisions = [{"job_id": job["job_id"], "action": action, "reason": "by script"} for job in parked]
        await tools.call("classify_and_resolve_failures", workflow_id=run, classifications=decisions)

    with_tools(server["command"], server["args"], server["env"], decide)


if __name__ == "__main__":
    main(*sys.argv[1:])
