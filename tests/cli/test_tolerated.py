"""`check` says, with the line, where a failure would pass in a file of another system."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program

VISOR = """version: "1.0"
fail_if: "false"
steps:
  a: {type: command, exec: "true"}
  b:
    type: command
    exec: "true"
    continue_on_failure: true
  c: {type: command, exec: "true", criticality: info}
  list: {type: command, exec: "echo []", forEach: true}
  each: {type: command, exec: "true", depends_on: [list], continue_on_failure: true}
  soft:
    type: command
    exec: "true"
    failure_conditions:
      mild: {condition: "false", severity: warning}
      hard: {condition: "false"}
"""
TORC = """name: t
jobs:
  - {name: a, command: "true"}
actions:
  - trigger_type: on_workflow_start
    action_type: run_commands
    commands: ["false"]
  - trigger_type: on_workflow_complete
    action_type: run_commands
    commands: ["false"]
"""
PRODIGY = """mode: mapreduce
setup:
  - shell: a
  - shell: b
    on_failure: {shell: c}
  - shell: d
    allow_failure: true
map:
  input: [1]
  agent_template: [{shell: x}]
  error_policy: {continue_on_failure: true}
reduce:
  - foreach: [1]
    continue_on_error: true
    do: [{shell: y}]
"""
NOETL = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow:
  - step: start
    tool: {kind: python, code: "def main(): raise ValueError('x')"}
    case:
      - when: "{{ event.name == 'call.error' }}"
        then: {next: [{step: end}]}
  - step: end
    tool: {kind: python, code: "def main(): return 1"}
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [(VISOR, [2, 8, 9, 11, 16]), (TORC, [5, 8]), (PRODIGY, [5, 7, 9, 13]), (NOETL, [8])],
    ids=["visor", "torc", "prodigy", "noetl"],
)
def test_check_names_each_place_where_a_failure_passes(tmp_path: Path, text: str, lines: list[int]) -> None:
    """One notice for each; `run` does not print notices."""
    program = Program(tmp_path)
    program.write(text)
    [file] = program.json("check", "flow.yaml", code=0)["files"]
    found = [one for one in file["diagnostics"] if one["code"] == "tolerated"]
    assert sorted(one["line"] for one in found) == lines
    assert {one["severity"] for one in found} == {"notice"}


def test_a_native_file_says_it_itself(tmp_path: Path) -> None:
    """There is no notice about what the file asks for in writing."""
    program = Program(tmp_path)
    program.write("resile: 1\nsteps: [{shell: x, on_failure: true}]\n")
    [file] = program.json("check", "flow.yaml", code=0)["files"]
    assert [one["code"] for one in file["diagnostics"]] == []
