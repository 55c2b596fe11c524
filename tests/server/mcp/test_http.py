"""The tools at `/mcp` of a server: the role of the token decides, and the run goes on by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.cli.program import SOURCES
from tests.server.mcp.agent import Refused, Tools, with_tools
from tests.server.service import Api, Server

PARKS = "resile: 1\nname: p\nsteps: {a: {shell: 'exit 3', park: true}, b: {shell: echo after, needs: [a]}}\n"
Work = Callable[[Tools], Coroutine[Any, Any, Any]]


def over_http(url: str, work: Work, token: str = "") -> Any:
    """Call tools over streamable HTTP with the official client."""

    async def session() -> Any:
        """One session."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as client,
            streamable_http_client(f"{url}/mcp", http_client=client) as streams,
            ClientSession(streams[0], streams[1]) as found,
        ):
            await found.initialize()
            return await work(Tools(found))

    return anyio.run(session)


def resolve(run: int) -> Work:
    """Skip every failure of a run."""

    async def work(tools: Tools) -> Any:
        """Look, then decide."""
        [job] = (await tools.call("list_pending_failed_jobs", workflow_id=run))["jobs"]
        decision = {"job_id": job["job_id"], "action": "skip", "reason": "known", "confidence": 0.5}
        return await tools.call("classify_and_resolve_failures", workflow_id=run, classifications=[decision])

    return work


def test_an_agent_resolves_a_run_of_a_server(api: Api) -> None:
    """The judgement is in the log with its author, and the server drives the run to its end."""
    run = api.start(PARKS)
    api.wait_for(run, "step_parked")
    done = over_http(api.url, resolve(run))
    assert [one["done"] for one in done["results"]] == [True]
    api.wait_for(run, "workflow_completed")
    [event] = api.get(f"/runs/{run}/events?type=step_judged").json["items"]
    assert event["data"]["actor"].startswith("agent:")
    assert event["data"]["confidence"] == 0.5


def test_an_agent_starts_and_cancels_runs_of_a_server(api: Api) -> None:
    """The host drives them; a file with errors is refused with its findings."""

    async def work(tools: Tools) -> int:
        """Start a run that waits, and cancel it."""
        with pytest.raises(Refused, match=r"workflow\.yaml:2"):
            await tools.call("run_workflow", text="resile: 1\nsteps: {a: {shel: x}}\n")
        run: int = (await tools.call("run_workflow", text="resile: 1\nsteps: {a: {shell: sleep 600}}\n"))["run"]
        assert (await tools.call("cancel_run", run=run, reason="enough"))["requested"]
        return run

    run = over_http(api.url, work)
    assert api.wait_for(run, "workflow_canceled")["data"]["run"] == run


def test_the_role_of_a_token_decides(serve: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A viewer reads, an operator judges, a worker and a caller without a token get nothing."""
    secrets = {role: f"secret-of-the-{role}-" + "x" * 30 for role in ("viewer", "operator", "worker")}
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("".join(f"{role} {role} {secret}\n" for role, secret in secrets.items()))
    file.chmod(0o600)
    server = serve("--token-file", str(file))
    operator = Api(server.api.port, secrets["operator"])
    run = operator.start(PARKS)
    operator.wait_for(run, "step_parked")

    async def names(tools: Tools) -> list[str]:
        """The tools."""
        return await tools.names()

    assert "cancel_run" not in over_http(operator.url, names, secrets["viewer"])
    assert "cancel_run" in over_http(operator.url, names, secrets["operator"])
    with pytest.raises(BaseExceptionGroup):
        over_http(operator.url, resolve(run), secrets["viewer"])
    assert Api(operator.port).call("POST", "/mcp", {}).status == 401
    assert Api(operator.port, secrets["worker"]).call("POST", "/mcp", {}).status == 403
    env = {**os.environ, "PYTHONPATH": SOURCES, "RESILE_TOKEN": secrets["operator"]}
    bridge = ["-m", "resile", "mcp", "--server", operator.url]
    assert "cancel_run" not in with_tools(sys.executable, bridge, env, names)
    with pytest.raises(BaseExceptionGroup):
        with_tools(sys.executable, bridge, env, resolve(run))
    with_tools(sys.executable, [*bridge, "--allow-judge"], env, resolve(run))
    operator.wait_for(run, "workflow_completed")
    [event] = operator.get(f"/runs/{run}/events?type=step_judged").json["items"]
    assert json.dumps(event["data"]).count("agent:operator") >= 1


def test_a_judgement_on_the_database_of_a_server_goes_on_by_itself(serve: Callable[..., Server]) -> None:
    """`resile judge` without `--resume` is enough for a run that the server drives."""
    server = serve()
    run = server.api.start(PARKS)
    server.api.wait_for(run, "step_parked")
    words = ["-m", "resile", "judge", str(run), "a", "skip", "--db", str(server.folder / "resile.db")]
    subprocess.run([sys.executable, *words], env={**os.environ, "PYTHONPATH": SOURCES}, check=True)
    assert server.api.wait_for(run, "workflow_completed")
