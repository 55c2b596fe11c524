"""More rows of the table of commands (table.py): those for agents."""

from __future__ import annotations

from resile.cli.grammar import Command, Option

AGENT_COMMANDS = (
    Command(
        "mcp",
        "commands.agents:mcp",
        "offer the runs to an agent, by MCP over stdin and stdout",
        about=(
            "Agents list runs, read logs and explanations, and check files. With --allow-judge they also decide about "
            "parked failures and retry dead letters, with --allow-run they start and cancel runs. What steps printed "
            "is marked as data."
        ),
        options=(
            Option("--allow-judge", "let agents judge parked failures and retry dead letters"),
            Option("--allow-run", "let agents start and cancel runs"),
            Option("--judge-quota N", "judgements of agents in one run, at most (20)", kind="whole", most=1_000_000),
        ),
        examples=("resile mcp", "resile mcp --allow-judge --db team.db"),
        exits=("0  the agent closed the connection", "2  there is no such database, or the call is wrong"),
    ),
    Command(
        "recover RUN",
        "commands.agents:recover",
        "let an agent judge the parked failures of a run, then go on with it",
        about=(
            "The agent is a command that names {mcp_config}, a file that tells it how to start the tools of `resile "
            "mcp`. It gets a prompt on stdin. What it leaves undecided stays parked, unless --default says otherwise."
        ),
        options=(
            Option("--agent COMMAND", "the command line of the agent, with {mcp_config}"),
            Option("--timeout DURATION", "how long the agent may take (10m)"),
            Option("--default WHAT", "what becomes of failures that it leaves", choices=("park", "fail", "retry")),
        ),
        examples=("resile recover 7 --agent 'claude -p --mcp-config {mcp_config}' --default park",),
        exits=(
            "0  the run completed",
            "1  it failed",
            "2  nothing is parked, there is no such run, or the call is wrong",
            "4  failures wait for judgement",
        ),
        drives=True,
    ),
)
