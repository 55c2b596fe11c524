"""Steps that fail in their own ways: checks, agents, files, commits; all of them climb the same ladder."""

from __future__ import annotations

import subprocess

import pytest

from tests.runs.ladder.flows import Flows


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        ("validate: ./step a 9 3", "check", "exit code 3: a is broken"),
        ("shell: ./step a, outputs: [missing.txt]", "contract", "declared output file 'missing.txt' is missing"),
        ("shell: ./step a, capture: {v: json}", "contract", "capture 'v': the output is not JSON"),
        ("shell: ./step a, commit_required: true", "contract", "commit_required: the step made no commit"),
        ("agent: /do", "exit", "exit code 5"),
        (
            "agent: {command: [echo, '{\"is_error\": true}'], prompt_by: stdin, prompt: x}",
            "contract",
            "the agent reports",
        ),
        ("shell: ./step a, outputs: ['${env.NONE:-}']", "contract", "declared output file '' is missing"),
        ("write_file: {path: step/x, content: y}", "exit", "can't write"),
    ],
)
def test_every_kind_of_failure_climbs_the_ladder(flows: Flows, step: str, kind: str, message: str) -> None:
    """A handler answers it, and knows its kind and message."""
    subprocess.run(["git", "init", "-q", str(flows.folder)], check=True)
    on_failure = "on_failure: 'echo ${error.kind} ${error.message} > said; ./step h'"
    ran = flows.run(f"agent: {{command: [sh, -c, exit 5]}}\nsteps: {{a: {{{step}, {on_failure}}}}}\n")
    assert (ran.order[-1], ran.status["a"]) == ("h", "recovered")
    assert (flows.folder / "said").read_text().startswith(f"{kind} {message}")


def test_a_commit_satisfies_commit_required(flows: Flows) -> None:
    """A step that commits passes; the second attempt is measured from its own start."""
    git = "git -c user.name=t -c user.email=t@t"
    subprocess.run(["git", "init", "-q", str(flows.folder)], check=True)
    commit = f"{git} commit -q --allow-empty -m x"
    shell = f"./step a; test $(grep -cx a trace) -lt 2 || {commit}"
    ran = flows.run(f"steps: {{a: {{shell: {shell}, commit_required: true, retry: 2}}}}")
    assert (ran.order, ran.status["a"]) == (["a", "a"], "completed")


def test_write_file(flows: Flows) -> None:
    """The file stands there whole, with its mode and with the values of the run."""
    flows.run(
        "inputs: {who: world}\nsteps:\n  a: {write_file: {path: 'out/${inputs.who}.txt', content: 'hi ${inputs.who}', "
        "mode: 0600}}\n"
    )
    made = flows.folder / "out" / "world.txt"
    assert (made.read_text(), made.stat().st_mode & 0o777) == ("hi world", 0o600)


@pytest.mark.parametrize(
    ("settings", "answer", "code"),
    [
        ("prompt: stdin", "read line; echo \"agent: $line\" >> trace", 0),
        ("prompt: argument", "echo \"agent: $1\" >> trace", 0),
        ("max_cost: 1", "echo \"agent: $1\" >> trace; echo '{\"total_cost_usd\": 0.5}'", 0),
        ("max_cost: 1", "echo \"agent: $1\" >> trace; echo '{\"total_cost_usd\": 1.5}'", 1),
        ("max_tokens: 10", "echo \"agent: $1\" >> trace; echo '{\"usage\": {\"output_tokens\": 11}}'", 1),
        ("timeout: 300ms", "echo \"agent: $1\" >> trace; sleep 30", 1),
    ],
)  # fmt: skip
def test_agents(flows: Flows, settings: str, answer: str, code: int) -> None:
    """A prompt reaches the configured command, and what it reports is held to the limits."""
    (flows.folder / "stub").write_text(f"#!/bin/sh\n{answer}\n")
    (flows.folder / "stub").chmod(0o755)
    ran = flows.run(f"grace: 0\nagent: {{command: ./stub, {settings}}}\nsteps: {{a: {{claude: /fix it}}}}\n", code)
    assert ran.order == ["agent: /fix it"]


def test_an_agent_that_is_not_installed_says_so(flows: Flows) -> None:
    """The message names the program and what to do."""
    ran = flows.run("agent: {command: [no-such-agent]}\nsteps: {a: {agent: hello}}\n", 1)
    assert "is the agent 'no-such-agent' installed?" in ran.failed


def test_when_is_an_expression(flows: Flows) -> None:
    """Values stand in it as literals; what it is not true for is skipped."""
    ran = flows.run(
        "inputs: {n: {type: number, default: 3}, target: release}\nsteps:\n"
        "- {shell: ./step a, when: \"${inputs.n} > 2 && ${inputs.target} == 'release'\"}\n"
        "- {shell: ./step b, when: '${inputs.n} > 3'}\n- {shell: ./step c, when: '${inputs.n}'}\n"
    )
    assert ran.order == ["a", "c"]
