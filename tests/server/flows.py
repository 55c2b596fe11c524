"""Workflows that the tests of the server run."""

from __future__ import annotations

HELLO = """
resile: 1
name: hello
steps:
  greet: {shell: "printf 0123456789; echo oops >&2"}
  bye: {shell: "true", needs: [greet]}
"""

PARKED = """
resile: 1
name: parked
steps:
  flaky: {shell: "test -e mended || { echo broken >&2; exit 3; }", park: true}
  after: {shell: "true", needs: [flaky]}
"""

FAILS = """
resile: 1
name: fails
steps:
  broken: {shell: "exit 7"}
  after: {shell: "true", needs: [broken]}
"""

WAITS = """
resile: 1
name: waits
inputs: {gate: {type: text, required: true}}
steps:
  hold: {shell: 'echo begun; read line < "$GATE"; echo went', env: {GATE: "${inputs.gate}"}}
"""

LETTERS = """
resile: 1
name: letters
steps:
  each:
    map:
      input: [1, 2, 3]
      steps:
        work: {shell: "test -e mended || test ${item} = 2"}
"""

HANDLERS = """
resile: 1
name: handlers
failure_handlers:
  simulation_recovery: {rules: [{exit_codes: [10, 11], max_retries: 3}]}
steps:
  solve: {shell: "exit 12", failure_handler: simulation_recovery, park: true}
"""
