"""Steps that run a workflow: what it gives is their value, and is looked at like what a program prints."""

# ruff: noqa: E501 - a file reads better with one step in a line
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resile.dialects.compile import compile_text
from resile.model.builtin_actions import Collect, Computed
from resile.model.workflow import Agent, Child
from tests.dialects.visor.flows import VisorFlows, compiled
from tests.runs.ladder.flows import Ran

SUM = """
version: "1"
workflows:
  sum:
    inputs: [{name: n, schema: {type: number}}]
    outputs: [{name: next, value_js: "inputs.n + 1"}, {name: both, value_js: "[inputs.n, inputs.n + 1]"}]
    steps: {inner: {type: command, exec: "echo sum-{{ inputs.n }} >> trace; echo kept"}}
  broken:
    steps: {inner: {type: command, exec: "echo broken >> trace; exit 7"}}
steps:
  limit: {type: command, exec: echo 10}
"""


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder."""
    return VisorFlows(tmp_path)


def run(flows: VisorFlows, steps: str, code: int = 0) -> Ran:
    """Run steps beside a step `limit` and the workflows `sum` and `broken`."""
    lines = "".join(f"  {line}\n" for line in steps.strip().split("\n"))
    return flows.run(SUM + lines, code)


def test_its_outputs_are_the_value_and_nothing_else(flows: VisorFlows) -> None:
    """Values of its own steps are not among them, in texts, in code and in the history."""
    ran = run(flows, """
s: {type: workflow, workflow: sum, args: {n: 1}}
t: {type: command, depends_on: s, exec: "echo '{{ outputs.s | json }} {{ outputs_history.s | json }}' >> trace"}
u: {type: script, depends_on: s, content: "return Object.keys(outputs.s).join('+')"}
v: {type: command, depends_on: u, exec: "echo {{ outputs.u }} >> trace"}
""")  # fmt: skip
    assert sorted(ran.order) == ["next+both", "sum-1", '{"next":2,"both":[1,2]} [{"next":2,"both":[1,2]}]']


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ("fail_if: output.next > outputs.limit", "check", "failure condition met: output.next > outputs.limit"),
        ("guarantee: output.next === 2", "contract", "guarantee not met: output.next === 2"),
        ("failure_conditions: {c: {condition: output.next > 5, message: too much}}", "check", "too much"),
        ("schema: {type: object, required: [other]}", "contract", "schema: the value has no `other`"),
        ("transform_js: return nobody.x", "contract", "transform_js: ReferenceError: nobody is not defined"),
        ("transform: '{{ output.next }}', fail_if: output === 21", "check", "failure condition met: output === 21"),
    ],
)
def test_its_value_must_be_as_it_must_be(flows: VisorFlows, keys: str, kind: str, message: str) -> None:
    """The workflow went well, and the step that ran it has failed."""
    ran = run(flows, f"s: {{type: workflow, workflow: sum, depends_on: limit, args: {{n: 20}}, {keys}}}", 1)
    first = ran.document["first_failure"]
    assert (first["step"], first["kind"], first["message"][: len(message)]) == ("s", kind, message)
    assert ran.status["s"] == "failed"
    (failed,) = [event for event in ran.of("attempt_failed") if event["step"] == "s"]
    assert (failed["data"]["child"], failed["data"]["verdict"]) == ("sum", "completed")


def test_a_retry_runs_the_workflow_again(flows: VisorFlows) -> None:
    """Of a value that is not as it must be, as of a workflow that failed; the rules are those of the step."""
    text = "s: {type: workflow, workflow: sum, depends_on: limit, args: {n: 20}, fail_if: output.next > 5, on_fail: {retry: {max: 2}}}"
    ran = run(flows, text, 1)
    assert ran.order == ["sum-20"] * 3
    assert [action for _, action, _ in ran.routes()] == ["retry", "retry", "fail"]
    assert run(flows, "s: {type: workflow, workflow: broken, on_fail: {retry: {max: 1}}}", 1).order == ["broken"] * 2
    logical = text.replace("on_fail", "criticality: external, on_fail")
    assert run(flows, logical, 1).order == ["sum-20"]


def test_others_see_what_a_tolerated_one_left(flows: VisorFlows) -> None:
    """The value where it was judged by it, else what is known of the failure."""
    ran = run(flows, """
