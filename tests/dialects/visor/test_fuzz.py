"""Whatever is in a Visor file, compiling it gives findings within a second, never an exception."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resile.dialects.visor.keys import TABLES, TYPES, TYPES_REFUSED
from tests.dialects.visor.flows import compiled

SAMPLE = b"""version: "1.0"
name: sample
id: sample
max_parallelism: 2
fail_fast: false
fail_if: output.bad
failure_conditions: {c: {condition: "x > 1", message: m, severity: warning, halt_execution: false}}
env: {A: "1", B: "${HOME}-{{ x }}"}
memory: {storage: file, file: m.json, namespace: n, auto_load: true, auto_save: false}
tag_filter: {include: [fast], exclude: [slow]}
routing: {max_loops: 5, defaults: {on_fail: {retry: {max: 1, backoff: {mode: exponential, delay_ms: 10}}}}}
inputs: [{name: i, schema: {type: number, enum: [1, 2]}, default: 1}]
outputs: [{name: o, value: "{{ steps.a.output }}"}, {name: p, value_js: return 1}]
tools: {t: {exec: "echo {{ args.n }}", inputSchema: {properties: {n: {default: 3}}, required: [n]}, parseJson: true}}
workflows: {w: {inputs: {q: 1}, steps: [{id: one, type: noop}, {id: two, type: log, message: hi}]}}
steps:
  a: &a
    type: command
    exec: |
      echo "{{ inputs.i }}" '{{ outputs.x | json }}' {% for n in list %}{{ n }}{% endfor %} <<EOF
      {{ y }}
      EOF
    forEach: true
    timeout: 500
    transform: "{{ output | split: ',' | json }}"
    on_finish: {run: [f], goto_js: return null}
  b: {type: script, content: "memory.set('a', 1); return 2", depends_on: [a], fanout: map}
  c: {type: log, message: "{{ outputs.b }}", level: warn, depends_on: ["a|b", b], if: "outputs.b > 1", assume: [true]}
  d: *a
  e:
    prompt: look
    depends_on: c
    schema: {type: object, properties: {issues: {type: array}}, required: [issues]}
    ai: {model: m, allowBash: true, timeout: 1000}
    criticality: external
    guarantee: output.ok
    on_init: {run: [f, {tool: t, with: {n: 2}, as: u}, {workflow: w, with: {q: 2}}]}
    on_fail:
      retry: {max: 2}
      run: [f, {step: f, with: {k: "{{ output.x }}"}}]
      run_js: return ['f']
      goto: c
      transitions: [{when: "attempt > 1", to: null}, {when: x, to: c}]
  f: {type: memory, operation: append, key: k, value: {x: [1]}, tags: [fast], on: [manual], group: g}
  g: {type: http_client, url: "http://h/{{ x }}", headers: {A: "${T}"}, body: {a: "{{ y }}"}, depends_on: e}
  h: {type: workflow, workflow: w, args: {q: 1}, continue_on_failure: true}
  i: {type: human-input, prompt: who?, default: me}
"""
KINDS = [*TYPES, *TYPES_REFUSED]
WORDS = sorted({key for table in TABLES for key in table.keys})
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(KINDS),
    st.sampled_from(["a", "b", "end", "a|b", "-1", "{{ x }}", "{{ x", "{% if", "return 1", "plain", "f.md", "x.json"]),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from([*WORDS, "a", "b"]), st.text(max_size=4)), inner, max_size=6),
    ),
    max_leaves=25,
)
SECONDS_MAX = 1.0


def problems(data: bytes) -> list[str]:
    """Why a result is not whole: it is a workflow or an error, and every finding has words."""
    began = time.monotonic()
    workflow, findings = compiled(data)
    seconds = time.monotonic() - began
    found = [f"it took {seconds:.1f} s"] if seconds > SECONDS_MAX else []
    found += [finding for finding in findings if finding.endswith(": ")]
    errors = [finding for finding in findings if finding.startswith("error")]
    if workflow is None and not errors and not findings:
        # Only a file that is no mapping is left to whoever tells files apart.
        found += [] if not data.lstrip().startswith(b"version") else ["neither a workflow nor an error"]
    if workflow is not None and errors:
        found.append(f"a workflow in spite of {errors}")
    return found


def test_the_sample_is_sound() -> None:
    """The file that is mutated below has no error to begin with."""
    assert [finding for finding in compiled(SAMPLE)[1] if finding.startswith("error")] == []


@settings(max_examples=800, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SAMPLE) - 1),
            st.integers(0, 8),
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b"\t", b"&a ", b"*a", b"<<: ", b"{", b"]", b"'", b"{{", b"{%", b": ", b"!!", b"}}"]),
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
@example([(1204, 2, b"")])
def test_mutated_bytes(changes: list[tuple[int, int, bytes]]) -> None:
    """Bytes cut out of a file and others put in."""
    data = SAMPLE
    for at, length, piece in changes:
        data = data[:at] + piece + data[at + length :]
    assert problems(data) == []


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from([*WORDS, "a"]), TREES, max_size=5), TREES)
def test_random_structure(fields: dict[str, Any], steps: Any) -> None:
    """Known keys with values of any kind."""
    assert problems(msgspec.json.encode({"version": "1", **fields, "steps": steps})) == []


@pytest.mark.slow
@settings(max_examples=800, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6),
    st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6),
)
def test_random_steps(kind: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Known keys with values of any kind, where steps are expected."""
    steps = {"a": {**first, "type": kind}, "b": {"type": kind, **second}}
    assert problems(msgspec.json.encode({"version": "1", "steps": steps})) == []
