"""A playbook is lowered to a native tree: what only playbooks may say gets through, and places are the playbook's."""

from __future__ import annotations

from resile.model.builtin_actions import Effect
from resile.model.rules import NOWHERE, Backoff, Origin
from resile.model.workflow import Child, Condition, FanOut, Http, Python, Secret, Shell
from tests.dialects.noetl.playbooks import HEAD, step, workflow

LINES = HEAD.count("\n")


def test_names_that_a_native_file_refuses() -> None:
    """Templates can write any name, so inputs, secrets, arguments and headers may have one that is no word."""
    found = workflow("""
        workload: {a b: 1}
        workflow:
          - step: start
            tool: {kind: http, url: host/path, headers: {a b: c}, auth: my-key}
            next: [{step: end, args: {c d: 2}}]
          - {step: end, tool: {kind: shell, cmds: ["x"], env: {"e=f": g}}, critical: true}
    """)
    start = found.steps[0]
    assert isinstance(start.action, Http)
    assert found.inputs["a b"].default == 1
    assert found.secrets == {"my-key.token": Secret(env="MY_KEY_TOKEN")}
    assert start.action.url == "host/path"
    assert list(start.action.headers) == ["a b", "Authorization"]
    assert start.arcs[0].args == {"c d": 2}
    assert (found.end.action, found.end.env, found.end.critical) == (Shell("x", "bash"), {"e=f": "g"}, True)


def test_references_of_native_files_are_texts() -> None:
    """`${…}` and a NUL in the data of a playbook are taken as they are written."""
    found = step(r"""
        workflow:
          - step: start
            tool: {kind: python, code: "def main(v): return v", args: {v: "a\0b"}}
            loop: {in: ["${inputs.x}"], iterator: i}
    """)
    assert isinstance(found.action, FanOut)
    assert found.action.source.values == ("${inputs.x}",)
    assert found.action.steps[0].args == {"v": "a\0b"}


def test_waits_that_a_native_backoff_refuses() -> None:
    """The waits of a playbook may become shorter."""
    found = step("""
        workflow:
          - {step: start, tool: {kind: shell, cmds: ["x"]}, retry: {max_attempts: 3, backoff_multiplier: 0.5}}
    """)
    assert [rule.wait for rule in found.rules] == [Backoff("exponential", 1.0, 1.0, 0.5, 60.0, 0.5)]


def test_places_are_those_of_the_playbook() -> None:
    """Steps, rules and conditions stand where their keys stand in the playbook; what it does not say stands nowhere."""
    found = workflow("""
        workflow:
          - step: start
            tool: {kind: shell, cmds: ["x"]}
            retry: {max_attempts: 2, retry_when: "{{ error }}"}
            sink: {tool: python, code: "def main(): return 1"}
            next: [{step: b, when: "{{ result }}"}]
          - {step: b, tool: {kind: noop}}
    """)
    start = found.steps[0]
    assert start.origin == Origin(LINES + 2, 11)
    assert {rule.origin for rule in start.rules} == {Origin(LINES + 4, 12)}
    assert start.arcs[0].when == Condition("{{ result }}", "jinja", Origin(LINES + 6, 28))
    assert start.on_success is not None
    assert start.on_success.steps[0].origin == Origin(LINES + 5, 11)
    assert (start.on_success.origin, found.end.origin) == (NOWHERE, NOWHERE)


def test_the_workflow_of_a_pipeline_is_one_of_noetl() -> None:
    """The tools of a step are a workflow of the same dialect; a tool that does nothing has an attempt to follow."""
    found = step("""
        workflow:
          - step: start
            args: {z: 1}
            tool: [{a: {kind: shell, cmds: ["x"]}}, {b: {kind: noop, assert: {returns: [r]}}}]
    """)
    assert isinstance(found.action, Child)
    inner = found.action.workflow
    assert (inner.dialect, inner.templates, list(inner.inputs)) == ("noetl", "jinja", ["z"])
    assert inner.steps[0].effects == (Effect(kind="set", name="iter._prev", value="a"),)
    assert inner.steps[1].action == Python("result = None")
