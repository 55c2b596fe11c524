"""Whatever is in a playbook, compiling it gives findings within a second, never an exception."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resile.dialects.compile import Compiled, compile_text
from resile.dialects.noetl.keys import TABLES
from resile.dialects.noetl.tools.keys import KINDS_REFUSED, TOOLS
from resile.model.codec import decode, encode
from tests.dialects.torc.test_fuzz import mutant

SAMPLE = b"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sample, path: tests/sample, labels: {a: b}}
executor: {kind: local, spec: {entry_step: start, final_step: end}}
workload: {n: 3, list: [1, {a: 2}], url: "http://h/{{ env.X | default('y') }}", code: "def main(): return 1"}
keychain: [{name: api, kind: bearer, map: {token: t}}]
workbook:
  - {name: w, tool: {kind: python, code: "def main(a): return a", args: {a: null}}, assert: {expects: [a]}}
workflow:
  - step: start
    desc: begin
    tool: &tool
      kind: python
      args: {x: "{{ workload.n + 1 }}"}
      code: |
        def main(x, context, **rest):
            return {"x": x, "t": "{{ workload.n }}", "f": f"{{x}} {x}"}
      retry: {max_attempts: 2, retry_on: [timeout], backoff: 5}
      timeout: 1m
    args: {y: [1, "{{ execution_id }}"]}
    vars: {v: "{{ result.x }}"}
    case:
      - when: "{{ event.name == 'call.done' and response is defined }}"
        then:
          set: [{name: a, value: "{{ response.x }}"}]
          collect: {from: response, into: seen, mode: append}
          result: {from: response}
          sink: {tool: http, url: "http://h/{{ workload.n }}", payload: {a: 1}}
          next: [{step: two, args: {z: "{{ response.x }}"}}]
      - {when: "event.name == 'call.error' and error.status in [500]", then: {retry: {max_attempts: 3, delay: 1}}}
      - {when: "event.name == 'step.enter'", then: {set: {ctx: {q: []}}}}
      - {when: "response.more", then: {retry: {params: {page: 2}}, collect: {path: items, into: pages}}}
      - {when: "error is defined", then: [{fail: {message: no}}, {call: {step: two}}]}
    next: [{when: "{{ v > 1 }}", then: [two]}, {else: [{step: three, with: {k: 1}}]}]
  - step: two
    loop: {in: "{{ workload.list }}", iterator: item, mode: async, concurrency: 2, limit: 5}
    tool: {kind: shell, cmds: ["echo {{ item }} '{{ a }}'", "{% for i in list %}x{{ i }}{% endfor %}"], cwd: d}
    next: {spec: {mode: inclusive}, arcs: [{step: three, when: "{{ true }}", set: {ctx.k: 1}}, {step: end}]}
  - step: three
    type: http
    method: POST
    endpoint: "{{ workload.url }}/x"
    headers: {A: "{{ keychain.api.token }}"}
    params: {page: 1}
    payload: {b: "{{ two }}"}
    retry: [{when: "{{ response.more }}", then: {next_call: {params: {page: 2}}, collect: {into: p}, max_attempts: 9}}]
    sink: {tool: python, code: "def main(data): return data"}
  - {step: four, tool: {kind: workbook, name: w, args: {a: 1}}, critical: true, next: start, pass: false}
  - {step: five, type: iterator, collection: "{{ two }}", element: e, task: *tool, next: [four, end]}
  - step: pipe
    spec: {policy: {admit: {rules: [{when: "{{ ctx.k > 1 }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    loop: {in: [1, "{{ workload.n }}"], iterator: i, where: i > 0, order_by: i desc, chunk: 2, limit: 3}
    tool:
      - a: {kind: http, url: "{{ workload.url }}", auth: {type: basic, username: u, password: "{{ a }}"},
            spec: {policy: {rules: [{when: "{{ outcome.http.status }}", then: {do: retry, attempts: 3, delay: 1}}]}}}
      - {name: b, kind: noop, spec: {policy: {on_unmatched: continue, rules: [
          {when: "{{ iter.n }}", then: {do: jump, to: a, set_iter: {n: 1}}}, {else: {then: {do: break}}}]}}}
    next: {arcs: [{step: six, when: "{{ event.name == 'step.failed' }}", set: {x: 1}}, {step: end}]}
  - {step: six, tool: [{name: x, kind: noop}], retry: {retry_when: "{{ attempt < 3 }}", stop_when: "{{ success }}"}}
  - {step: End, tool: {kind: python, script: {uri: "f.py", source: {type: file}}}}
"""
WORDS = sorted({key for table in TABLES for key in table.keys})
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from([*TOOLS, *KINDS_REFUSED]),
    st.sampled_from(["start", "end", "a", "{{ x }}", "{{ x", "{% if", "{{ [1] }}", "event.name == 'call.done'",
                     "error is defined", "def main(x): return x", "result = 1", "1s", "http://h/{{ a }}", "select 1"]),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), inner, max_size=6),
    ),
    max_leaves=25,
)
SECONDS_MAX = 1.0
MUTANTS = int(os.environ.get("RESILE_FUZZ", "1000"))