s: {type: workflow, workflow: sum, depends_on: limit, args: {n: 20}, fail_if: "true", continue_on_failure: true}
b: {type: workflow, workflow: broken, continue_on_failure: true}
t: {type: command, depends_on: [s, b], exec: "echo {{ outputs.s.next }} {{ outputs.b.error }} {{ outputs.b.message }} >> trace"}
""")  # fmt: skip
    assert ran.order[-1] == "21 true inner failed: exit code 7"
    assert (ran.status["s"], ran.status["b"]) == ("tolerated", "tolerated")


def test_a_remark_is_kept(flows: VisorFlows) -> None:
    """A condition below an error says something and fails nothing."""
    text = "s: {type: workflow, workflow: sum, args: {n: 1}, failure_conditions: {odd: {condition: 'true', severity: info, message: look}}}"
    (passed,) = [event for event in run(flows, text).of("attempt_succeeded") if event["step"] == "s"]
    assert passed["data"]["remarks"] == ["odd: look"]


def test_its_value_can_be_a_list_of_items(flows: VisorFlows) -> None:
    """`forEach` fans out over it; below, a workflow runs for each item and gives a value for each."""
    ran = run(flows, """
s: {type: workflow, workflow: sum, depends_on: limit, args: {n: 1}, transform_js: "return output.both.map((n) => n * outputs.limit)", forEach: true}
each: {type: workflow, workflow: sum, fanout: map, depends_on: s, args: {n: "{{ outputs.s }}"}, transform: "{{ output.next }}", guarantee: output === outputs.s + 1}
all: {type: command, fanout: reduce, depends_on: each, exec: "echo {{ outputs.each | json }} {{ outputs.s | json }} >> trace"}
""")  # fmt: skip
    assert ran.order == ["sum-1", "sum-10", "sum-20", "[11,21] [10,20]"]
    assert ran.document["maps"]["each"]["successful"] == 2


def test_an_empty_value_is_no_list(flows: VisorFlows) -> None:
    """A step that promised items must give some."""
    ran = run(flows, "s: {type: workflow, workflow: sum, args: {n: 1}, transform_js: return null, forEach: true}\nt: {type: noop, fanout: map, depends_on: s}", 1)  # fmt: skip
    assert ran.failed == "'s' gave nothing to run for: its output must be a list, or one item"


def test_the_migrated_file_is_the_same(flows: VisorFlows) -> None:
    """A native file says of a workflow's value what a Visor file says."""
    text = (
        SUM
        + "  s: {type: workflow, workflow: sum, args: {n: 1}, transform_js: output.next, guarantee: 'output.items[0] === 2', forEach: true}\n"
    )
    text += "  t: {type: command, depends_on: s, exec: 'echo t-{{ outputs.s }} >> trace'}\n"
    before = flows.run(text)
    migrated: dict[str, Any] = flows.program.json("migrate", "flow.yaml")
    after = flows.run(migrated["text"])
    assert before.order == after.order == ["sum-1", "t-2"]
    assert before.status == after.status


def test_a_native_file_runs_one(flows: VisorFlows) -> None:
    """Its outputs have their names there, and code in it runs with the names of its own language."""
    flows.program.write("version: '1'\nid: kid\nsteps:\n  a: {type: command, exec: echo 3, if: \"inputs.go === 'yes'\", fail_if: output > 5}\n"
                        "  b: {type: script, depends_on: a, content: return outputs.a + 1}\n"
                        "inputs: {go: 'yes'}\noutputs: [{name: n, value_js: outputs.b * 2}]\n", "kid.yaml")  # fmt: skip
    flows.program.write("resile: 1\nsteps:\n  k: {workflow: kid.yaml}\n"
                        "  t: {shell: 'echo ${steps.k.outputs.n} >> trace', needs: [k], when: '${steps.k.outputs.n} > 7'}\n")  # fmt: skip
    flows.program.json("run", "flow.yaml", code=0)
    assert (flows.folder / "trace").read_text() == "8\n"


