"""Tools of servers, checkouts, requests, timers and agents of Visor files, as they run."""

# ruff: noqa: E501 - a file reads better with one step in a line
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dialects.visor.flows import VisorFlows, compiled, flow

SERVER = """
import os, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("tests")

@server.tool()
def add(a: int, b: int) -> str:
    return f"{a + b} {os.environ.get('SEEN', '')}"

@server.tool()
def refuse(why: str) -> str:
    from mcp.server.mcpserver.exceptions import ToolError
    raise ToolError(f"refused: {why}")

server.run("stdio")
"""


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder."""
    return VisorFlows(tmp_path)


CALL = f"type: mcp, command: {sys.executable}, command_args: [server.py]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    ["methodArgs: {a: 1, b: '{{ outputs.n }}'}", 'argsTransform: \'{"a": 1, "b": {{ outputs.n }}}\''],
    ids=["data", "template"],
)
def test_a_tool_of_a_server_is_called(flows: VisorFlows, given: str) -> None:
    """The official client starts the program with the step's environment, and the result is the step's output."""
    (flows.folder / "server.py").write_text(SERVER)
    keys = f"{CALL}, env: {{SEEN: 'yes'}}, method: add, {given}, transform_js: 'return output.content[0].text'"
    assert flows.run(
        flow(f"n: exec: echo 4\na < n: {keys}\nc < a: exec: 'echo {{{{ outputs.a }}}} >> trace'")
    ).order == ["5 yes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "message"),
    [(f"{CALL}, method: refuse, methodArgs: {{why: so}}", "refused: so"), ("type: mcp, command: ./nothing, method: x", "nothing")],
    ids=["error", "no server"],
)  # fmt: skip
def test_a_tool_that_fails_fails_the_step(flows: VisorFlows, keys: str, message: str) -> None:
    """Its text is the message; a server that is not there fails the step too."""
    (flows.folder / "server.py").write_text(SERVER)
    (failed,) = flows.run(flow(f"a: {keys}"), 1).of("attempt_failed")
    assert message in failed["data"]["message"]


def test_a_tool_of_the_file_is_called(flows: VisorFlows) -> None:
    """Its command runs with the arguments of the step, each quoted."""
    text = """
