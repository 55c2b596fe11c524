"""What each key does to the model that says a field of it as it is; test_native_keys compares."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from typing import Any

from resile.model.builtin_actions import (
    Ask,
    Case,
    Check,
    Collect,
    Computed,
    Effect,
    Log,
    Memory,
    MemoryFile,
    Script,
    Transform,
)
from resile.model.cluster import Cluster, Scheduler
from resile.model.rules import Backoff, Escalation, Match, Transition
from resile.model.workflow import (
    Agent,
    Arc,
    Capture,
    Child,
    Condition,
    FanOut,
    Function,
    Given,
    Http,
    Input,
    Need,
    Python,
    Query,
    Repair,
    Rule,
    Shell,
    Step,
    SuccessActions,
)
from tests.dialects.compiling import child_with, compiled, on_success_with, step_with, wait_with, workflow_with

Cases = dict[tuple[str, str], list[tuple[object, object]]]


def action_with(keys: str) -> object:
    """What a step with these keys does."""
    return step_with(keys).action


def written(keys: str) -> Rule:
    """The one rule that a step `s` has, after a step `a` and beside a remedy `f`."""
    steps = f"  a: {{shell: x}}\n  f: {{shell: x}}\n  s: {{shell: x, needs: [a], ir: {{rules: [{{{keys}}}]}}}}\n"
    (rule,) = compiled(f"resile: 1\nsteps:\n{steps}").steps[2].rules
    return rule


def repair(keys: str) -> Repair | None:
    """What runs before that rule retries."""
    return written(f"then: retry, {keys}").repair


def matching(keys: str) -> Match:
    """What that rule answers."""
    return written(f"then: retry, {keys}").match


def asked(keys: str) -> tuple[str, str, int]:
    """The condition of a step: its source, its language, and how many stand besides."""
    when = step_with(f"shell: x, ir: {{cases: [{{when: q}}]}}, when: {{{keys}}}").when
    assert when is not None
    return when.source, when.language, len(when.besides)


def fan(keys: str, source: str = "[1]") -> FanOut:
    """A map with these keys."""
    action = step_with(f"map: {{input: {source}, {keys} steps: [{{shell: x}}]}}, needs: a").action
    assert isinstance(action, FanOut)
    return action


def finishing(keys: str) -> SuccessActions:
    """What follows the items of a `foreach`."""
    text = f"resile: 1\nsteps:\n  z: {{shell: x}}\n  a: {{shell: x, needs: z, foreach: true, on_finish: {{{keys}}}}}\n"
    actions = compiled(text + "  b: {shell: x, needs: a}\n").steps[2].on_success
    assert actions is not None
    return actions


def raised() -> Match:
    """What a rule for exceptions answers, in a file that has functions."""
    handler = "failure_handlers: {h: {rules: [{types: OSError}]}}"
    call = "steps: [{ir: {function: {module: m, name: f}}, failure_handler: h}]"
    return compiled(f"resile: 1\n{handler}\n{call}\n").steps[0].rules[0].match


def of_case(keys: str) -> tuple[Case, ...]:
    """The cases of a step, of which there is one."""
    return step_with(f"shell: x, ir: {{cases: [{{{keys}}}]}}").cases


def transformed(keys: str) -> Transform | None:
    """What becomes of the output of a step."""
    return step_with(f"shell: x, ir: {{transform: {{{keys}}}}}").transform


def checked(keys: str) -> tuple[Check, ...]:
    """What the output of a step must meet, with all that is needed besides these keys."""
    given: dict[str, str] = {"name": "n", "code": "c", "must": "true"}
    rest = "".join(f", {word}: {value}" for word, value in given.items() if f"{word}:" not in keys)
    return step_with(f"shell: x, ir: {{checks: [{{{keys}{rest}}}]}}").checks


def stored(keys: str) -> MemoryFile | None:
    """The file of a workflow's memory."""
    return workflow_with(f"ir: {{memory_file: {keys}}}").memory_file


def inline() -> Step:
    """A step that holds the workflow that it calls."""
    return step_with("workflow: {name: w, steps: {q: {shell: y}}}, result: q")


