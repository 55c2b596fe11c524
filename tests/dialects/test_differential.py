"""Small files of each dialect and their migrated native form: the same effects, events, jobs and exit codes.

Each file has a folder of its own and a program `note`, which writes its argument into `trace` and fails as often as
its second argument says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.program import Program

NOTE = """#!/bin/sh
echo "$1" >> trace
count=$(grep -cx -- "$1" trace)
[ "$count" -gt "${2:-0}" ] || { echo "$1 fails" >&2; exit "${3:-1}"; }
echo "$1 is fine"
"""

PRODIGY_LADDER = """
commands:
  - shell: ./note a
    capture: seen
  - shell: ./note b 1
    on_failure: {shell: "./note mend-${error.exit_code}", max_attempts: 3}
  - shell: ./note c 9
    on_failure: [./note first, ./note second]
  - shell: ./note d 9 7
    on_exit_code: {7: {shell: ./note seven}}
  - shell: ./note e
    when: "${seen} == 'a is fine'"
    on_success: {shell: ./note after}
  - shell: ./note f 9
    on_failure: {shell: ./note clean, strategy: cleanup, fail_workflow: true}
  - shell: ./note never
"""
PRODIGY_MAP = """
mode: mapreduce
name: sweep
setup:
  - shell: 'echo "[{\\"id\\": 1}, {\\"id\\": 2}, {\\"id\\": 3}]" > items.json'
map:
  input: items.json
  json_path: $[*]
  filter: id != 2
  sort_by: id DESC
  max_parallel: 1
  agent_template:
    - shell: ./note item-${item.id} 1
reduce:
  - shell: ./note "${map.successful} of ${map.total}"
error_policy: {on_item_failure: retry, retry_config: {max_attempts: 2, backoff: {type: fixed, initial: 1ms}}}
"""
VISOR = """
version: "1.0"
routing: {max_loops: 4}
steps:
  setup: {type: command, exec: ./note setup}
  test:
    type: command
    exec: ./note test 1
    depends_on: [setup]
    on_fail: {run: [fix], retry: {max: 1}}
  fix: {type: command, exec: ./note fix}
  list: {type: command, exec: 'printf "[1,2]"', forEach: true, depends_on: [test]}
  each: {type: command, exec: "./note each-{{ outputs.list }}", depends_on: [list]}
  judge: {type: command, exec: ./note judge, depends_on: [test], fail_if: "true", continue_on_failure: true}
  script: {type: script, content: "return outputs['setup'].length", depends_on: [judge]}
  skipped: {type: command, exec: ./note skipped, depends_on: [setup], if: "false"}
  broken: {type: command, exec: ./note broken 9, depends_on: [each, script], fanout: reduce, on_fail: {goto: setup}}
"""
TORC = """
name: survey
jobs:
  - {name: "prepare_{i}", command: "./note prepare_{i}", parameters: {i: "1:2"}}
  - {name: solve, command: ./note solve 2 10, depends_on: [prepare_1, prepare_2], failure_handler: mend}
  - {name: broken, command: ./note broken 9, depends_on: [solve], failure_handler: mend}
  - {name: never, command: ./note never, depends_on: [broken], cancel_on_blocking_job_failure: true}
failure_handlers:
  - name: mend
    rules:
      - {exit_codes: [10], recovery_script: "./note mend-$TORC_RETURN_CODE", max_retries: 3}
      - {match_all_exit_codes: true, max_retries: 2}