version: '1'
tools: {t: {exec: "printf '%s' {{ args.n }} >> trace", inputSchema: {properties: {n: {default: "x; echo no"}}}}}
steps: {a: {type: mcp, transport: custom, method: t}}
"""
    assert flows.run(text + "\n").status["a"] == "completed"
    assert (flows.folder / "trace").read_text() == "x; echo no"


def repository(folder: Path) -> None:
    """A repository with two commits, the first of which is tagged."""
    folder.mkdir()
    run = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@x"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "one"], ["tag", "v1"]):
        subprocess.run([*run, *words], check=True)
    (folder / "file").write_text("two\n")
    subprocess.run([*run, "add", "file"], check=True)
    subprocess.run([*run, "commit", "-q", "-m", "two"], check=True)


def test_a_checkout_has_the_commit_and_can_be_made_again(flows: VisorFlows) -> None:
    """Its output has the path; what a former run left there is removed."""
    repository(flows.folder / "it's a repo")
    keys = "type: git-checkout, repository: \"./it's a repo\", ref: '{{ inputs.which }}', fetch_depth: 1, working_directory: out"
    seen = "c < g: exec: 'ls {{ outputs.g.path }} >> trace; echo {{ outputs.g.ref }} >> trace'"
    text = flow(f"g: {keys}\n{seen}").replace("steps:", "inputs: [{name: which, default: main}]\nsteps:")
    assert flows.run(text).order == ["file", "main"]
    (flows.folder / "out" / "left").write_text("x")
    assert flows.run(text, 0, "--input", "which=v1").order == ["v1"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("repository: ./repo, ref: nothing", "nothing"),
        ("repository: ./repo, ref: --upload-pack=touch x", "begins with a dash"),
        ("repository: repo, ref: main", "neither a url, a path, nor owner/name"),
        ("repository: ./repo, ref: main, working_directory: full", "is not empty, and no checkout"),
    ],
)
def test_a_checkout_that_can_not_be_made_fails(flows: VisorFlows, keys: str, message: str) -> None:
    """And touches nothing else."""
    repository(flows.folder / "repo")
    (flows.folder / "full").mkdir()
    (flows.folder / "full" / "mine").write_text("x")
    ran = flows.run(flow(f"g: type: git-checkout, {keys}, cleanup_on_failure: true"), 1)
    (failed,) = ran.of("attempt_failed")
    assert message in failed["data"]["message"]
    assert (flows.folder / "full" / "mine").read_text() == "x"
    assert not (flows.folder / ".resile" / "checkouts" / "repo-nothing").exists()


def test_a_request_comes_as_an_input(flows: VisorFlows) -> None:
    """The step of its endpoint gives the body; that of another one gives nothing."""
    text = flow(
        "h: type: http_input, endpoint: /one\ni: type: http_input, endpoint: /two\n"
        "a < h: exec: 'echo {{ outputs.h.who }} >> trace', if: outputs.h !== null\n"
        "b < i: exec: 'echo two >> trace', if: outputs.i !== null"
    )
    assert flows.run(text, 0, "--input", 'webhook={"who": "me"}', "--input", "endpoint=/one").order == ["me"]
    assert flows.run(text).order == []


def test_a_timer_starts_the_steps_with_a_schedule(flows: VisorFlows) -> None:
    """The event `schedule` chooses them, beside those that are for it anyway."""
    text = flow("a: schedule: '0 2 * * *'\nb: on: [manual]\nc: on: [manual], schedule: '0 3 * * *'\nd: on: [schedule]")
    assert sorted(flows.run(text, 0, "--input", "event=schedule").order) == ["a", "c", "d"]
    assert sorted(flows.run(text, 0, "--input", "event=manual").order) == ["b", "c"]


def test_an_agent_is_asked_again(flows: VisorFlows) -> None:
    """`ai.retry` costs nothing of the loop budget, and only failures that it names are retried."""
    program = flows.folder / "claude"
    program.write_text("#!/bin/sh\necho asked >> trace; echo '503 overloaded' >&2; exit 1\n")
    program.chmod(0o755)
    flows.program.env["PATH"] = f"{flows.folder}:{flows.program.env['PATH']}"
    retry = "maxRetries: 2, initialDelay: 1, maxDelay: 1, retryableErrors: ['%s']"
    file = "version: '1'\nrouting: {max_loops: 0}\nsteps: {a: {prompt: hi, ai: {retry: {%s}}}}"
    assert flows.run(file % (retry % "503"), 1).order == ["asked"] * 3
    assert flows.run(file % (retry % "rate limit"), 1).order == ["asked"]


def test_a_file_of_tools_is_checked_and_runs_nothing(flows: VisorFlows) -> None:
    """Others extend it: a warning says so, and an error in a tool or a workflow is found."""
    text = (
        "version: '1'\ntools: {t: {exec: echo, %s}}\nworkflows: {w: {steps: {a: {type: command, exec: x}}}}\nsteps: {}"
    )
    warning = "warning: there are no steps to run: the tools and workflows are there for others to extend"
    assert warning in compiled(text % "timeout: 5")[1]
    assert flows.run(text % "timeout: 5").order == []
    assert [found for found in compiled(text % "tmeout: 5")[1] if found.startswith("error")] != []
    assert [found for found in compiled("version: '1'\nsteps: {}")[1] if found.startswith("error")] != []


def test_a_step_transforms_what_its_tool_gives(flows: VisorFlows) -> None:
    """The transform of a tool comes first; the step's own sees its value."""
    tools = "tools: {count: {exec: 'printf \"a\\nb\\n\"', transform_js: 'return output.trim().split(\"\\n\")'}}"
    own = "type: mcp, transport: custom, method: count, transform_js: 'return output.map((one) => one + output.length)'"
    text = flow(
        f"a: {own}\nb: type: mcp, transport: custom, method: count\nc < a, b: exec: 'echo {{{{ outputs.a | json }}}} {{{{ outputs.b | json }}}} >> trace'"
    )
    assert flows.run(f"{text}\n{tools}\n").order == ['["a2","b2"] ["a","b"]']