def inherited(keys: str) -> dict[str, str]:
    """The environment of a command in the handler of a step that has one."""
    found = (
        step_with(f"shell: x, env: {{A: b}}, on_failure: {{commands: [{{shell: h, {keys}}}], max_attempts: 2}}")
        .rules[0]
        .repair
    )
    assert found is not None
    return found.steps[0].env


def called(keys: str) -> list[bool]:
    """Whether each of two steps runs only when it is called for; the first calls for the second."""
    text = f"resile: 1\nsteps:\n  a: {{shell: x, on_failure: {{run: f}}}}\n  f: {{shell: x, {keys}}}\n"
    return [step.called_only for step in compiled(text).steps]


def in_items() -> tuple[Any, ...]:
    """Whether the steps of an item wait for the items before."""
    action = step_with("map: {input: [1], steps: [{shell: x}, {shell: y, ir: {in_order: true}}]}").action
    assert isinstance(action, FanOut)
    return tuple(step.in_order for step in action.steps)


def called_as(keys: str) -> Child:
    """A workflow file that another system calls in this way."""
    action = child_with(f"ir: {{called: {{{keys}}}}}").action
    assert isinstance(action, Child)
    return action


def taken_in() -> Child:
    """The workflow of a step that another file takes in, with an input that is handed over as it is."""
    source = "ir: {source: {file: other.yaml, folder: /g}}"
    inner = f"{{inputs: {{i: {{type: text, required: true}}}}, steps: {{q: {{shell: y}}}}, {source}}}"
    action = step_with(f"workflow: {inner}, ir: {{given: {{i: 5}}}}").action
    assert isinstance(action, Child)
    return action


def jumps(keys: str) -> list[str]:
    """Where a step goes back to after a failure, if the step of that name does come before it."""
    rule = f"{{then: goto, goto: f, {keys}}}"
    steps = f"  f: {{shell: x}}\n  s: {{shell: x, ir: {{rules: [{rule}]}}}}\n"
    return [rule.target for rule in compiled(f"resile: 1\nsteps:\n{steps}").steps[1].rules]


def over_items(first: str, last: str) -> FanOut:
    """A fan-out of two steps for the items of a list; these are the keys of `ir` of the list and of the last step."""
    rules = f"{last}rules: [{{then: tolerate}}]"
    steps = f"  l: {{shell: x, foreach: true, ir: {{{first}}}}}\n  b: {{shell: x, needs: l}}\n"
    (_, action) = compiled(f"resile: 1\nsteps:\n{steps}  c: {{shell: x, needs: b, ir: {{{rules}}}}}\n").steps
    assert isinstance(action.action, FanOut)
    return action.action


_CHILD = inline().action
assert isinstance(_CHILD, Child)
_CALLED = called_as("path: kin/inner, takes: [t, more]")

