"""A secret in a command line is in the process list: `check` and the start of a run warn of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
secrets: {TOKEN: {env: MY_TOKEN}}
inputs: {word: {type: text, default: x}}
steps:
  safe: {shell: 'test "$TOKEN" = "${TOKEN}" && echo ${inputs.word} ${env.HOME}'}
  shown:
    shell: |
      echo safe
      curl -H "Auth: ${env.TOKEN}"
    on_failure:
      - echo ${env.MY_TOKEN}
  each:
    map:
      input: "echo '[1]' ${env.TOKEN}"
      steps: {go: {validate: "test ${raw:env.TOKEN}"}}
  fed: {shell: cat, stdin: "${env.TOKEN}", env: {OTHER: "${env.TOKEN}"}}
  ask: {agent: {command: cat, prompt: "use ${env.TOKEN}"}}
  told: {agent: {command: cat, prompt: "use ${env.TOKEN}", prompt_by: stdin}}
"""
MESSAGE = "puts a secret into a command line, which all users see in the process list"
HINT = 'write `"$TOKEN"`: the step has it in its environment, and a shell puts it in after the start'


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in a folder with its database."""
    return Program(tmp_path)


def test_check_warns_of_each_secret_in_a_command_line(program: Program) -> None:
    """Commands, handlers, lists of items and prompts, each with its place; not variables, standard input or `env`."""
    program.write(FLOW)
    (file,) = program.json("check", "flow.yaml")["files"]
    found = [each for each in file["diagnostics"] if each["code"] == "secret-shown"]
    assert file["ok"]
    assert {each["severity"] for each in found} == {"warning"}
    assert sorted((each["line"], each["column"], each["message"]) for each in found) == [
        (9, 22, f"`${{env.TOKEN}}` {MESSAGE}"),
        (11, 14, f"`${{env.MY_TOKEN}}` {MESSAGE}"),
        (14, 26, f"`${{env.TOKEN}}` {MESSAGE}"),
        (15, 36, f"`${{raw:env.TOKEN}}` {MESSAGE}"),
        (17, 44, f"`${{env.TOKEN}}` {MESSAGE}"),
    ]
    hints = {each["line"]: each["hint"] for each in found}
    assert hints.pop(17) == "leave it out of the prompt, or pass the prompt with `prompt_by: stdin`"
    assert set(hints.values()) == {HINT}


def test_a_run_warns_when_it_starts(program: Program) -> None:
    """Every time, also where the file is known already; a workflow without secrets is silent."""
    program.write('resile: 1\nsecrets: [TOKEN]\nsteps:\n  a: {shell: "test ${env.TOKEN}"}\n')
    for _ in range(2):
        said = program.call("run", "flow.yaml", code=0, TOKEN="hunter2-secret").stderr
        assert said.count(MESSAGE) == 1
        assert f"resile: flow.yaml:4:20: `${{env.TOKEN}}` {MESSAGE}; {HINT}\n" in said
    program.write('resile: 1\nsteps:\n  a: {shell: "test ${env.TOKEN}"}\n', "plain.yaml")
    assert MESSAGE not in program.call("run", "plain.yaml", code=0, TOKEN="hunter2-secret").stderr


def test_a_playbook_with_a_keychain_is_warned_of_too(program: Program) -> None:
    """The hint names the environment variable, because the name of the entry is none."""
    program.write(
        """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
keychain:
- {name: api, kind: bearer, map: {token: projects/x/secrets/y}}
workload: {}
workflow:
- step: start
  tool: {kind: shell, command: "test {{ keychain.api.token }}"}
  next: [{step: end}]
- step: end
"""
    )
    (file,) = program.json("check", "flow.yaml")["files"]
    (found,) = [each for each in file["diagnostics"] if each["code"] == "secret-shown"]
    assert (found["line"], found["column"]) == (9, 38)
    assert found["message"] == f"`{{{{ keychain.api.token }}}}` {MESSAGE}"
    assert found["hint"].startswith('write `"$API_TOKEN"`')
