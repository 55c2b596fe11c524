"""Whatever is in a file, compiling it gives findings, never an exception."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resile.dialects.compile import Compiled, compile_text
from resile.dialects.native.keys.fanout import ERROR_POLICY, MAP
from resile.dialects.native.keys.steps import TABLES
from resile.languages.references import MISSING
from resile.languages.shell.quoting import plain_argv, render_shell
from resile.model.codec import decode, encode

SAMPLE = b"""resile: 1
name: sample
max_parallel: 2
errexit: true
grace: 5s
env: {A: "1", B: "${inputs.target}"}
inputs: {target: release, n: {type: number, default: 3}}
secrets: [TOKEN]
agent: {command: claude -p, prompt: stdin, max_cost: 2, max_tokens: 9, timeout: 1m}
routing: {max_loops: 5, defaults: {on_failure: {retry: {max: 1}, goto: setup}}}
error_policy:
  on_item_failure: custom:mend
  continue_on_failure: true
  max_failures: 3
  failure_threshold: 0.2
  failure_threshold_min_items: 5
  error_collection: {batched: {size: 4}}
  circuit_breaker: {failure_threshold: 2, success_threshold: 1, timeout: 10s, half_open_requests: 1}
  retry_config: {max_attempts: 2, backoff: {exponential: {initial: 1s}}}
handlers: {mend: ["fix ${item} ${error.message}", {shell: again, continue_on_error: true}]}
failure_handlers:
  solver:
    rules:
    - {exit_codes: [10, 11], signals: KILL, kinds: [oom], pattern: "a.b", recovery_script: ./fix.sh, max_retries: 2,
       backoff: {initial: 1}, timeout: 5s, on_script_failure: fail}
    - {match_all_exit_codes: true}
steps:
  setup: &setup
    shell: |
      echo "${inputs.target}" '${env.HOME}' $(date) <<EOF
      ${inputs.n} `x`
      EOF
    timeout: 1h30m
    retry: {max: 2, backoff: {type: exponential, initial: 1s, multiplier: 2, max_delay: 1m, jitter: 0.1}}
  test: {shell: make test, needs: [setup], capture: {out: json, code: exit_code}, outputs: [a, b]}
  lint: {shell: "echo ${steps.test.outputs.out[0]['k']}", needs: ["setup|test"], when: "${out.ok}", on_failure: true}
  again: *setup
  fix: {agent: "repair ${error.message}", commit_required: true}
  solve:
    validate: check ${inputs.n}
    needs: [test]
    failure_handler: solver
    on_failure:
      strategy: fallback
      max_attempts: 2
      fail_workflow: true
      timeout: 9
      handler_failure_fatal: true
      capture: {report: handler_output}
      run: [fix]
      run_js: "['fix']"
      goto: test
      goto_js: "null"
      transitions: [{when: "attempt > 1", to: null}, {when: x, to: setup}]
      commands: ["./h ${error.stderr}", /look, {id: q, shell: r, continue_on_error: true, on_failure: false}]
    on_success: {write_file: {path: "f-${report}", content: ok, mode: 600}, when: "${inputs.n} > 2", goto: setup}
  list: {shell: ls, needs: [setup], foreach: true, max_parallel: 2,
    error_policy: {on_item_failure: "custom:solver", continue_on_failure: true}, on_finish: {run: tell, goto: setup}}
  each: {shell: "echo ${item.path} ${steps.list.output}", needs: list, critical: true, on_failure: {goto_js: "null"}}
  tell: {shell: "echo ${steps.each.total}"}
  map:
    needs: [each]
    fanout: reduce
    map:
      input: {step: test}
      json_path: $.items[*]
      filter: item.size > 3
      sort_by: size DESC, name NULLS FIRST
      distinct: name
      offset: 1
      max_items: 9
      max_parallel: 2
      item_timeout: 5m
      isolation: worktree
      agent_template: {commands: [{id: in, map: {input: "ls ${item_id}", steps: {x: {shell: "${item}"}}}}]}
  sum: {shell: "echo ${map.failed} ${steps.map.results}", needs: [map]}
  meet: {noop: true, next: {mode: first, arcs: [{step: test, when: true}, end]}}
  end: {shell: "echo ${execution.status}", resources: {cpus: 0.5, memory: 1g, gpus: 1, runtime: 2m,
    escalate: {factor: 2, memory_max: 4g, runtime_max: 1h, rounds: 2}}}