MODEL_CASES: Cases = {
    ("the workflow", "ir"): [(workflow_with("ir: {}"), workflow_with("")), (workflow_with("ir: {templates: jinja}").templates, "jinja")],
    ("a step", "ir"): [(action_with("ir: {log: hi}, needs: a"), Log("hi")), (action_with("shell: x, ir: {}"), Shell("x"))],
    ("ir, of the workflow", "templates"): [(workflow_with("ir: {templates: liquid}").templates, "liquid"), (workflow_with("").templates, "dollar")],
    ("ir, of the workflow", "failure_key"): [(workflow_with("ir: {failure_key: on_fail}").failure_key, "on_fail")],
    ("ir, of the workflow", "condition_errors"): [
        (workflow_with("ir: {condition_errors: skip}").condition_errors, "skip"), (workflow_with("").condition_errors, "fail")
    ],
    ("ir, of the workflow", "memory_file"): [(stored("m.json"), MemoryFile("m.json"))],
    ("ir, of the workflow", "memory_namespace"): [(workflow_with("ir: {memory_namespace: n}").memory_namespace, "n")],
    ("ir, of the workflow", "cluster"): [
        (workflow_with("ir: {cluster: {schedulers: {b: {walltime_seconds: 60, nodes: 2}}}}").cluster, Cluster({"b": Scheduler(60, 2)}))
    ],
    ("ir, of the workflow", "source"): [(taken_in().path, "other.yaml"), (_CHILD.path, "")],
    ("source", "file"): [(taken_in().workflow.file, "other.yaml")],
    ("source", "folder"): [(taken_in().workflow.folder, "/g")],
    ("ir, of a step", "given"): [(taken_in().inputs, {"i": 5})],
    ("a step", "result"): [(_CHILD.result, "q"), ([step.name for step in _CHILD.workflow.steps], ["q"]), (_CHILD.workflow.name, "w")],
    ("ir, of a step", "shares"): [(getattr(action_with("workflow: {steps: {q: {noop: true}}}, ir: {shares: true}"), "shares", None), True), (_CHILD.shares, False)],
    ("ir, of a step", "called"): [(_CALLED.inputs, {}), (_CALLED.workflow.name, "inner")],
    ("called", "path"): [(_CALLED.path, "kin/inner"), (called_as("takes: []").path, "child.yaml")],
    ("called", "takes"): [
        (list(_CALLED.workflow.inputs), ["t", "n", "b", "j", "more"]),
        (_CALLED.workflow.inputs["more"], Input(kind="json")),
        (list(called_as("path: p").workflow.inputs), ["t", "n", "b", "j"]),
    ],
    ("ir, of a step", "script"): [(action_with("ir: {script: return 1}"), Script("return 1"))],
    ("ir, of a step", "log"): [(action_with("ir: {log: hi}"), Log("hi"))],
    ("ir, of a step", "memory"): [(action_with("ir: {memory: {operation: list}}"), Memory("list"))],
    ("a step", "ask"): [
        (action_with("ask: go on?"), Ask("go on?")),
        ([rule.then for rule in step_with("ask: go on?").rules], ["park"]),
    ],
    ("ir, of a step", "collect"): [
        (action_with("ir: {collect: {a: '1', b: {code: return a}}}"), Collect((Computed("a", "1"), Computed("b", code="return a"))))
    ],
    ("ir, of a step", "function"): [
        (action_with("needs: a, ir: {function: {file: f.py, name: f, args: [[value, {a: 1}]], kwargs: {k: [list, [[value, 2]]]}, workers: threads}}"),
         Function("f", "", "f.py", (Given("value", {"a": 1}),), {"k": Given("list", [["value", 2]])}, "threads")),
        (step_with("ir: {function: {module: m, name: f}}").capture, (Capture("s", "value"),)),
    ],
    ("ir, of a step", "query"): [
        (action_with("ir: {query: {engine: duckdb, statements: select 1, key: [k]}}"), Query("duckdb", "select 1", key=("k",)))
    ],
    ("a step", "stdin"): [(action_with("shell: cat, stdin: hi"), Shell("cat", stdin="hi"))],
    ("ir, of a step", "inherit"): [(inherited("ir: {inherit: false}"), {}), (inherited("ir: {inherit: true}"), {"A": "b"})],
    ("ir, of a step", "transform"): [(transformed("parse: text"), Transform("text"))],
    ("ir, of a step", "checks"): [([check.name for check in checked("name: q")], ["q"])],
    ("ir, of a step", "args"): [(step_with("shell: x, ir: {args: {q: [1]}}").args, {"q": [1]})],
    ("ir, of a step", "aliases"): [(step_with("shell: x, ir: {aliases: {q: a}}").aliases, {"q": "a"})],
    ("ir, of a step", "tags"): [(step_with("shell: x, ir: {tags: [q, r]}").tags, ("q", "r"))],
    ("ir, of a step", "events"): [(step_with("shell: x, ir: {events: q}").events, ("q",))],
    ("ir, of a step", "group"): [(step_with("shell: x, ir: {group: q}").group, "q")],
    ("ir, of a step", "cases"): [(of_case("when: q"), (Case("q"),)), (of_case("when: q, on_failure: true"), (Case("q", True),))],
    ("ir, of a step", "effects"): [
        (step_with("shell: x, ir: {effects: [{kind: set, name: q, value: 1}]}").effects, (Effect(kind="set", name="q", value=1),))
    ],
    ("ir, of a step", "in_order"): [(in_items(), (False, True))],
    ("ir, of a step", "copies"): [
        ([step.called_only for step in compiled("resile: 1\nsteps: {a: {shell: x, ir: {copies: f}}, f: {shell: x}}\n").steps], [False, True]),
    ],
    ("ir, of a step", "accepts_in_items"): [
        (over_items("", "accepts_in_items: true, ").steps[1].rules[0].then, "recovered"),
        (over_items("", "").steps[1].rules[0].then, "tolerate"),
    ],
    ("ir, of a step", "in_turn"): [(over_items("in_turn: true", "").max_parallel, 1), (over_items("", "").max_parallel, None)],
    ("a rule of a step", "by_default"): [(jumps("by_default: goto"), [])],
    ("ir, of a step", "called_only"): [
        (called("ir: {called_only: false}"), [False, False]),
        (called("timeout: 1s"), [False, True]),
        (step_with("shell: x, ir: {called_only: true}").called_only, True),
    ],
    ("ir, of a step", "rules"): [
        ([rule.then for rule in step_with("shell: x, retry: 1, ir: {rules: [{then: park}]}").rules], ["park", "retry"]),
        ([rule.text for rule in compiled(
            "resile: 1\nfailure_handlers: {h: {rules: [{exit_codes: 7}, {then: fail}]}}\n"
            "steps: [{shell: x, ir: {rules: [{then: retry}, h, {then: park}]}}]\n").steps[0].rules],
         ["retry", "failure_handler h: exit_codes 7", "fail", "park"]),
    ],
    ("map", "filter_bare"): [(fan("filter: a, filter_bare: true,").source.filter_bare, True)],
    ("map", "scope"): [(fan("scope: q,").scope, "q")],
    ("map", "item_name"): [(fan("item_name: q,").item_name, "q")],
    ("input", "path"): [(fan("", "{path: a b}").source.path, "a b")],
    ("input", "command"): [(fan("", "{command: ls}").source.command, "ls")],
    ("input", "template"): [(fan("", "{template: '{{ q }}'}").source.template, "{{ q }}")],
    ("backoff", "jitter_of"): [(wait_with("initial: 1s, jitter: 1, jitter_of: initial"), Backoff("fixed", 1.0, jitter=1.0, jitter_of="initial"))],
    ("on_success", "commands"): [([step.action for step in on_success_with("commands: [y], run: f").steps], [Shell("y")])],
    ("on_success", "cost"): [(on_success_with("goto: a, cost: 3").cost, 3), (on_success_with("goto: a").cost, 1)],
    ("on_success", "run_cost"): [(on_success_with("run: f, run_cost: 2").run_cost, 2)],
    ("on_finish", "commands"): [([step.action for step in finishing("commands: y").steps], [Shell("y")])],
    ("on_finish", "cost"): [(finishing("goto: z, cost: 3").cost, 3)],
    ("on_finish", "run_cost"): [(finishing("commands: y, run_cost: 2").run_cost, 2)],
    ("a rule of a step", "then"): [(written("then: park").then, "park")],
    ("a rule of a step", "text"): [(written("then: park, text: q").text, "q"), (written("then: park").text, "park")],
    ("a rule of a step", "exit_codes"): [(matching("exit_codes: [3, 4]"), Match(codes=(3, 4)))],
    ("a rule of a step", "except_exit_codes"): [(matching("except_exit_codes: 3"), Match(codes_excluded=(3,)))],
    ("a rule of a step", "signals"): [(matching("signals: KILL"), Match(signals=(9,)))],
    ("a rule of a step", "kinds"): [(matching("kinds: [oom, canceled]"), Match(kinds=("oom", "canceled")))],
    ("a rule of a step", "pattern"): [(matching("pattern: q+"), Match(pattern="q+"))],
    ("a rule of a step", "types"): [
        (step_with("ir: {function: {module: m, name: f}, rules: [{then: park, types: [E]}]}").rules[0].match, Match(types=("E",)))
    ],
    ("a rule of a step", "when"): [((written("then: park, when: {code: q}").when or Condition("")).source, "q")],
    ("a rule of a step", "limit_of"): [(written("then: retry, limit_of: job").limit_of, "job")],
    ("a rule of a step", "limit"): [(written("then: retry, limit: 7").limit, 7), (written("then: retry").limit, 1)],
    ("a rule of a step", "backoff"): [(written("then: retry, backoff: 2s").wait, Backoff("fixed", 2.0))],
    ("a rule of a step", "wait"): [
        (written("then: retry, wait: {kind: exponential, initial_seconds: 2, multiplier: 0.5}").wait, Backoff("exponential", 2.0, multiplier=0.5))
    ],
    ("a rule of a step", "commands"): [([step.action for step in (repair("commands: [y]") or Repair()).steps], [Shell("y")])],
    ("a rule of a step", "run"): [(repair("run: [f]"), Repair(calls=("f",)))],
    ("a rule of a step", "run_js"): [(repair("run_js: '[]'"), Repair(calls_js="[]"))],
    ("a rule of a step", "goto"): [(written("then: goto, goto: a").target, "a")],
    ("a rule of a step", "goto_js"): [(written("then: goto, goto_js: q").target_js, "q")],
    ("a rule of a step", "transitions"): [
        (written("then: goto, transitions: [{when: q, to: a}]").transitions, (Transition("q", "a"),))
    ],
    ("a rule of a step", "timeout"): [(repair("run: [f], timeout: 3s"), Repair(calls=("f",), timeout_seconds=3.0))],
    ("a rule of a step", "on_repair_failure"): [(repair("on_repair_failure: ignore"), Repair(on_failure="ignore")), (repair("limit: 2"), None)],
    ("a rule of a step", "escalate"): [(written("then: retry, escalate: {}").change, Escalation())],
    ("a rule of a step", "cost"): [(written("then: retry, cost: 2").cost, 2)],
    ("a rule of a step", "routing"): [(written("then: retry, routing: true").routing, True)],
    ("a rule of a step", "retries_anyway"): [(written("then: retry, run_js: q, retries_anyway: true").retries_anyway, True)],
    ("a rule of a step", "halts"): [(written("then: fail, halts: true").halts, True), (written("then: retry, run: f, on_repair_failure: fail, halts: true").halts, True)],
    ("escalate, in a rule", "factor"): [(written("then: retry, escalate: {factor: 3}").change, Escalation(3.0))],
    ("escalate, in a rule", "memory_max"): [(written("then: retry, escalate: {memory_max: 1k}").change, Escalation(memory_bytes_max=1024))],
    ("escalate, in a rule", "runtime_max"): [
        (written("then: retry, escalate: {runtime_max: 9s}").change, Escalation(runtime_seconds_max=9.0))
    ],
    ("a need", "any_of"): [(step_with("shell: x, needs: {any_of: a}").needs, (Need(("a",)),))],
    ("a need", "failure_satisfies"): [(step_with("shell: x, needs: [{any_of: [a], failure_satisfies: true}]").needs, (Need(("a",), False, True),))],
    ("a need", "skip_satisfies"): [(step_with("shell: x, needs: [{any_of: [a], skip_satisfies: true}]").needs, (Need(("a",), True),))],
    ("an arc", "args"): [(step_with("shell: x, next: [{step: a, args: {q: 1}}]").arcs, (Arc("a", None, {"q": 1}),))],
    ("a condition", "value"): [(asked("value: 'true'"), ("true", "value", 0))],
    ("a condition", "js"): [(asked("js: 'true'"), ("true", "js", 0))],
    ("a condition", "code"): [(asked("code: return q"), ("return q", "code", 0))],
    ("a condition", "jinja"): [(asked("jinja: '{{ q }}'"), ("{{ q }}", "jinja", 0))],
    ("a condition", "case"): [(asked("case: 0"), ("0", "case", 0))],
    ("a condition", "none"): [(asked("none: true, besides: [{code: q}]"), ("", "none", 1))],
    ("a condition", "besides"): [(asked("code: q, besides: [{code: r}, true]"), ("q", "code", 2))],
    ("script", "code"): [(action_with("ir: {script: {code: q}}"), Script("q"))],
    ("script", "namespace"): [(action_with("ir: {script: {code: q, namespace: n}}"), Script("q", "n"))],
    ("log", "message"): [(action_with("ir: {log: {message: q}}"), Log("q"))],
    ("log", "level"): [(action_with("ir: {log: {message: q, level: warn}}"), Log("q", "warn"))],
    ("log", "with_outputs"): [(action_with("ir: {log: {message: q, with_outputs: true}}"), Log("q", with_outputs=True))],
    ("memory", "operation"): [(action_with("ir: {memory: {operation: clear}}"), Memory("clear"))],
    ("memory", "key"): [(action_with("ir: {memory: {operation: get, key: k}}"), Memory("get", "k"))],
    ("memory", "namespace"): [(action_with("ir: {memory: {operation: list, namespace: n}}"), Memory("list", namespace="n"))],
    ("memory", "value"): [(action_with("ir: {memory: {operation: set, key: k, value: [1]}}"), Memory("set", "k", value=[1]))],
    ("memory", "code"): [(action_with("ir: {memory: {operation: append, key: k, code: q}}"), Memory("append", "k", code="q"))],
    ("ask", "question"): [(action_with("ask: {question: q}"), Ask("q"))],
    ("ask", "default"): [(action_with("ask: {question: q, default: y}"), Ask("q", "y"))],
    ("a collected value", "code"): [(action_with("ir: {collect: {a: {code: q}}}"), Collect((Computed("a", code="q"),)))],
    ("transform", "parse"): [(transformed("parse: json"), Transform("json"))],
    ("transform", "template"): [(transformed("template: q"), Transform(template="q"))],
    ("transform", "code"): [(transformed("code: q"), Transform(code="q"))],
    ("transform", "as_items"): [(transformed("as_items: true"), Transform(as_items=True))],
    ("transform", "schema_name"): [(transformed("schema_name: code-review"), Transform(schema_name="code-review"))],
    ("transform", "first"): [(transformed("first: {code: q}"), Transform(first=Transform(code="q")))],
    ("transform", "schema"): [(transformed("schema: {type: object}"), Transform(schema={"type": "object"}))],
    ("a check", "name"): [(checked("name: q"), (Check(name="q", code="c", must=True),))],
    ("a check", "code"): [(checked("code: q"), (Check(name="n", code="q", must=True),))],
    ("a check", "must"): [(checked("must: false"), (Check(name="n", code="c", must=False),))],
    ("a check", "effect"): [(checked("effect: halt"), (Check(name="n", code="c", must=True, effect="halt"),))],
    ("a check", "message"): [(checked("message: q"), (Check(name="n", code="c", must=True, message="q"),))],
    ("memory_file", "path"): [(stored("{path: m.json}"), MemoryFile("m.json"))],
    ("memory_file", "load"): [(stored("{path: m.json, load: false}"), MemoryFile("m.json", load=False))],
    ("memory_file", "save"): [(stored("{path: m.json, save: false}"), MemoryFile("m.json", save=False))],
    ("http", "params"): [(action_with("http: {url: 'http://h', params: {q: 1}}"), Http("http://h", params={"q": 1}))],
    ("http", "form"): [(action_with("http: {url: 'http://h', form: {q: 1}}"), Http("http://h", "POST", form={"q": 1}))],
    ("http", "envelope"): [(action_with("http: {url: 'http://h', envelope: true}"), Http("http://h", envelope=True))],
    ("http", "save_to"): [(action_with("http: {url: 'http://h', save_to: f}"), Http("http://h", save_to="f"))],
    ("http", "verify"): [(action_with("http: {url: 'http://h', verify: false}"), Http("http://h", is_verified=False))],
    ("python", "names"): [(action_with("python: {source: q, names: [a]}"), Python("q", names=("a",)))],
    ("python", "places"): [(action_with("python: {source: q, places: {a: 1}}"), Python("q", places={"a": 1}))],
    ("python", "status_fails"): [(action_with("python: {source: q, status_fails: false}"), Python("q", status_fails=False))],
    ("agent, of a step", "prompt"): [(action_with("agent: {prompt: q}"), Agent("q"))],
    ("agent, of a step", "prompt_by"): [(action_with("agent: {prompt: q, prompt_by: stdin}"), Agent("q", prompt_by="stdin"))],
    ("agent, of a step", "command"): [(action_with("agent: {prompt: q, command: [./a, -x]}"), Agent("q", ("./a", "-x")))],
    ("agent, of a step", "max_cost"): [(action_with("agent: {prompt: q, max_cost: 2}"), Agent("q", cost_max=2.0))],
    ("agent, of a step", "max_tokens"): [(action_with("agent: {prompt: q, max_tokens: 2}"), Agent("q", tokens_max=2))],
    ("a rule", "types"): [(raised(), Match(types=("OSError",)))],
    ("an input", "schema"): [
        (workflow_with("inputs: {a: {type: json, schema: {type: object}}}").inputs, {"a": Input("json", schema={"type": "object"})})
    ],
}  # fmt: skip
