"""The table of tools, and how a call of one is checked and answered.

    read     every agent
    judge    agents that may decide about failures (`--allow-judge`, or a token that may act)
    run      agents that may start and end runs (`--allow-run`, or a token that may act)

A tool that an agent may not call is not in its list; a dry run needs no right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from resile.errors import ResileError
from resile.server.mcp import acting, arguments, reading
from resile.server.mcp.toolbox import Right, Toolbox


class Tool(Struct, frozen=True):
    """One tool: its arguments are a Struct, its answer is a document of plain data."""

    name: str
    description: str
    arguments: type[Struct]
    answer: Callable[[Toolbox, Any], dict[str, Any]]
    right: Right = "read"
    has_dry_run: bool = False

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        (schema,), parts = msgspec.json.schema_components([self.arguments], ref_template="#/$defs/{name}")
        found = parts.pop(self.arguments.__name__) if "$ref" in schema else schema
        return {**found, "$defs": parts} if parts else found


TOOLS = (
    Tool("list_runs", "List runs, newest first.", arguments.ListRuns, reading.list_runs),
    Tool("get_run", "Show one run: its status and its jobs.", arguments.GetRun, reading.get_run),
    Tool(
        "explain_run",
        "Explain the failures of a run: which rules were looked at, which one answered, and what came of it.",
        arguments.ExplainRun,
        reading.explain_run,
    ),
    Tool(
        "read_logs",
        "Read what the attempts of a step or a job printed, 64 KB at most.",
        arguments.ReadLogs,
        reading.read_logs,
    ),
    Tool(
        "list_pending_failed_jobs",
        "List the failures of a run that wait for judgement, each with its history, the rule that parked it, and what "
        "was decided about similar failures before.",
        arguments.ListPendingFailedJobs,
        reading.list_pending_failed_jobs,
    ),
    Tool(
        "classify_and_resolve_failures",
        "Decide about parked failures: retry, retry_with more memory or time, skip, or fail. All decisions are carried "
        "out or none, unless `partial` is true.",
        arguments.ClassifyAndResolve,
        acting.classify_and_resolve,
        right="judge",
        has_dry_run=True,
    ),
    Tool(
        "list_dead_letters",
        "List the items of a run that failed for good.",
        arguments.ListDeadLetters,
        reading.list_dead_letters,
    ),
    Tool(
        "retry_dead_letters",
        "Run items again that failed for good.",
        arguments.RetryDeadLetters,
        acting.retry_dead_letters,
        right="judge",
        has_dry_run=True,
    ),
    Tool(
        "check_workflow",
        "Compile a workflow file and list its errors and warnings; nothing runs.",
        arguments.CheckWorkflow,
        reading.check_workflow,
    ),
    Tool("run_workflow", "Start a run of a workflow file.", arguments.RunWorkflow, acting.run_workflow, right="run"),
    Tool("cancel_run", "Cancel a run; its `end` step still runs.", arguments.CancelRun, acting.cancel_run, right="run"),
)
TOOLS_BY_NAME = {tool.name: tool for tool in TOOLS}


def tools_for(toolbox: Toolbox) -> list[Tool]:
    """The tools that an agent may call, including tools whose dry run alone it may call."""
    return [tool for tool in TOOLS if rights_of(tool.name) <= toolbox.rights]


def rights_of(name: str) -> frozenset[Right]:
    """The rights that an agent needs to see a tool."""
    tool = TOOLS_BY_NAME.get(name)
    return frozenset() if tool is None or tool.has_dry_run else frozenset((tool.right,))


def refuse_right(rights: frozenset[Right], name: str, given: dict[str, Any]) -> None:
    """Refuse a call that an agent with these rights may not make."""
    tool = TOOLS_BY_NAME.get(name)
    if tool is None or tool.right in rights or (tool.has_dry_run and given.get("dry_run") is True):
        return
    hint = "`dry_run: true` is allowed" if tool.has_dry_run else ""
    raise ResileError("not-allowed", f"{name} needs the right to {tool.right}, which this agent lacks", hint=hint)


def call_tool(toolbox: Toolbox, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The answer of a tool; raises ResileError where the tool refuses."""
    tool = TOOLS_BY_NAME.get(name)
    if tool is None:
        raise ResileError("no-such-tool", f"there is no tool {name!r}", hint=", ".join(one.name for one in TOOLS))
    refuse_right(toolbox.rights, name, given)
    try:
        arguments = msgspec.convert(given, tool.arguments)
    except msgspec.ValidationError as error:
        raise ResileError("bad-arguments", f"{name}: {error}") from error
    return tool.answer(toolbox, arguments)
