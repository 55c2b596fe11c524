"""Every block of the designs that the front ends stand for, in our words and whole, run for real.

The designs have 2 blocks (step-level handlers), 17 (error handling) and 1 (failure routing); a case is called after its
design and its place there. `./step NAME TIMES` fails its first so many executions; an agent writes its prompt down.
"""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from tests.dialects.prodigy.test_runs import Folder


class Case(Struct):
    """A file, the executions in order, and the exit code; `words` are given on the command line."""

    name: str
    text: str
    order: str
    code: int = 0
    words: tuple[str, ...] = ()


ITEMS = 'input: ["a", "b"]\n  max_parallel: 1'
BACKOFF = """
mode: mapreduce
error_policy: {on_item_failure: retry, retry_config: {max_attempts: 4, backoff: {%s}}}
map:
  input: ["a"]
  agent_template: [{shell: "./step ${item} 3"}]
"""
CASES = [
    Case("000-1", f"mode: mapreduce\nmap:\n  {ITEMS}\n  agent_template:\n    commands:\n      - claude: /type ${{item}}\n      - shell: ./step check-${{item}} 1\n      - on_failure: {{claude: '/mend ${{item}}'}}\n",
         "agent: /type a|check-a|agent: /mend a|agent: /type b|check-b|agent: /mend b"),
    Case("000-2", f"""
tasks:
  - {{name: Build, shell: ./step build 9, on_failure: [{{shell: ./step clean}}, {{shell: ./step install}}, {{shell: ./step rebuild}}]}}
  - {{name: Types, shell: ./step types 9, on_failure: {{strategy: recovery, commands: [{{claude: /types}}, {{shell: ./step again}}]}}}}
  - {{name: Ship, shell: ./step ship 9, on_failure: {{strategy: fallback, commands: [{{shell: ./step staging}}, {{shell: "./step 'told: no'"}}]}}}}
map:
  {ITEMS}
  agent_template:
    commands:
      - claude: /faster ${{item}}
      - validate: ./step fast-${{item}} 1
      - on_failure: {{claude: '/undo ${{item}}'}}
""", "build|clean|install|rebuild|types|agent: /types|again|ship|staging|told: no|agent: /faster a|fast-a|agent: /undo a|agent: /faster b|fast-b|agent: /undo b"),
    Case("002-1", "- {shell: ./step a 9, on_failure: true}\n- {shell: ./step b 9, on_failure: ./step clean}\n- {shell: ./step c 9, on_failure: /fix}\n- {shell: ./step d 9, on_failure: [./step tidy, /look, ./step more]}\n- shell: ./step last\n",
         "a|b|clean|c|agent: /fix|d|tidy|agent: /look|more|last"),
    Case("002-2", "- shell: ./step a 2\n  on_failure: {claude: '/fix ${shell.output}', fail_workflow: false, max_attempts: 3}\n- shell: ./step b\n",
         "a|agent: /fix a is broken|a|agent: /fix a is broken|a|b"),
    Case("002-2 in vain", "- shell: ./step a 9\n  on_failure: {claude: '/fix ${shell.output}', fail_workflow: false, max_attempts: 3}\n- shell: ./step b\n",
         "a|agent: /fix a is broken|a|agent: /fix a is broken|a|b"),
    Case("002-3", "- shell: ./step a 9\n  on_failure:\n    strategy: recovery\n    timeout: 30\n    handler_failure_fatal: true\n    fail_workflow: false\n    capture: {log: said, more: also}\n    commands: [{shell: 'echo back', continue_on_error: true}, {claude: /look}, {shell: echo told}]\n- shell: ./step \"${log}\"\n",
         "a|agent: /look|back|told"),
    Case("002-3 fatal", "- shell: ./step a 9\n  on_failure:\n    handler_failure_fatal: true\n    fail_workflow: false\n    commands: [{shell: ./step back 9, continue_on_error: true}, {shell: ./step told}]\n- shell: ./step b\n",
         "a|back|told", 1),
    Case("002-4", "- shell: ./step a\n  on_success: {shell: ./step well, claude: /docs}\n- shell: ./step b\n", "a|well|agent: /docs|b"),
    Case("002-5", "- {shell: echo release, capture: build}\n- shell: ./step a\n  on_success: {shell: 'cat here; ../step in', timeout: 60, capture: metrics, working_dir: dist, when: \"${build} == 'release'\"}\n- shell: ./step \"${metrics}\"\n",
         "a|in|found"),
    Case("002-5 not so", "- {shell: echo debug, capture: build}\n- shell: ./step a\n  on_success: {shell: ./step never, when: \"${build} == 'release'\"}\n- shell: ./step b\n", "a|b"),
    Case("002-6", "- claude: /commit it\n  commit_required: true\n- claude: /talk\n  commit_required: true\n- shell: ./step never\n",
         "agent: /commit it|agent: /talk", 1),
    Case("002-7", f"name: items\nmode: mapreduce\nerror_policy: {{on_item_failure: dlq, continue_on_failure: true, max_failures: 10, failure_threshold: 0.2, error_collection: aggregate}}\nmap:\n  {ITEMS}\n  agent_template: [{{shell: 'test ${{item}} = b && ./step ok'}}]\nreduce: [{{shell: './step ${{map.failed}}'}}]\n", "ok", 1),
    Case("002-7 the first too many", f"name: items\nmode: mapreduce\nerror_policy: {{max_failures: 1}}\nmap:\n  {ITEMS}\n  agent_template: [{{shell: './step ${{item}} 9'}}]\n", "a", 1),
    Case("002-8", f"mode: mapreduce\nerror_policy: {{circuit_breaker: {{failure_threshold: 1, success_threshold: 1, timeout: 10ms, half_open_requests: 1}}}}\nmap:\n  {ITEMS}\n  agent_template: [{{shell: 'test ${{item}} = b && ./step closed'}}]\n", "closed"),
    Case("002-9", f"mode: mapreduce\nerror_policy:\n  on_item_failure: retry\n  retry_config: {{max_attempts: 3, backoff: {{type: exponential, initial: 1ms, multiplier: 2}}}}\nmap:\n  {ITEMS}\n  agent_template: [{{shell: './step ${{item}} 2'}}]\n", "a|b|a|b|a|b"),
    Case("002-10 fixed", BACKOFF % "type: fixed, delay: 1ms", "a|a|a|a"),
    Case("002-10 linear", BACKOFF % "type: linear, initial: 2ms, increment: 1ms", "a|a|a|a"),
    Case("002-10 exponential", BACKOFF % "type: exponential, initial: 1ms, multiplier: 2", "a|a|a|a"),
    Case("002-10 fibonacci", BACKOFF % "type: fibonacci, initial: 1ms", "a|a|a|a"),
    Case("002-11", f"mode: mapreduce\nmap:\n  {ITEMS}\n  agent_template: [{{shell: 'test ${{item}} = a'}}]\nreduce:\n  - shell: ./step \"${{map.successful}}/${{map.total}} items\"\n  - shell: ./step \"rate ${{map.failure_rate}}\"\n", "1/2 items|rate 0.5"),
    Case("002-12", f"mode: mapreduce\nerror_policy: {{on_item_failure: dlq}}\nmap:\n  {ITEMS}\n  agent_template: [{{shell: './step ${{item}} 9'}}]\n", "a|b"),
    Case("002-13", "- shell: ./step risky 9\n  on_failure: {claude: '/why ${shell.output}'}\n- shell: ./step b\n", "risky|agent: /why risky is broken|b"),
    Case("002-14", "- shell: ./step install 1\n  on_failure: [./step clean, rm -rf modules, ./step install]\n- shell: ./step b\n", "install|clean|install|b"),
    Case("002-15", "- shell: ./step test 2\n  on_failure: {claude: /fix}\n  max_attempts: 3\n  fail_workflow: false\n- shell: ./step b\n", "test|agent: /fix|test|agent: /fix|test|b"),
    Case("002-16", "- shell: ./step ship 9\n  on_failure: {commands: [{shell: ./step back}, {shell: \"./step 'it failed'\"}], fail_workflow: true}\n- shell: ./step never\n", "ship|back|it failed", 1),
    Case("002-17", """
mode: mapreduce
error_policy:
  on_item_failure: retry
  continue_on_failure: true
  max_failures: 50
  failure_threshold: 0.15
  retry_config: {max_attempts: 3, backoff: {type: exponential, initial: 2ms, multiplier: 2}}
  circuit_breaker: {failure_threshold: 10, success_threshold: 3, timeout: 60s, half_open_requests: 5}
  error_collection: {batched: {size: 10}}
map:
  input: [{path: /x}]
  max_parallel: 1
  agent_template:
    - shell: ./step ask${item.path} 3
      on_failure: {claude: "/why ${shell.output}", max_attempts: 2}
""", "ask/x|agent: /why ask/x is broken|ask/x|ask/x|agent: /why ask/x is broken|ask/x"),
    Case("004-1", """
version: "2.0"
routing:
  max_loops: 10
  defaults: {on_fail: {retry: {max: 0, backoff: {mode: fixed, delay_ms: 2}}}}
steps:
  setup: {type: command, exec: ./step setup}
  tests:
    type: command
    exec: ./step tests 3
    on_fail:
      retry: {max: 1, backoff: {mode: fixed, delay_ms: 3}}
      goto: setup
      goto_js: |
        if (error.message?.includes('no module')) return 'setup';
        return null;
      run_js: |
        const fixes = [];
        if (error.stderr?.includes('broken')) fixes.push('mend');
        return fixes;
  mend: {type: command, exec: ./step mend}
  build: {type: command, exec: ./step build 1, on_fail: {run: [mend], retry: {max: 1}}}
  summary:
    type: command
    exec: ./step summary
    on_success:
      run: [notify]
      goto_js: |
        return /retest/i.test(outputs?.overview ?? '') || attempt === 1 ? 'tests' : null;
  notify: {type: command, exec: ./step notify}
""", "setup|tests|mend|tests|setup|tests|setup|tests|build|mend|build|summary|notify|tests|build|summary|notify"),
]  # fmt: skip