def problems(data: bytes) -> list[str]:
    """Why what comes of a playbook is not whole: it is a workflow or errors, in time, each with words and a place."""
    began = time.monotonic()
    result: Compiled = compile_text(data, file="flow.yaml", dialect="noetl")
    seconds = time.monotonic() - began
    wrong = [finding for finding in result.diagnostics if finding.severity == "error"]
    found = [f"no words: {finding}" for finding in result.diagnostics if not finding.message or finding.line < 0]
    if (result.workflow is None) != bool(wrong):
        found.append(f"{len(wrong)} errors and the workflow {result.workflow}")
    if result.workflow is not None and decode(encode(result.workflow)) != result.workflow:
        found.append("the workflow does not survive its JSON")
    return found + ([f"{seconds:.1f} s"] if seconds > SECONDS_MAX else [])


def test_the_sample_has_everything() -> None:
    """The playbook that is changed below compiles as it is."""
    result = compile_text(SAMPLE, file="flow.yaml")
    assert result.workflow is not None, result.diagnostics
    assert [step.name for step in result.workflow.steps][:3] == ["start", "two", "three"]


def test_mutated_files() -> None:
    """Thousands of broken playbooks: a workflow or errors with words, each within its time."""
    seed = os.environ.get("RESILE_FUZZ_SEED", "0")
    chance = random.Random(f"noetl {seed}")
    wrong = {number: found for number in range(MUTANTS) if (found := problems(mutant(SAMPLE, chance)))}
    assert wrong == {}


@settings(max_examples=700, deadline=None)
@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 40), st.binary(max_size=6))
def test_changed_bytes(place: int, length: int, more: bytes) -> None:
    """A playbook with some bytes cut out and others put in."""
    assert problems(SAMPLE[:place] + more + SAMPLE[place + length :]) == []


@settings(max_examples=700, deadline=None)
@given(st.data())
def test_changed_lines(data: st.DataObject) -> None:
    """A playbook with lines left out, doubled and in another order."""
    lines = SAMPLE.splitlines(keepends=True)
    picked = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=8))
    for number in picked:
        other = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "double", "swap"])):
            case "drop":
                lines[number] = b""
            case "double":
                lines[number] += lines[other]
            case _:
                lines[number], lines[other] = lines[other], lines[number]
    assert problems(b"".join(lines)) == []


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6), max_size=4), TREES)
def test_any_tree(steps: list[Any], rest: Any) -> None:
    """A playbook whose steps, workbook and workload are anything at all."""
    named = [{"step": f"s{number}", **step} for number, step in enumerate(steps)]
    tree = {"apiVersion": "noetl.io/v2", "workflow": named, "workload": rest, "workbook": rest, "keychain": rest}
    assert problems(msgspec.json.encode(tree, enc_hook=str)) == []
