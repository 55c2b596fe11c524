"""Whatever is in a file, compiling it gives findings, never an exception."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from resile.dialects.base import Compiled, compile_text
from resile.dialects.interpolate import MISSING
from resile.dialects.native_keys import NOT_YET, TABLES
from resile.dialects.shell import plain_argv, render_shell
from resile.model.codec import decode, encode

SAMPLE = b"""resile: 1
name: sample
max_parallel: 2
grace: 5s
env: {A: "1", B: "${inputs.target}"}
inputs: {target: release, n: {type: number, default: 3}}
secrets: [TOKEN]
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
  meet: {noop: true, next: {mode: first, arcs: [{step: test, when: true}, end]}}
  end: {shell: "echo ${execution.status}", resources: {cpus: 0.5, memory: 1g, gpus: 1, runtime: 2m}}
"""
WORDS = sorted({key for table in TABLES for key in table.keys} | {word for words in NOT_YET.values() for word in words})
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
    """The file that is mutated below has no error to begin with."""
    assert compile_text(SAMPLE).diagnostics == ()


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


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from([*WORDS, "a"]), TREES, max_size=5), TREES)
def test_random_structure(fields: dict[str, Any], steps: Any) -> None:
    """Known keys with values of any kind."""
    assert problems(compile_text(msgspec.json.encode({"resile": 1, **fields, "steps": steps}))) == []


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6),
    st.dictionaries(st.sampled_from(WORDS), TREES, max_size=6),
)
def test_random_steps(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Known keys with values of any kind, where steps are expected."""
    assert problems(compile_text(msgspec.json.encode({"resile": 1, "steps": {"a": first, "b": second}}))) == []
    assert problems(compile_text(msgspec.json.encode({"resile": 1, "steps": [first, second]}))) == []


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from(list("${}()[]'\"`\\<>|&;# \n\tavEOF-:=%!*~1")), max_size=40))
def test_random_commands(command: str) -> None:
    """Any text is read as a command; without known names it comes back unchanged."""
    plain_argv(command)
    for program in ("sh", "bash"):
        assert render_shell(command, lambda _: MISSING, program) == command
