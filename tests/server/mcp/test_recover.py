"""`resile recover --agent`: a scripted agent resolves a parked run from end to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.program import Program

AGENT = f"{sys.executable} -m tests.server.mcp.agent"
PARKS = """\
resile: 1
name: parks
steps:
  a: {shell: 'echo tried >> tried; test -e mended', park: true}
  b: {shell: 'echo after > after', needs: [a]}
"""


@pytest.fixture
def parked(program: Program) -> Program:
    """Run 1 has a parked failure, and a cause that is mended by now."""
    program.env["PYTHONPATH"] += f":{Path(__file__).parents[3]}"
    program.call("run", program.write(PARKS), code=4)
    (program.folder / "mended").touch()
    return program


def test_an_agent_resolves_a_run(parked: Program) -> None:
    """It retries the failure, and the run completes; the log names the agent."""
    done = parked.call("recover", "1", "--agent", f"{AGENT} {{mcp_config}} retry", code=0)
    assert "it judged 1 failure, 0 stay parked" in done.stderr
    assert (parked.folder / "after").exists()
    event = json.loads(parked.call("events", "list", "1", "--type", "step_judged", "--json").stdout)
    assert event["data"]["by"].startswith("agent:")


@pytest.mark.parametrize(
    ("default", "code", "status"), [("park", 4, "parked"), ("fail", 1, "failed"), ("retry", 0, "completed")]
)
def test_what_the_agent_leaves_gets_the_default(parked: Program, default: str, code: int, status: str) -> None:
    """An agent that does nothing leaves the failure parked, or to what the caller says."""
    parked.call("recover", "1", "--agent", "true {mcp_config}", "--default", default, code=code)
    assert parked.json("status", "1")["status"] == status


def test_an_agent_that_takes_too_long_is_ended(parked: Program) -> None:
    """It is ended with its children, and the default applies."""
    command = "sleep 600 & echo $! > child; cat {mcp_config} > config; wait"
    done = parked.call("recover", "1", "--agent", command, "--timeout", "1s", code=4)
    assert "took too long" in done.stderr
    child = int((parked.folder / "child").read_text())
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
    assert '"--allow-judge"' in (parked.folder / "config").read_text()


def test_calls_that_can_not_work_are_refused(parked: Program) -> None:
    """Without the placeholder, and where nothing is parked; without an agent the failure has no known cause."""
    assert "{mcp_config}" in parked.call("recover", "1", "--agent", "true", code=2).stderr
    assert "a, job 1: unknown: " in parked.call("recover", "1", code=4).stdout
    parked.call("judge", "1", "a", "retry", "--resume")
    assert "nothing is parked" in parked.call("recover", "1", "--agent", "true {mcp_config}", code=2).stderr
