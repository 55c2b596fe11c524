"""`mcp` and `recover --agent`: agents look at runs, and judge their failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.cli.commands.run import drive_run
from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.agents.recovery import Place, place_of_database, recover_by_agent
from resile.commands.start.call import ResourceLimits
from resile.engine.env_files import TOKEN_VARIABLE
from resile.errors import ResileError

if TYPE_CHECKING:
    from resile.commands.agents.recovery import Default
    from resile.server.mcp.toolbox import Right

AGENT_SECONDS = 600.0


def mcp(call: Call) -> int:
    """Serve one agent over stdin and stdout."""
    try:
        import mcp as _  # noqa: F401
    except ImportError as error:
        hint = "pip install 'resile[mcp]'"
        raise ResileError("no-mcp", "`resile mcp` needs the package mcp", hint=hint) from error
    from resile.server.mcp.toolbox import JUDGE_QUOTA

    rights: list[Right] = ["read"]
    rights += ["judge"] if call.flag("allow-judge") else []
    rights += ["run"] if call.flag("allow-run") else []
    url = call.server
    quota = call.whole("judge-quota")
    if url:
        if quota is not None:
            raise refusal("--judge-quota goes with a database; a server has a quota of its own", "leave it out")
        from resile.commands.remote.connection import token_in, token_of_environment
        from resile.server.mcp.bridge import serve_remote

        path = call.text("token-file")
        serve_remote(url, token_in(path) if path else token_of_environment(), frozenset(rights))
        return 0
    from resile.server.mcp.local import serve_database

    serve_database(call.database, frozenset(rights), JUDGE_QUOTA if quota is None else quota)
    return 0


def recover(call: Call, command: str) -> int:
    """Let an agent judge the parked failures of a run, then drive it on."""
    seconds = call.duration("timeout") or AGENT_SECONDS
    default: Default = {"fail": "fail", "retry": "retry"}.get(call.word("default"), "park")  # type: ignore[assignment]
    place = _place_of_server(call) if call.server else place_of_database(call.database)
    done = recover_by_agent(call.client, place, call.run, command, timeout_seconds=seconds, default=default)
    ended = "took too long" if done.exit_code is None else f"ended with exit code {done.exit_code}"
    if not call.json:
        judged = output.plural(done.judged, "failure")
        output.say(f"the agent {ended}: it judged {judged}, {done.left} {'stays' if done.left == 1 else 'stay'} parked")
    if call.server and (done.judged or default != "park"):
        # The server went on with the run at the first judgement.
        return drive_run(call, lambda watch: call.client.wait(call.run, watch))
    return drive_run(call, lambda watch: call.client.resume(call.run, ResourceLimits(), watch, call.launcher))


def _place_of_server(call: Call) -> Place:
    """The server that the caller names, with the caller's token: its tools need it, and nothing else shows it."""
    from resile.commands.remote.connection import token_in, token_of_environment

    path = call.text("token-file")
    token = token_in(path) if path else token_of_environment()
    return Place(("--server", call.server), {TOKEN_VARIABLE: token} if token else {})