# What is kept of items that failed for good, and the waits between the tries of an item, in milliseconds.
LETTERS = {"002-7": ["a"], "002-7 the first too many": ["a", "b"], "002-8": ["a"], "002-12": ["a", "b"], "002-17": []}
DELAYS = {
    "002-9": [1, 1, 2, 2],
    "002-10 fixed": [1, 1, 1],
    "002-10 linear": [3, 4, 5],
    "002-10 exponential": [1, 2, 4],
    "002-10 fibonacci": [1, 1, 2],
    "002-17": [0, 2, 0],
}


def test_no_block_is_left_out() -> None:
    """There is a case for each of the 20."""
    blocks = {case.name.partition(" ")[0] for case in CASES}
    assert blocks == {"000-1", "000-2", *(f"002-{place}" for place in range(1, 18)), "004-1"}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_block(tmp_path: Path, case: Case) -> None:
    """It runs exactly what its text says, in this order, and exits so."""
    folder = Folder(tmp_path)
    folder.repository()
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "here").write_text("found\n")
    (tmp_path / "dist" / "trace").symlink_to("../trace")
    assert "|".join(folder.run(case.text, *case.words, code=case.code)) == case.order
    run = str(folder.document["run"])
    if case.name in LETTERS:
        letters = folder.program.json("dlq", "list", run)["dead_letters"]
        assert [letter["item_data"] for letter in letters] == LETTERS[case.name]
    if case.name in DELAYS:
        lines = folder.program.call("events", "ls", run, "--json", code=0).stdout.splitlines()
        events = [event for line in lines if (event := msgspec.json.decode(line))["type"] == "retry_scheduled"]
        assert [round(event["data"]["delay_seconds"] * 1000) for event in events] == DELAYS[case.name]