"""
WORDS = sorted({key for table in TABLES for key in table.keys})
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["a", "b", "end", "a|b", "1s", "-1", "${inputs.x}", "${steps.a.output}", "$((${a}))", "'", "bash"]),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from([*WORDS, "a", "b"]), st.text(max_size=4)), inner, max_size=6),
    ),
    max_leaves=25,
)


def problems(result: Compiled) -> list[str]:
    """Why a result is not whole: it is a workflow or an error, and every finding has words and a place."""
    errors = [finding for finding in result.diagnostics if finding.severity == "error"]
    found = [f"no words: {finding}" for finding in result.diagnostics if not finding.message or finding.line < 0]
    if (result.workflow is None) != bool(errors):
        found.append(f"{len(errors)} errors and the workflow {result.workflow}")
    if result.workflow is not None and decode(encode(result.workflow)) != result.workflow:
        found.append("the workflow does not survive its JSON")
    return found


def test_the_sample_is_sound() -> None:
    """The file that is mutated below has no finding to begin with, but the one notice that every threshold gets."""
    found = compile_text(SAMPLE).diagnostics
    assert [(one.severity, one.code, one.line, one.message) for one in found] == [
        (
            "notice",
            "since-0.2",
            15,
            "since 0.2 the share of failed items is also judged when the map ends, however few items it has",
        )
    ]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SAMPLE) - 1),
            st.integers(0, 8),
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b"\t", b"&a ", b"*a", b"<<: ", b"{", b"]", b"'", b"${", b": ", b"!!"]),
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_mutated_bytes(changes: list[tuple[int, int, bytes]]) -> None:
    """Bytes cut out of a file and others put in."""
    data = SAMPLE
    for at, length, piece in changes:
        data = data[:at] + piece + data[at + length :]
    assert problems(compile_text(data)) == []


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from([*WORDS, "a"]), TREES, max_size=5), TREES)
def test_random_structure(fields: dict[str, Any], steps: Any) -> None:
    """Known keys with values of any kind."""
    assert problems(compile_text(msgspec.json.encode({"resile": 1, **fields, "steps": steps}))) == []


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6),
    st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6),
)
def test_random_steps(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Known keys with values of any kind, where steps are expected."""
    assert problems(compile_text(msgspec.json.encode({"resile": 1, "steps": {"a": first, "b": second}}))) == []
    assert problems(compile_text(msgspec.json.encode({"resile": 1, "steps": [first, second]}))) == []


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(TREES, TREES, TREES, TREES, st.dictionaries(st.sampled_from(WORDS), TREES, max_size=4))
def test_random_answers(on_failure: Any, on_success: Any, handlers: Any, defaults: Any, more: dict[str, Any]) -> None:
    """Values of any kind where failures are answered."""
    step = {"shell": "x", **more, "on_failure": on_failure, "on_success": on_success, "failure_handler": "a"}
    file = {
        "resile": 1,
        "failure_handlers": {"a": {"rules": handlers}},
        "routing": {"defaults": {"on_failure": defaults}},
        "steps": [{"id": "b", "shell": "x"}, step, {"on_fail": on_failure}],
    }
    assert problems(compile_text(msgspec.json.encode(file))) == []


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*MAP.keys, *WORDS]), TREES, max_size=6),
    st.dictionaries(st.sampled_from([*ERROR_POLICY.keys, *WORDS]), TREES, max_size=4),
    st.lists(st.dictionaries(st.sampled_from(["foreach", "fanout", "needs", "on_finish", *WORDS]), TREES, max_size=4)),
    st.booleans(),
)
def test_random_fanouts(
    map_keys: dict[str, Any], policy: dict[str, Any], steps: list[dict[str, Any]], is_list: bool
) -> None:
    """Values of any kind where items are fanned out."""
    fan = {"input": [1], "steps": [{"shell": "x"}], **map_keys}
    each = [{"shell": "x", **step} for step in steps]
    below = {f"s{number}": {"needs": "p", **step} for number, step in enumerate(each)}
    file: dict[str, Any] = {"resile": 1, "error_policy": policy, "handlers": {"a": each}}
    producer = {"shell": "x", "foreach": True}
    listed = (
        {"steps": [producer, *each, {"map": fan}]}
        if is_list
        else {"steps": {"p": producer, **below, "m": {"map": fan}}}
    )
    assert problems(compile_text(msgspec.json.encode({**file, **listed}))) == []
    assert problems(compile_text(msgspec.json.encode({**file, "mode": "mapreduce", "map": fan, "reduce": each}))) == []


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from(list("${}()[]'\"`\\<>|&;# \n\tavEOF-:=%!*~1")), max_size=40))
def test_random_commands(command: str) -> None:
    """Any text is read as a command; without known names it comes back unchanged."""
    plain_argv(command)
    for program in ("sh", "bash"):
        assert render_shell(command, lambda _: MISSING, program) == command
