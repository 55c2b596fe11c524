"""More rows of the table of commands (table.py): those for agents and for recovery."""

from __future__ import annotations

from resile.cli.grammar import Command, Option
from resile.cli.table_daily import PARALLEL

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
)

_GRANTS = (
    Option("--memory-multiplier FACTOR", "memory after it ran out, times this (1.5)", kind="number"),
    Option("--runtime-multiplier FACTOR", "time after it ran out, times this (1.5)", kind="number"),
    Option("--memory-max SIZE", "grant no more memory than this (64g)"),
    Option("--runtime-max DURATION", "grant no more time than this (24h)"),
    Option("--retry-unknown", "also run steps again whose failure has no known cause"),
    Option("--park-unknown", "let such failures wait for `resile judge`"),
    Option("--recovery-hook SCRIPT", "run this before each round, with the run's id; if it fails, nothing runs again"),
    Option("--max-rounds N", "at most N rounds (3)", kind="count", most=1000),
)
_RECOVERY_EXITS = (
    "0  the run completed",
    "1  it is still failed; each job is listed with its reason",
    "2  it still runs, there is no such run, or the call is wrong",
    "3  it was canceled",
    "4  failures wait for judgement; see `resile parked RUN`",
    "130  interrupted",
)

RECOVERY_COMMANDS = (
    Command(
        "recover RUN",
        "commands.recovery.recover:recover",
        "find out why steps failed, grant what they lacked, run them again",
        about=(
            "Prints a plan first: each failed job, its diagnosis with the evidence, what it had and what it gets, and "
            "what runs again. Out of memory or time: it gets the larger of what it had and what it used, times the "
            "multiplier. Lost or transient: it runs again. Everything else stays as it is. With --agent an agent "
            "judges the parked failures instead: a command that names {mcp_config}, a file that tells it how to start "
            "the tools of `resile mcp`."
        ),
        options=(
            Option("--dry-run", "only print the plan"),
            *_GRANTS,
            PARALLEL,
            Option("--agent COMMAND", "let this agent judge what is parked; its command line has {mcp_config}"),
            Option("--timeout DURATION", "with --agent: how long it may take (10m)"),
            Option(
                "--default WHAT",
                "with --agent: what becomes of failures that it leaves",
                choices=("park", "fail", "retry"),
            ),
        ),
        examples=(
            "resile recover 7 --dry-run",
            "resile recover 7 --memory-multiplier 2 --memory-max 32g",
            "resile recover 7 --agent 'claude -p --mcp-config {mcp_config}' --default park",
        ),
        exits=_RECOVERY_EXITS,
        drives=True,
    ),
    Command(
        "watch RUN",
        "commands.recovery.watch:watch",
        "wait for a run, and with --recover help it through failures",
        about=(
            "Waits until the run ends or parks. With --recover it then does what `resile recover` does, again and "
            "again, until the run completes or nothing is left that could help; a run whose engine died is resumed."
        ),
        options=(
            Option("--recover", "recover the run when it has failed"),
            *_GRANTS,
            Option("--interval DURATION", "how often to look (10s)"),
            PARALLEL,
        ),
        examples=("resile watch 7", "resile watch 7 --recover --memory-max 32g --interval 1m"),
        exits=_RECOVERY_EXITS,
    ),
)

RESOURCES = Command(
    "resources RUN [STEP]",
    "commands.recovery.resources:resources",
    "show what steps used, and what they should ask for",
    about=(
        "For each step what it asks for and had, the peak of its memory, the peak within which 95 % of its attempts "
        "stay, CPU, time, reading and writing; and a request that fits: that peak and a fifth more. With --plot memory "
        "and CPU over time, where the file has `resource_monitor`."
    ),
    options=(Option("--plot FILE", "draw the series: out.svg, or out.png with the extra resile[plot]", kind="file"),),
    examples=("resile resources 7", "resile resources 7 solve --json", "resile resources 7 --plot memory.svg"),
    exits=("0  shown", "2  there is no such run or step, or the call is wrong"),
)
