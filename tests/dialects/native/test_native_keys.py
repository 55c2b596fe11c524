"""Every accepted key of a native file changes the model: one case for each row of the tables."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import msgspec
import pytest

from resile.dialects.native.keys.ir import IR_TABLES
from resile.dialects.native.keys.steps import TABLES
from resile.model.rules import Backoff, Escalation, Match, Origin
from resile.model.workflow import (
    Agent,
    Arc,
    Capture,
    Child,
    Condition,
    Http,
    Input,
    Need,
    Noop,
    Python,
    Resources,
    Rule,
    Secret,
    Shell,
    Step,
    SuccessActions,
    Validate,
    WriteFile,
)
from tests.dialects.compiling import (
    CHILD,
    agent_with,
    child_with,
    compiled,
    escalating,
    repair_of,
    rule_of,
    rule_with,
    step_with,
    then_of,
    wait_with,
    workflow_with,
)
from tests.dialects.native.executor_keys import EXECUTOR_CASES
from tests.dialects.native.fanout_keys import FANOUT_CASES
from tests.dialects.native.ladder_keys import LADDER_CASES
from tests.dialects.native.model_keys import MODEL_CASES

CASES: dict[tuple[str, str], list[tuple[object, object]]] = {
    **LADDER_CASES,
    **FANOUT_CASES,
    **MODEL_CASES,
    **EXECUTOR_CASES,
    ("the workflow", "resile"): [(workflow_with("").dialect, "native")],
    ("the workflow", "name"): [(workflow_with("name: nightly").name, "nightly"), (workflow_with("").name, "flow")],
    ("the workflow", "max_parallel"): [(workflow_with("max_parallel: 3").max_parallel, 3)],
    ("the workflow", "resource_monitor"): [
        (workflow_with("resource_monitor: {}").monitor_seconds, 5.0),
        (workflow_with("").monitor_seconds, 0.0),
    ],
    ("resource_monitor", "interval"): [(workflow_with("resource_monitor: {interval: 500ms}").monitor_seconds, 0.5)],
    ("the workflow", "grace"): [
        (workflow_with("grace: 2s").grace_seconds, 2.0),
        (workflow_with("grace: 0").grace_seconds, 0.0),
        (workflow_with("").grace_seconds, 10.0),
    ],
    ("the workflow", "errexit"): [
        (compiled('resile: 1\nerrexit: false\nsteps: {a: {shell: "x\\ny"}}').steps[0].action, Shell("x\ny")),
    ],
    ("a step", "errexit"): [
        (step_with(r'shell: "x\ny"').action, Shell("x\ny", errexit=True)),
        (step_with(r'shell: "x\ny", errexit: false').action, Shell("x\ny")),
        (step_with(r'validate: "x\ny"').action, Validate("x\ny", errexit=True)),
    ],
    ("the workflow", "shell_program"): [(workflow_with("shell_program: bash").steps[0].action, Shell("x", "bash"))],
    ("the workflow", "env"): [
        (workflow_with("env: {A: 1.10, B: true, C: '', D: , E: x}").env, {"A": "1.10", "B": "true", "C": "", "D": "", "E": "x"})
    ],
    ("the workflow", "env_files"): [
        (workflow_with("env_files: [.env, more.env]").env_files, (".env", "more.env")),
        (workflow_with("env_files: .env").env_files, (".env",)),
    ],
    ("the workflow", "inputs"): [
        (workflow_with("inputs: {a: 1.10, b: [1]}").inputs, {"a": Input(default="1.10"), "b": Input("json", [1])})
    ],
    ("the workflow", "secrets"): [(workflow_with("secrets: [TOKEN]").secrets, {"TOKEN": Secret(env="TOKEN")})],
    ("the workflow", "agent"): [
        (compiled("resile: 1\nagent: ./a -x\nsteps: [{agent: hi}]").steps[0].action, Agent("hi", ("./a", "-x")))
    ],
    ("the workflow", "failure_handlers"): [
        ([rule.limit for rule in workflow_with("failure_handlers: {h: {rules: [{kinds: oom}]}}").failure_handlers["h"]], [3])
    ],
    ("the workflow", "routing"): [(workflow_with("routing: {max_loops: 3}").loops_max, 3)],
    ("the workflow", "steps"): [
        ([s.name for s in compiled("resile: 1\nsteps: [{shell: a}, {shell: b}]").steps], ["step-1", "step-2"]),
        ([s.name for s in compiled("resile: 1\nsteps: {q: {shell: a}}").steps], ["q"]),
    ],
    ("a step", "id"): [
        (compiled("resile: 1\nsteps: [{id: q, shell: a}]").steps[0], Step(name="q", action=Shell("a"), origin=Origin(2, 14)))
    ],
    ("a step", "name"): [(compiled("resile: 1\nsteps: [{name: my step, shell: a}]").steps[0].name, "my step")],
    ("a step", "shell"): [
        (step_with("shell: echo 1").action, Shell("echo 1")),
        (step_with("shell: true").action, Shell("true")),
    ],
    ("a step", "workflow"): [(child_with("").action, Child("child.yaml", CHILD))],
    ("a step", "noop"): [(step_with("noop: true").action, Noop())],
    ("a step", "shell_program"): [
        (step_with("shell: x, shell_program: bash").action, Shell("x", "bash")),
        (step_with("shell: x, shell_program: /bin/bash").action, Shell("x", "/bin/bash")),
    ],
    ("a step", "needs"): [
        (step_with("shell: x, needs: [a]").needs, (Need(("a",)),)),
        (step_with("shell: x, needs: a").needs, (Need(("a",)),)),
    ],
    ("a step", "next"): [
        (step_with("shell: x, next: a").arcs, (Arc("a"),)),
        (step_with("shell: x, next: [a, end]").arcs, (Arc("a"), Arc("end"))),
    ],
    ("ir, of a step", "join"): [
        (step_with("shell: x, ir: {join: all}, next: [{step: a, when: 'true'}, {step: s, when: 'false'}]").join, "all"),
        (step_with("shell: x, ir: {join: any}").join, "any"),
    ],
    ("a step", "when"): [
        (step_with("shell: x, when: false").when, Condition("false", "value", Origin(5, 23))),
        (step_with("shell: x, when: True").when, Condition("true", "value", Origin(5, 23))),
        (step_with("shell: x, when: '${inputs.i}'").when, Condition("${inputs.i}", "value", Origin(5, 23))),
        (step_with("shell: x, when: '${inputs.i} > 1'").when, Condition("${inputs.i} > 1", "js", Origin(5, 23))),
    ],
    ("a step", "timeout"): [(step_with("shell: x, timeout: 1h30m").timeout_seconds, 5400.0)],
    ("a step", "grace"): [(step_with("shell: x, grace: 0").grace_seconds, 0.0)],
    ("a step", "env"): [(step_with("shell: x, env: {A: '${inputs.i}'}").env, {"A": "${inputs.i}"})],
    ("a step", "working_dir"): [(step_with("shell: x, working_dir: sub").working_dir, "sub")],
    ("a step", "capture"): [
        (step_with("shell: x, capture: out").capture, (Capture("out"),)),
        (
            step_with("shell: x, capture: {a: text, b: json, c: lines, d: number, e: bool, f: stderr, g: exit_code, h: success, j: duration}").capture,
            (Capture("a"), Capture("b", "json"), Capture("c", "lines"), Capture("d", "number"), Capture("e", "bool"),
             Capture("f", "stderr"), Capture("g", "exit_code"), Capture("h", "success"), Capture("j", "duration")),
        ),
    ],
    ("a step", "reads"): [
        (step_with("shell: x, reads: [f, 'g/${inputs.i}']").reads, ("f", "g/${inputs.i}")),
        (step_with("shell: x, reads: f").reads, ("f",)),
    ],
    ("ir, of a step", "reads_data"): [(step_with("shell: x, ir: {reads_data: {d: [1]}}").reads_data, {"d": [1]})],
    ("a step", "outputs"): [
        (step_with("shell: x, outputs: [f, 'g/${inputs.i}']").outputs, ("f", "g/${inputs.i}")),
        (step_with("shell: x, outputs: f").outputs, ("f",)),
    ],
    ("a step", "resources"): [(step_with("shell: x, resources: {cpus: 2}").resources, Resources(cpus=2.0))],
    ("a step", "agent"): [
        (step_with("agent: 'fix ${inputs.i}'").action, Agent("fix ${inputs.i}")),
        (agent_with("command: ./a").action, Agent("hi", ("./a",))),
    ],
    ("a step", "claude"): [(step_with("claude: /fix").action, Agent("/fix"))],
    ("a step", "validate"): [
        (step_with("validate: make check").action, Validate("make check")),
        (step_with("validate: x, shell_program: bash").action, Validate("x", "bash")),
    ],
    ("a step", "http"): [(step_with("http: 'http://h/${inputs.i}'").action, Http("http://h/${inputs.i}"))],
    ("a step", "python"): [(step_with("python: 'print(1)'").action, Python("print(1)"))],
    ("a step", "inputs"): [
        (step_with("python: x, inputs: {a: '${inputs.i}'}").action, Python("x", inputs={"a": "${inputs.i}"})),
        (child_with("inputs: {n: 3, t: 3, j: [1, '${inputs.i}'], b: '${inputs.i}'}").action,
         Child("child.yaml", CHILD, {"n": 3, "t": "3", "j": [1, "${inputs.i}"], "b": "${inputs.i}"})),
    ],
    ("a step", "write_file"): [(step_with("write_file: {path: f, content: ''}").action, WriteFile("f", ""))],
    ("a step", "commit_required"): [(step_with("shell: x, commit_required: true").commit_required, True)],
    ("a step", "failure_handler"): [(rule_of("exit_codes: 7").match, Match(codes=(7,)))],
    ("a step", "on_success"): [
        (
            step_with("shell: x, on_success: echo").on_success,
            SuccessActions(steps=(Step(name="on_success-1", action=Shell("echo"), origin=Origin(5, 29)),), origin=Origin(5, 17)),
        )
    ],
    ("a step, in a handler", "continue_on_error"): [
        (
            [r.then for r in repair_of("[{shell: h, continue_on_error: true}, i]").steps[0].rules],
            ["tolerate"],
        )
    ],
    ("a step", "max_attempts"): [(then_of("on_failure: h, max_attempts: 3"), ["retry"])],
    ("a step", "max_retries"): [(step_with("shell: x, on_failure: h, max_retries: 3").rules[0].limit, 3)],
    ("a step", "retry"): [
        (rule_with("retry: 2"), Rule(then="retry", text="retry 2", limit=2, routing=True, retries_anyway=True, origin=Origin(5, 17))),
        (step_with("shell: x, retry: 0").rules, ()),
    ],
    ("a step", "rerun_on_loss"): [
        (step_with("shell: x, rerun_on_loss: never").on_loss, "park"),
        (step_with("shell: x, rerun_on_loss: retry").on_loss, "retry"),
    ],
    ("a step", "runs_on"): [
        (step_with("shell: x, runs_on: gpu").runs_on, ("gpu",)),
        (step_with("shell: x, runs_on: [gpu, big, gpu]").runs_on, ("gpu", "big")),
    ],
    ("a step", "park"): [
        (rule_with("park: true"), Rule(then="park", text="park", origin=Origin(5, 17))),
        ([r.then for r in step_with("shell: x, park: true, retry: 1").rules], ["retry", "park"]),
    ],
    ("a step", "on_failure"): [
        (rule_with("on_failure: true"), Rule(then="tolerate", text="on_failure: tolerate", origin=Origin(5, 17))),
        (step_with("shell: x, on_failure: false").rules, ()),
        (step_with("shell: x, on_failure: null").rules, ()),
        ([r.then for r in step_with("shell: x, on_failure: true, retry: 1").rules], ["retry", "tolerate"]),
        (then_of("on_failure: h"), ["recovered"]),
        (then_of("on_failure: [h, {shell: i}]"), ["recovered"]),
    ],
    ("a step", "on_fail"): [(rule_with("on_fail: true").then, "tolerate")],
    ("a step", "fail_workflow"): [
        (rule_with("fail_workflow: false"), Rule(then="tolerate", text="fail_workflow: false", origin=Origin(5, 17))),
        (step_with("shell: x, fail_workflow: true").rules, ()),
    ],
    ("a step", "handler_failure_fatal"): [
        (rule_with("on_failure: h, handler_failure_fatal: true").repair.on_failure, "fail"),
        (rule_with("on_failure: h").repair.on_failure, "next"),
    ],
    ("retry", "max"): [(rule_with("retry: {max: 7}").limit, 7)],
    ("retry", "backoff"): [
        (wait_with("initial: 1s"), Backoff("fixed", 1.0)),
        (rule_with("retry: {max: 1, backoff: 100ms}").wait, Backoff("fixed", 0.1)),
    ],
    ("backoff", "type"): [
        (wait_with(f"initial: 2, type: {kind}"), Backoff(kind, 2.0, 2.0 if kind == "linear" else 0.0))  # type: ignore[arg-type]
        for kind in ("fixed", "linear", "exponential", "fibonacci")
    ],
    ("backoff", "mode"): [(wait_with("initial: 2, mode: fibonacci"), Backoff("fibonacci", 2.0))],
    ("backoff", "initial"): [(wait_with("initial: 500ms"), Backoff("fixed", 0.5))],
    ("backoff", "delay"): [(wait_with("delay: 3"), Backoff("fixed", 3.0))],
    ("backoff", "delay_ms"): [(wait_with("delay_ms: 250"), Backoff("fixed", 0.25))],
    ("backoff", "increment"): [(wait_with("type: linear, initial: 1, increment: 5"), Backoff("linear", 1.0, 5.0))],
    ("backoff", "multiplier"): [
        (wait_with("type: exponential, initial: 1, multiplier: 3"), Backoff("exponential", 1.0, multiplier=3.0))
    ],
    ("backoff", "max_delay"): [(wait_with("initial: 1, max_delay: 1m"), Backoff("fixed", 1.0, delay_seconds_max=60.0))],
    ("backoff", "jitter"): [(wait_with("initial: 1, jitter: 0.15"), Backoff("fixed", 1.0, jitter=0.15))],
    ("next", "mode"): [
        (step_with("shell: x, next: {mode: first, arcs: [a]}").arcs_mode, "first"),
        (step_with("shell: x, next: {mode: all, arcs: [a]}").arcs_mode, "all"),
    ],
    ("next", "arcs"): [(step_with("shell: x, next: {arcs: [a, {step: end}]}").arcs, (Arc("a"), Arc("end")))],
    ("an arc", "step"): [(step_with("shell: x, next: [{step: a}]").arcs, (Arc("a"),))],
    ("an arc", "when"): [
        (
            step_with("shell: x, next: [{step: a, when: '${inputs.i}'}]").arcs,
            (Arc("a", Condition("${inputs.i}", "value", Origin(5, 40))),),
        )
    ],
    ("resources", "escalate"): [(escalating("").change, Escalation())],
    ("resources", "cpus"): [(step_with("shell: x, resources: {cpus: 0.5}").resources, Resources(cpus=0.5))],
    ("resources", "memory"): [
        (step_with("shell: x, resources: {memory: 4g}").resources, Resources(memory_bytes=4 * 1024**3, enforce=True)),
        (step_with("shell: x, resources: {memory: auto}").resources, Resources(memory_auto=True, enforce=True)),
    ],
    ("resources", "enforce"): [(step_with("shell: x, resources: {memory: 1k, enforce: false}").resources, Resources(memory_bytes=1024))],
    ("resources", "nodes"): [(step_with("shell: x, resources: {nodes: 2}").resources, Resources(nodes=2))],
    ("resources", "gpus"): [(step_with("shell: x, resources: {gpus: 1}").resources, Resources(gpus=1))],
    ("resources", "runtime"): [(step_with("shell: x, resources: {runtime: 1h}").resources, Resources(runtime_seconds=3600.0))],
    ("an input", "default"): [(workflow_with("inputs: {a: {default: x}}").inputs, {"a": Input(default="x")})],
    ("an input", "required"): [(workflow_with("inputs: {a: {required: true}}").inputs, {"a": Input(required=True)})],
    ("an input", "type"): [
        (workflow_with("inputs: {a: {type: number, default: 2}}").inputs, {"a": Input("number", 2)}),
        (workflow_with("inputs: {a: {type: bool, default: true}}").inputs, {"a": Input("bool", True)}),
        (workflow_with("inputs: {a: {type: json, default: {k: [1]}}}").inputs, {"a": Input("json", {"k": [1]})}),
        (workflow_with("inputs: {a: {type: text, default: 012}}").inputs, {"a": Input("text", "012")}),
    ],
    ("a secret", "env"): [(workflow_with("secrets: {T: {env: X}}").secrets, {"T": Secret(env="X")})],
    ("a secret", "file"): [(workflow_with("secrets: {T: {file: t.txt}}").secrets, {"T": Secret(file="t.txt")})],
    ("a secret", "optional"): [
        (workflow_with("secrets: {T: {env: X, optional: true}}").secrets, {"T": Secret(env="X", is_optional=True)}),
    ],
}  # fmt: skip


KEYS = [(table.name, key) for table in (*TABLES, *IR_TABLES) for key in table.keys.values()]


def test_every_key_has_a_case() -> None:
    """A key that is accepted without a test of its effect does not get in."""
    assert {(table, key.name) for table, key in KEYS} == CASES.keys()


@pytest.mark.parametrize("row", CASES, ids=".".join)
def test_key_changes_the_model(row: tuple[str, str]) -> None:
    """Each key does to the model what its row says."""
    for got, expected in CASES[row]:
        assert got == expected


def test_every_key_is_documented() -> None:
    """Each row says what the key takes and what it does, in one line."""
    for table, key in KEYS:
        assert key.kind, (table, key.name)
        assert key.doc.endswith("."), (table, key.name)
        assert "\n" not in key.doc, (table, key.name)


def test_the_model_of_a_whole_file() -> None:
    """List order, groups, `end` out of the list, and positions, in one file."""
    workflow = compiled(
        "resile: 1\n"
        "name: all\n"
        "steps:\n"
        "- id: end\n"
        "  shell: echo ${execution.status}\n"
        "- id: a\n"
        "  shell: x\n"
        "  capture: v\n"
        "- name: b\n"
        "  needs: a\n"
        "  shell: echo ${v}\n"
        "- shell: echo ${steps.a.output}\n"
        "- id: d\n"
        '  needs: ["a|b"]\n'
        "  noop: true\n"
    )
    assert [(step.name, step.needs, step.origin) for step in workflow.steps] == [
        ("a", (), Origin(6, 7)),
        ("b", (Need(("a",)),), Origin(9, 9)),
        ("step-4", (Need(("b",), True),), Origin(12, 3)),
        ("d", (Need(("step-4",), True), Need(("a", "b"))), Origin(13, 7)),
    ]
    assert workflow.end == Step(name="end", action=Shell("echo ${execution.status}"), origin=Origin(4, 7))
    assert (workflow.file, workflow.folder, workflow.dialect) == ("flow.yaml", "/f", "native")


def test_a_file_without_end_gets_one() -> None:
    """The implicit `end` does nothing."""
    assert compiled("resile: 1\nsteps: {a: {shell: x}}").end == Step(name="end", action=Noop(), origin=Origin(1, 1))


def test_json_gives_the_same_model() -> None:
    """The same workflow in JSON differs only in positions."""
    yaml = compiled("resile: 1\nsteps:\n  a: {shell: x, retry: 2}\n  b: {shell: y, needs: [a]}\n")
    tree = {"resile": 1, "steps": {"a": {"shell": "x", "retry": 2}, "b": {"shell": "y", "needs": ["a"]}}}
    json = compiled(msgspec.json.encode(tree).decode())
    assert [(s.name, s.action, s.needs) for s in json.steps] == [(s.name, s.action, s.needs) for s in yaml.steps]