"""
NOETL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: path}
workload: {who: me}
workflow:
  - step: start
    tool: {kind: shell, cmds: ["./note start"]}
    next: [{step: greet}]
  - step: greet
    tool: {kind: python, code: "def main(who):\\n    return {'hello': who}", args: {who: "{{ workload.who }}"}}
    next: [{step: broken}]
  - step: broken
    tool: {kind: shell, cmds: ["./note broken 9"]}
    next: [{step: end}]
  - step: end
    tool: {kind: shell, cmds: ["./note end"]}
"""
NOETL_PIPES = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: pipes}
workload: {numbers: [3, 1, 2]}
workflow:
  - step: start
    tool:
      - first: {kind: shell, cmds: ["./note first 1"], spec: {policy: {rules: [
          {when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, backoff: none}},
          {else: {then: {set_iter: {n: "{{ iter.n | default(1) }}"}, set_ctx: {seen: 7}}}}]}}}
      - turn: {kind: noop, spec: {policy: {rules: [
          {when: "{{ iter.n < 3 }}", then: {do: jump, to: first, set_iter: {n: "{{ iter.n + 1 }}"}}},
          {else: {then: {do: break}}}]}}}
      - never: {kind: shell, cmds: ["./note never"]}
    next: {spec: {mode: inclusive}, arcs: [{step: shut, when: "{{ ctx.seen == 7 }}"}, {step: each}]}
  - step: shut
    spec: {policy: {admit: {rules: [{when: "{{ ctx.seen == 7 }}", then: {allow: false}}]}}}
    tool: {kind: shell, cmds: ["./note shut"]}
  - step: each
    loop: {in: "{{ workload.numbers }}", iterator: n, where: n > 1, order_by: n}
    tool: [{kind: shell, cmds: ["./note each-{{ n }}"]}, {kind: shell, cmds: ["./note again-{{ iter.n }}"]}]
    sink: {tool: python, code: "def main(data): open('trace', 'a').write(data + chr(10))"}
"""
NATIVE = """
resile: 1
steps:
  a: {shell: ./note a 1, retry: 2, next: [{step: b, when: "true"}, {step: c, when: "false"}]}
  b: {shell: ./note b 2, on_failure: {retry: 1, run: [fix], goto: a}}
  c: {shell: ./note c}
  fix: {shell: ./note fix}
  end: {shell: './note "end ${execution.status}"'}
"""
FILES = {
    "prodigy-ladder.yml": (PRODIGY_LADDER, 1),
    "prodigy-map.yml": (PRODIGY_MAP, 0),
    "visor.yaml": (VISOR, 1),
    "torc.yaml": (TORC, 1),
    "noetl.yaml": (NOETL, 1),
    "noetl-pipes.yaml": (NOETL_PIPES, 0),
    "native.yaml": (NATIVE, 0),
}


class Ran(msgspec.Struct):
    """What can be seen of a run: effects in their order, events of each job, the jobs, and the run itself."""

    effects: list[str]
    events: dict[str, list[str]]
    jobs: list[Any]
    verdict: tuple[Any, ...]


def ran(folder: Path, name: str, text: str, code: int) -> Ran:
    """Run a file in a folder of its own, one step at a time."""
    folder.mkdir()
    (folder / "note").write_text(NOTE)
    (folder / "note").chmod(0o755)
    program = Program(folder)
    program.write(text, name)
    document = program.json("run", name, "--max-parallel", "1", code=code)
    lines = program.call("events", "ls", str(document["run"]), "--json", code=0).stdout.splitlines()
    events: dict[str, list[str]] = {}
    for line in lines:
        event = msgspec.json.decode(line)
        events.setdefault(f"{event['scope']} {event['step']} {event['attempt']}", []).append(event["type"])
    jobs = [{key: value for key, value in job.items() if key != "seconds"} for job in document["jobs"]]
    verdict = document["workflow"], document["status"], document["exit_code"], document["steps"]
    return Ran((folder / "trace").read_text().split("\n"), events, jobs, verdict)


@pytest.mark.parametrize("name", FILES)
def test_the_migrated_file_does_the_same(tmp_path: Path, name: str) -> None:
    """Effects in order, event types of each job and attempt, every job, the counts, the exit code."""
    text, code = FILES[name]
    before = ran(tmp_path / "before", name, text, code)
    program = Program(tmp_path / "before")
    migrated = program.json("migrate", name)["text"]
    assert migrated.split("\n")[1] == "resile: 1"
    after = ran(tmp_path / "after", "flow.yaml", migrated, code)
    assert after.effects == before.effects
    assert after.events == before.events
    assert after.jobs == before.jobs
    assert after.verdict == before.verdict
    assert len(before.effects) > 3