def test_code_makes_a_value_in_a_native_file(flows: VisorFlows) -> None:
    """Also where its texts are not Liquid; memory takes the values of those texts."""
    flows.program.write("resile: 1\ninputs: {who: me}\nsteps:\n"
                        "  - {id: a, shell: echo 3, capture: {a: value}, ir: {transform: {code: return output * 2}, checks: [{name: c, code: output === 6, must: true}]}}\n"
                        "  - {id: m, ir: {memory: {operation: set, key: 'k-${inputs.who}', value: {v: '${a}'}}}}\n"
                        "  - {id: s, capture: {s: value}, ir: {script: \"return memory.get('k-me').v\", transform: {}}}\n"
                        "  - {id: t, shell: 'echo ${s} >> trace'}\n")  # fmt: skip
    flows.program.json("run", "flow.yaml", code=0)
    assert (flows.folder / "trace").read_text() == "6\n"


def test_what_is_looked_at_must_become_a_value() -> None:
    """In a native file `checks` and `capture: {NAME: value}` beside `workflow` need `transform`."""
    inner = "workflow: {steps: [{noop: true}]}"
    for keys, word in (("ir: {checks: [{name: c, code: x, must: true}]}", "checks"), ("capture: {s: text}", "capture")):
        found = compile_text(f"resile: 1\nsteps: {{s: {{{inner}, {keys}}}}}")
        expected = f"`{word}` has no meaning for `workflow`, which runs no program of its own"
        assert [finding.message for finding in found.diagnostics] == [expected]
    keys = "capture: {s: value}, ir: {transform: {}, checks: [{name: c, code: x, must: true}]}"
    assert compile_text(f"resile: 1\nsteps: {{s: {{{inner}, {keys}}}}}").workflow is not None


def test_a_file_that_others_import_needs_no_version() -> None:
    """It is known by its `id`; any other file must say its version."""
    assert compiled("id: kid\nsteps: {a: {type: noop}}")[0] is not None
    assert compiled("steps: {a: {type: noop}}")[1] == ["error: the file has no `version`"]


def test_the_callers_max_parallelism_counts() -> None:
    """One that a called workflow has bounds nothing, which is told where it is called."""
    called = 'version: "1"\nworkflows: {w: {max_parallelism: 2, steps: {a: {type: command, exec: x}}}}\n'
    workflow, found = compiled(f"{called}steps:\n  s: {{type: workflow, workflow: w}}\n")
    assert workflow is not None
    action = workflow.steps[0].action
    assert isinstance(action, Child)
    assert action.workflow.max_parallel is None
    assert [line for line in found if "max_parallelism" in line] == [
        "warning: `w` has a `max_parallelism`: the caller's counts"
    ]


def test_a_called_workflows_model_is_its_own() -> None:
    """A step behind the call asks for the caller's model, or for none."""
    called = 'version: "1"\nworkflows: {w: {ai_model: small, steps: {a: {prompt: x}}}}\n'
    workflow, _ = compiled(f"{called}steps:\n  s: {{type: workflow, workflow: w}}\n  t: {{prompt: y}}\n")
    assert workflow is not None
    child, after = (step.action for step in workflow.steps)
    assert isinstance(child, Child)
    assert isinstance(after, Agent)
    (inner,) = (step.action for step in child.workflow.steps)
    assert isinstance(inner, Agent)
    assert (inner.command[2:], after.command[2:]) == (("--model", "small"), ())


def test_a_template_beside_code_is_not_used() -> None:
    """`value_js` gives the output, and a warning says that `value` does not."""
    outputs = 'outputs: [{name: x, value: "{{ one }}", value_js: "2"}, {name: y, value: "{{ one }}"}]'
    workflow, found = compiled(f'version: "1"\nid: w\n{outputs}\nsteps: {{a: {{type: noop}}}}\n')
    assert workflow is not None
    assert workflow.end is not None
    assert workflow.end.action == Collect((Computed("x", code="2"), Computed("y", "{{ one }}")))
    assert [line for line in found if "value_js" in line] == [
        "warning: `value` is not used, because `value_js` gives the value"
    ]
