"""Every key of a Visor file changes what runs, is refused by name, or is a label that the user is told of."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.dialects.reading.key_tables import LABEL, REFUSED, Key, Table
from resile.dialects.visor import keys as visor_keys
from resile.dialects.visor.keys import COMMON, STEPS, TABLES, TYPES, TYPES_REFUSED
from resile.model.builtin_actions import Ask, Check, Collect, Computed, Log, Memory, MemoryFile, Script, Transform
from resile.model.rules import Backoff, Match, Transition
from resile.model.workflow import (
    Agent,
    Capture,
    Child,
    Condition,
    FanOut,
    Http,
    Input,
    Need,
    Noop,
    Repair,
    Rule,
    Shell,
    Step,
    SuccessActions,
    Workflow,
)
from tests.dialects.visor.flows import compiled, errors_of, step_with, workflow_of
from tests.dialects.visor.tool_keys import TOOL_CASES

COMMAND = "type: command, exec: x"
PART = "workflows: {w: {inputs: [{name: q, default: 1}], outputs: [{name: o, value: '{{ inputs.q }}'}], steps: {z: {type: noop}}}}"
TOOL = "tools: {t: {exec: 'echo {{ args.n }}'%s}}"


def file_with(keys: str, step: str = "type: noop") -> Workflow:
    """A file of one step with these keys."""
    return workflow_of(f"version: '1'\n{keys}\nsteps: {{s: {{{step}}}}}\n")


def command(keys: str, more: str = "") -> Step:
    """A command with these keys."""
    return step_with(f"{COMMAND}, {keys}", more)


def transform(keys: str) -> Transform:
    """How the output of a command with these keys becomes its value."""
    made = command(keys).transform
    assert made is not None
    return made


def checks(keys: str) -> tuple[Check, ...]:
    """What the output of a command with these keys must meet."""
    return command(keys).checks


def rule(keys: str, beside: str = "") -> Rule:
    """The one rule of a command with this `on_fail`."""
    (found,) = command(f"depends_on: a, {beside}on_fail: {{{keys}}}").rules
    return found


def success(keys: str) -> SuccessActions:
    """What follows the success of a command."""
    actions = command(f"depends_on: a, on_success: {{{keys}}}").on_success
    assert actions is not None
    return actions


def finish(keys: str) -> SuccessActions:
    """What follows the items of a producer."""
    text = f"version: '1'\nsteps:\n  a: {{type: noop}}\n  f: {{type: noop}}\n  s: {{{COMMAND}, depends_on: a, forEach: true, on_finish: {{{keys}}}}}\n  p: {{{COMMAND}, depends_on: s}}\n"
    actions = next(step for step in workflow_of(text).steps if isinstance(step.action, FanOut)).on_success
    assert actions is not None
    return actions


def before(call: str, more: str = "") -> Step:
    """The step that runs before a command because of this call in `on_init`."""
    text = f"version: '1'\n{more}\nsteps:\n  a: {{{COMMAND}}}\n  s: {{{COMMAND}, on_init: {{run: [{call}]}}}}\n"
    return next(step for step in workflow_of(text).steps if step.name.startswith("s."))


def agent(keys: str, more: str = "") -> Any:
    """What an agent step with these keys does."""
    return step_with(f"type: ai, {keys}", more).action


def options(keys: str) -> tuple[str, ...]:
    """The options of an agent with these settings."""
    action = agent(f"prompt: hi, ai: {{{keys}}}")
    assert isinstance(action, Agent)
    return action.command[2:]


def asking(servers: dict[str, Any]) -> tuple[str, ...]:
    """The command of an agent that is told of these servers."""
    return ("claude", "-p", "--mcp-config", msgspec.json.encode({"mcpServers": servers}).decode())


def memory(keys: str) -> Any:
    """What a memory step with these keys does."""
    return step_with(f"type: memory, {keys}").action


def child(keys: str) -> Child:
    """The workflow that a step with these keys runs."""
    action = step_with(f"type: workflow, {keys}", PART).action
    assert isinstance(action, Child)
    return action


def part(keys: str) -> Workflow:
    """A workflow that has these keys, as a step runs it."""
    action = step_with(
        "type: workflow, workflow: w", f"workflows: {{w: {{steps: {{z: {{type: noop}}}}, {keys}}}}}"
    ).action
    assert isinstance(action, Child)
    return action.workflow


def retried(keys: str) -> Backoff | None:
    """The waits of a retry with this backoff."""
    return rule(f"retry: {{max: 1, backoff: {{{keys}}}}}").wait


def condition(keys: str) -> Check:
    """A failure condition with these keys."""
    (found,) = checks(f"failure_conditions: {{c: {{{keys}}}}}")
    return found


def asked(keys: str) -> list[str]:
    """What must hold before a command with these keys."""
    when = command(keys).when
    assert when is not None
    return [when.source, *(besides.source for besides in when.besides)]


CASES: dict[tuple[str, str], list[tuple[object, object]]] = {
    ("the file", "version"): [(errors_of("steps: {a: {type: noop}}"), ["the file has no `version`"])],
    ("the file", "name"): [(file_with("name: Nice").name, "Nice"), (file_with("").name, "flow")],
    ("the file", "id"): [(file_with("id: nice").name, "nice")],
    ("the file", "steps"): [([step.name for step in file_with("").steps], ["s"])],
    ("the file", "checks"): [([step.name for step in workflow_of("version: '1'\nchecks: {c: {type: noop}}").steps], ["c"])],
    ("the file", "routing"): [(file_with("routing: {max_loops: 3}").loops_max, 3)],
    ("the file", "fail_if"): [(file_with("fail_if: bad", COMMAND).steps[0].checks, (Check(name="global_fail_if", code="bad", must=False, effect="remark"),))],
    ("the file", "failure_conditions"): [
        (file_with("failure_conditions: {c: bad}", COMMAND).steps[0].checks, (Check(name="c", code="bad", must=False),)),
        (file_with("failure_conditions: {c: bad}", f"{COMMAND}, failure_conditions: {{c: own}}").steps[0].checks, (Check(name="c", code="own", must=False),)),
    ],
    ("the file", "max_parallelism"): [(file_with("max_parallelism: 3").max_parallel, 3)],
    ("the file", "fail_fast"): [(file_with("fail_fast: true").steps[0].critical, True)],
    ("the file", "env"): [(file_with("env: {A: 1}").env, {"A": "1"})],
    ("the file", "memory"): [(file_with("memory: {namespace: n}", "type: memory, operation: list").steps[0].action, Memory("list", namespace="n"))],
    ("the file", "extends"): [(errors_of("version: '1'\nextends: default\nsteps: {a: {type: noop}}"), ["`default` is a file that Visor brings along"])],
    ("the file", "include"): [(errors_of("version: '1'\ninclude: 'https://x/y'\nsteps: {a: {type: noop}}"), ["`https://x/y` is not a local file"])],
    ("the file", "imports"): [(errors_of("version: '1'\nimports: nobody.yaml\nsteps: {a: {type: noop}}"), ["`nobody.yaml` can't be read: No such file or directory"])],
    ("the file", "workflows"): [(child("workflow: w").workflow.name, "w")],
    ("the file", "tools"): [(before("{tool: t}", TOOL % "").action, Shell("echo {{ args.n }}"))],
    ("the file", "inputs"): [(file_with("inputs: [{name: q, default: 5}]").inputs, {"q": Input(default=5)}), (file_with("inputs: {q: {default: 5}}").inputs, {"q": Input(default=5)})],
    ("the file", "outputs"): [(file_with("outputs: [{name: o, value: x}]").end.action, Collect((Computed("o", "x"),)))],
    ("the file", "output_mapping"): [(file_with("output_mapping: {o: x}").end.action, Collect((Computed("o", "x"),)))],
    ("the file", "tag_filter"): [
        (file_with("tag_filter: {include: [a, b], exclude: [c]}").inputs, {"tags": Input(default="a,b"), "exclude_tags": Input(default="c")}),
    ],
    ("the file", "ai_provider"): [(compiled("version: '1'\nai_provider: google\nsteps: {s: {prompt: hi}}")[1], ["warning: `claude -p` is asked, not google"])],
    ("the file", "ai_mcp_servers"): [(agent("prompt: hi, ai: {mcpServers: {t: {url: u}}}", "ai_mcp_servers: {f: {command: x}, t: {command: y}}"), Agent("hi", asking({"f": {"command": "x"}, "t": {"url": "u"}})))],
    ("the file", "ai_model"): [(agent("prompt: hi", "ai_model: opus"), Agent("hi", ("claude", "-p", "--model", "opus")))],
    ("a step", "type"): [(step_with("type: noop").action, Noop()), (step_with("prompt: hi").action, Agent("hi"))],
    ("a step", "depends_on"): [(command('depends_on: [a, "a|f"]').needs, (Need(("a",)), Need(("a", "f")))), (command("depends_on: a").needs, (Need(("a",)),))],
    ("a step", "if"): [(asked("if: x > 1"), ["x > 1"])],
    ("a step", "assume"): [(asked("if: b, assume: [a, true]"), ["a", "true", "b"])],
    ("a step", "guarantee"): [(checks("guarantee: [ok, 'yes']"), (Check(name="guarantee", code="ok", must=True), Check(name="guarantee", code="yes", must=True)))],
    ("a step", "fail_if"): [(checks("fail_if: bad"), (Check(name="fail_if", code="bad", must=False),))],
    ("a step", "failure_conditions"): [(checks("failure_conditions: {c: bad}"), (Check(name="c", code="bad", must=False),))],
    ("a step", "continue_on_failure"): [([found.then for found in command("continue_on_failure: true").rules], ["tolerate"])],
    ("a step", "criticality"): [
        ([found.then for found in command("criticality: info").rules], ["tolerate"]),
        (rule("retry: {max: 1}", "criticality: external, ").match, Match(kinds=("exit", "signal", "timeout", "oom", "lost", "spawn"))),
        (rule("retry: {max: 1}", "criticality: policy, ").match, Match()),
    ],
    ("a step", "on"): [(command("on: [pr_opened]").events, ("pr_opened",)), (file_with("", f"{COMMAND}, on: manual").inputs, {"event": Input(default="all")}), (asked("on: []"), ["false"])],
    ("a step", "tags"): [(command("tags: [a]").tags, ("a",)), (sorted(file_with("", f"{COMMAND}, tags: [a]").inputs), ["exclude_tags", "tags"])],
    ("a step", "group"): [(command("group: g").group, "g")],
    ("a step", "forEach"): [(transform("forEach: true").as_items, True)],
    ("a step", "fanout"): [([step.name for step in workflow_of(f"version: '1'\nsteps:\n  l: {{{COMMAND}, forEach: true}}\n  m: {{{COMMAND}, depends_on: l}}\n  n: {{type: noop, depends_on: l, fanout: map}}\n  r: {{{COMMAND}, depends_on: m, fanout: reduce}}\n").steps], ["l", "m+n", "r"])],
    ("a step", "reduce"): [([step.name for step in workflow_of(f"version: '1'\nsteps:\n  l: {{{COMMAND}, forEach: true}}\n  m: {{{COMMAND}, depends_on: l}}\n  r: {{{COMMAND}, depends_on: m, reduce: true}}\n").steps], ["l", "m", "r"])],
    ("a step", "timeout"): [(command("timeout: 1500").timeout_seconds, 1.5), (step_with(COMMAND).timeout_seconds, 60.0)],
    ("a step", "env"): [(command("env: {A: '${B}', C: '{{ x }}'}").env, {"A": "{{ env['B'] | default: '${B}' }}", "C": "{% raw %}{{ x }}{% endraw %}"})],
    ("a step", "schema"): [(transform("schema: {type: object}").schema, {"type": "object"}), (transform("schema: plain").parse, "text"), (errors_of("version: '1'\nsteps: {s: {type: noop, schema: nobody}}"), ["there is no schema `nobody`"])],
    ("a step", "output_schema"): [(transform("output_schema: {type: array}").schema, {"type": "array"})],
    ("a step", "transform"): [(transform("transform: '{{ output.x }}'").template, "{{ output.x }}")],
    ("a step", "transform_js"): [(transform("transform_js: return 1").code, "return 1")],
    ("a step", "on_init"): [(before("a").name, "s.a")],
    ("a step", "on_fail"): [(rule("retry: {max: 2}").limit, 2)],
    ("a step", "on_success"): [(success("run: f").calls, ("f",))],
    ("a step", "on_finish"): [(finish("run: f").calls, ("f",))],
    ("a step", "inputs"): [(errors_of(f"version: '1'\nsteps: {{s: {{{COMMAND}, inputs: {{q: {{source: param, value: q}}}}}}}}"), ["`q` is no input of the workflow of the same name"])],
    ("a command step", "exec"): [(step_with("type: command, exec: 'echo {{ inputs.i }}'").action, Shell("echo {{ inputs.i }}"))],
    ("a command step", "stdin"): [(command("stdin: text").action, Shell("x", stdin="text"))],
    ("a command step", "output_format"): [(transform("output_format: json").parse, "json"), (transform("output_format: text").parse, "text")],
    ("a script step", "content"): [(step_with("type: script, content: return 1").action, Script("return 1"))],
    ("a script step", "namespace"): [(step_with("type: script, content: return 1, namespace: n").action, Script("return 1", "n"))],
    ("a log step", "message"): [(step_with("type: log, message: hi").action, Log("hi")), (step_with("type: logger, message: hi").action, Log("hi"))],
    ("a log step", "level"): [(step_with("type: log, message: hi, level: warning").action, Log("hi", "warn"))],
    ("a log step", "include_dependencies"): [(step_with("type: log, message: hi, include_dependencies: true").action, Log("hi", with_outputs=True))],
    ("a memory step", "operation"): [(memory("operation: clear"), Memory("clear"))],
    ("a memory step", "key"): [(memory("operation: get, key: k"), Memory("get", "k"))],
    ("a memory step", "value"): [(memory("operation: set, key: k, value: {a: [1]}"), Memory("set", "k", value={"a": [1]}))],
    ("a memory step", "value_js"): [(memory("operation: append, key: k, value_js: 1 + 1"), Memory("append", "k", code="1 + 1"))],
    ("a memory step", "memory_js"): [(memory("operation: exec_js, memory_js: return 1, namespace: n"), Script("return 1", namespace="n"))],
    ("a memory step", "namespace"): [(memory("operation: list, namespace: n"), Memory("list", namespace="n"))],
    ("an http step", "url"): [(step_with("type: http_client, url: 'http://h/{{ x }}'").action, Http("http://h/{{ x }}")), (errors_of("version: '1'\nsteps: {s: {type: http, url: 'http://{{ x }}'}}"), ["`http://{{ x }}`: a value can't decide on the scheme or the server of a url"])],
    ("an http step", "method"): [(step_with("type: http, url: 'http://h/', method: put").action, Http("http://h/", "PUT"))],
    ("an http step", "headers"): [(step_with("type: http, url: 'http://h/', headers: {A: 'x ${T}'}").action, Http("http://h/", headers={"A": "x {{ env['T'] }}"}))],
    ("an http step", "body"): [(step_with("type: http, url: 'http://h/', body: hi").action, Http("http://h/", "POST", body="hi")), (step_with("type: http, url: 'http://h/', body: {a: 1}").action, Http("http://h/", "POST", json={"a": 1}))],
    ("a workflow step", "workflow"): [(child("workflow: w").workflow.name, "w")],
    ("a workflow step", "config"): [(child("config: w").workflow.name, "w")],
    ("a workflow step", "args"): [(child("workflow: w, args: {q: 2}").inputs, {"q": 2})],
    ("a workflow step", "workflow_inputs"): [(child("workflow: w, workflow_inputs: {q: 2}").inputs, {"q": 2})],
    ("an ai step", "prompt"): [(agent("prompt: 'do {{ inputs.i }}'"), Agent("do {{ inputs.i }}")), (errors_of("version: '1'\nsteps: {s: {prompt: nobody.md}}"), ["the prompt `nobody.md` can't be read: No such file or directory"])],
    ("an ai step", "appendPrompt"): [(agent("prompt: one, appendPrompt: two"), Agent("one\n\ntwo"))],
    ("an ai step", "focus"): [(agent("prompt: one, focus: style"), Agent("Focus on: style.\n\none"))],
    ("an ai step", "ai"): [(options("model: opus"), ("--model", "opus"))],
    ("an ai step", "ai_provider"): [(agent("prompt: hi, ai_provider: openai, ai_model: m"), Agent("hi"))],
    ("an ai step", "ai_model"): [(agent("prompt: hi, ai_model: opus"), Agent("hi", ("claude", "-p", "--model", "opus")))],
    ("an ai step", "ai_system_prompt"): [(agent("prompt: hi, ai_system_prompt: be kind"), Agent("be kind\n\nhi"))],
    ("an ai step", "ai_mcp_servers"): [(agent("prompt: hi, ai_mcp_servers: {t: {command: x}}"), Agent("hi", asking({"t": {"command": "x"}})))],
    ("a claude-code step", "claude_code"): [(step_with("type: claude-code, prompt: hi, claude_code: {maxTurns: 3}").action, Agent("hi", ("claude", "-p", "--max-turns", "3")))],
    ("a human-input step", "prompt"): [(step_with("type: human-input, prompt: who?").action, Ask("who?")), ([found.then for found in step_with("type: human-input, prompt: who?").rules], ["park"])],
    ("a human-input step", "placeholder"): [(step_with("type: human-input, prompt: who?, placeholder: me").action, Ask("who? {% raw %}(me){% endraw %}"))],
    ("a human-input step", "allow_empty"): [(step_with("type: human-input, prompt: who?, allow_empty: true").action, Ask("who? {% raw %}(an empty answer is fine){% endraw %}"))],
    ("a human-input step", "multiline"): [(step_with("type: human-input, prompt: who?, multiline: true").action, Ask("who? {% raw %}(several lines are fine){% endraw %}"))],
    ("a human-input step", "default"): [(step_with("type: human-input, prompt: who?, default: me").action, Ask("who? {% raw %}(an empty answer means 'me'){% endraw %}", "me"))],
    ("on_init", "run"): [(before("a").action, Shell("x"))],
    ("on_fail", "retry"): [(rule("retry: {max: 2}").limit, 2)],
    ("on_fail", "run"): [(rule("run: [f]").repair, Repair(calls=("f",), on_failure="fail")), (rule("run: [f]").cost, 1)],
    ("on_fail", "run_js"): [(rule("run_js: 'return []'").repair, Repair(calls_js="return []", on_failure="fail"))],
    ("on_fail", "goto"): [((rule("goto: a").then, rule("goto: a").target), ("goto", "a"))],
    ("on_fail", "goto_js"): [(rule("goto_js: return null").target_js, "return null")],
    ("on_fail", "transitions"): [(rule("transitions: [{when: x, to: a}]").transitions, (Transition("x", "a"),))],
    ("on_success", "run"): [((success("run: [f]").calls, success("run: [f]").run_cost), (("f",), 0)), ([step.args for step in success("run: [{step: f, with: {k: 1}}]").steps], [{"k": 1}])],
    ("on_success", "run_js"): [(success("run_js: 'return []'").calls_js, "return []")],
    ("on_success", "goto"): [((success("goto: a").target, success("goto: a").cost), ("a", 1))],
    ("on_success", "goto_js"): [(success("goto_js: return null").target_js, "return null")],
    ("on_success", "transitions"): [(success("transitions: [{when: x, to: null}]").transitions, (Transition("x"),))],
    ("on_finish", "run"): [(finish("run: [f]").calls, ("f",))],
    ("on_finish", "run_js"): [(finish("run_js: 'return []'").calls_js, "return []")],
    ("on_finish", "goto"): [(finish("goto: s").target, "s")],
    ("on_finish", "goto_js"): [(finish("goto_js: return null").target_js, "return null")],
    ("on_finish", "transitions"): [(finish("transitions: [{when: x, to: s}]").transitions, (Transition("x", "s"),))],
    ("retry", "max"): [(rule("retry: {max: 7}").limit, 7)],
    ("retry", "backoff"): [(rule("retry: {max: 1}").wait, None), (retried("delay_ms: 500"), Backoff("fixed", 0.5, jitter=0.15, jitter_of="initial"))],
    ("backoff", "mode"): [(retried("mode: exponential, delay_ms: 500"), Backoff("exponential", 0.5, jitter=0.15, jitter_of="initial"))],
    ("backoff", "delay_ms"): [(retried("delay_ms: 0"), None)],
    ("a transition", "when"): [(rule("transitions: [{when: y, to: a}]").transitions, (Transition("y", "a"),))],
    ("a transition", "to"): [(rule("goto: a, transitions: [{when: x, to: null}]").transitions, (Transition("x"),))],
    ("a call", "step"): [(before("{step: a}").action, Shell("x"))],
    ("a call", "tool"): [(before("{tool: t, with: {n: 1}}", TOOL % "").args, {"n": 1})],
    ("a call", "workflow"): [(type(before("{workflow: w}", PART).action), Child)],
    ("a call", "with"): [(before("{step: a, with: {k: '{{ inputs.i }}'}}").args, {"k": "{{ inputs.i }}"})],
    ("a call", "as"): [(before("{step: a, as: other}").name, "s.other")],
    ("routing", "max_loops"): [(file_with("routing: {max_loops: 0}").loops_max, 0)],
    ("routing", "defaults"): [(file_with("routing: {defaults: {on_fail: {retry: {max: 2}}}}").steps[0].rules[0].limit, 2)],
    ("routing.defaults", "on_fail"): [(file_with("routing: {defaults: {on_fail: {retry: {max: 2}}}}", "type: noop, on_fail: null").steps[0].rules, ())],
    ("a failure condition", "condition"): [(condition("condition: bad").code, "bad")],
    ("a failure condition", "message"): [(condition("condition: bad, message: oh").message, "oh")],
    ("a failure condition", "severity"): [(condition("condition: bad, severity: warning").effect, "remark"), (condition("condition: bad").effect, "fail")],
    ("a failure condition", "halt_execution"): [(condition("condition: bad, halt_execution: true").effect, "halt"), ([found.halts for found in command("failure_conditions: {c: {condition: bad, halt_execution: true}}").rules], [True])],
    ("memory", "storage"): [(file_with("memory: {storage: file, file: m.json}").memory_file, MemoryFile("m.json")), (file_with("memory: {storage: memory}").memory_file, None)],
    ("memory", "format"): [(errors_of("version: '1'\nmemory: {storage: file, file: m, format: csv}\nsteps: {a: {type: noop}}"), ["expected one of json, not `csv`"])],
    ("memory", "file"): [(errors_of("version: '1'\nmemory: {storage: file}\nsteps: {a: {type: noop}}"), ["`storage: file` needs `file`"])],
    ("memory", "namespace"): [(file_with("memory: {namespace: n}", "type: script, content: return 1").steps[0].action, Script("return 1", "n"))],
    ("memory", "auto_load"): [(file_with("memory: {storage: file, file: m, auto_load: false}").memory_file, MemoryFile("m", load=False))],
    ("memory", "auto_save"): [(file_with("memory: {storage: file, file: m, auto_save: false}").memory_file, MemoryFile("m", save=False))],
    ("tag_filter", "include"): [(file_with("tag_filter: {include: [a]}").inputs["tags"], Input(default="a"))],
    ("tag_filter", "exclude"): [(file_with("tag_filter: {exclude: a}").inputs["exclude_tags"], Input(default="a"))],
    ("a tool", "exec"): [(before("{tool: t}", TOOL % "").action, Shell("echo {{ args.n }}"))],
    ("a tool", "stdin"): [(before("{tool: t}", TOOL % ", stdin: hi").action, Shell("echo {{ args.n }}", stdin="hi"))],
    ("a tool", "inputSchema"): [(before("{tool: t}", TOOL % ", inputSchema: {properties: {n: {default: 3}}}").args, {"n": 3})],
    ("a tool", "parseJson"): [(before("{tool: t}", TOOL % ", parseJson: true").transform, Transform(parse="json"))],
    ("a tool", "transform"): [(before("{tool: t}", TOOL % ", transform: y").transform, Transform(template="y"))],
    ("a tool", "transform_js"): [(before("{tool: t}", TOOL % ", transform_js: y").transform, Transform(code="y"))],
    ("a tool", "timeout"): [(before("{tool: t}", TOOL % ", timeout: 2000").timeout_seconds, 2.0)],
    ("a tool", "env"): [(before("{tool: t}", TOOL % ", env: {A: b}").env, {"A": "b"})],
    ("an input", "name"): [(sorted(part("inputs: [{name: r, default: 1}]").inputs), ["r"])],
    ("an input", "schema"): [(part("inputs: [{name: r, default: 1, schema: {type: number}}]").inputs["r"], Input("number", 1, schema={"type": "number"}))],
    ("an input", "type"): [(part("inputs: {r: {default: 1, type: number}}").inputs["r"], Input("number", 1, schema={"type": "number"})), (errors_of("version: '1'\ninputs: {r: {type: numbr}}\nsteps: {s: {type: noop}}"), ["`type` of the JSON schema is one of string, number, integer, boolean, object, array, null"])],
    ("an input", "default"): [(part("inputs: [{name: r, default: [1]}]").inputs["r"].default, [1])],
    ("an input", "required"): [(file_with("inputs: [{name: r}]").inputs["r"].required, True), (file_with("inputs: [{name: r, required: false}]").inputs["r"].required, False)],
    ("an output", "name"): [(part("outputs: [{name: o, value: x}]").end.action, Collect((Computed("o", "x"),)))],
    ("an output", "value"): [(part("outputs: [{name: o, value: '{{ y }}'}]").end.action, Collect((Computed("o", "{{ y }}"),)))],
    ("an output", "value_js"): [(part("outputs: [{name: o, value_js: return 1}]").end.action, Collect((Computed("o", code="return 1"),)))],
    ("an input of a step", "source"): [(errors_of(f"version: '1'\ninputs: {{q: 1}}\nsteps: {{s: {{{COMMAND}, inputs: {{q: {{source: step, value: q}}}}}}}}"), ["expected one of param, not `step`"])],
    ("an input of a step", "value"): [(errors_of(f"version: '1'\ninputs: {{q: 1}}\nsteps: {{s: {{{COMMAND}, inputs: {{q: {{source: param, value: r}}}}}}}}"), ["`q` is no input of the workflow of the same name"])],
    ("ai", "provider"): [(options("provider: anthropic, model: m"), ("--model", "m")), (options("provider: google, model: m"), ())],
    ("ai", "model"): [(options("model: m"), ("--model", "m"))],
    ("ai", "timeout"): [(step_with("prompt: hi, ai: {timeout: 1000}").timeout_seconds, 1.0)],
    ("ai", "system_prompt"): [(agent("prompt: hi, ai: {system_prompt: be kind}"), Agent("be kind\n\nhi"))],
    ("ai", "disableTools"): [(options("disableTools: true")[:1], ("--disallowedTools",))],
    ("ai", "allowBash"): [(options("allowBash: true"), ("--allowedTools", "Bash")), (options("allowBash: false"), ("--disallowedTools", "Bash"))],
    ("ai", "allowEdit"): [(options("allowEdit: true"), ("--allowedTools", "Edit,Write"))],
    ("ai", "allowedTools"): [(options("allowedTools: [Read, Grep]"), ("--allowedTools", "Read,Grep"))],
    ("ai", "max_iterations"): [(options("max_iterations: 4"), ("--max-turns", "4"))],
    ("ai", "completion_prompt"): [(agent("prompt: hi, ai: {completion_prompt: bye}"), Agent("hi\n\nbye"))],
    ("prompt", "content"): [(agent("prompt: {content: hi}"), Agent("hi"))],
    ("prompt", "file"): [(errors_of("version: '1'\nsteps: {s: {prompt: {file: nobody}}}"), ["the prompt `nobody` can't be read: No such file or directory"])],
    ("ai", "mcpServers"): [(options("mcpServers: {t: {command: x}}"), asking({"t": {"command": "x"}})[2:]), (options("mcpServers: {t: {command: x}}, disableTools: true")[0], "--disallowedTools")],
    ("a server of tools", "command"): [(errors_of("version: '1'\nsteps: {s: {prompt: hi, ai: {mcpServers: {t: {tools: [y]}}}}}"), ["the server `t` is neither a program nor a url: Visor's own tools are not run here", "a server of tools has no key `tools`"])],
    ("a server of tools", "args"): [(options("mcpServers: {t: {command: x, args: [-a, '']}}"), asking({"t": {"command": "x", "args": ["-a", ""]}})[2:])],
    ("a server of tools", "env"): [(options("mcpServers: {t: {command: x, env: {K: '${K}'}}}"), asking({"t": {"command": "x", "env": {"K": "${K}"}}})[2:])],
    ("a server of tools", "url"): [(options("mcpServers: {t: {url: 'http://h/'}}"), asking({"t": {"url": "http://h/"}})[2:])],
    ("a server of tools", "headers"): [(options("mcpServers: {t: {url: u, headers: {A: b}}}"), asking({"t": {"url": "u", "headers": {"A": "b"}}})[2:])],
    ("a server of tools", "type"): [(options("mcpServers: {t: {url: u, type: sse}}"), asking({"t": {"url": "u", "type": "sse"}})[2:])],
    ("a server of tools", "transport"): [(options("mcpServers: {t: {url: u, transport: http}}"), asking({"t": {"url": "u", "type": "http"}})[2:])],
    ("claude_code", "mcpServers"): [(step_with("type: claude-code, prompt: hi, claude_code: {mcpServers: {t: {command: x}}}").action, Agent("hi", asking({"t": {"command": "x"}})))],
    ("claude_code", "allowedTools"): [(step_with("type: claude-code, prompt: hi, claude_code: {allowedTools: [Read]}").action, Agent("hi", ("claude", "-p", "--allowedTools", "Read")))],
    ("claude_code", "maxTurns"): [(step_with("type: claude-code, prompt: hi, claude_code: {maxTurns: 3}").action, Agent("hi", ("claude", "-p", "--max-turns", "3")))],
    ("claude_code", "systemPrompt"): [(step_with("type: claude-code, prompt: hi, claude_code: {systemPrompt: be kind}").action, Agent("be kind\n\nhi"))],
}  # fmt: skip


def rows() -> dict[tuple[str, str], Key]:
    """Every key that is read, under the table where it is written down first."""
    found: dict[tuple[str, str], Key] = {}
    own = {id(row) for table in TABLES if table not in STEPS.values() for row in table.keys.values()}
    seen: set[int] = set()
    for table in TABLES:
        for row in table.keys.values():
            if row in COMMON:
                found["a step", row.name] = row
            elif id(row) in own or id(row) not in seen:
                found[table.name, row.name] = row
            seen.add(id(row))
    return found


CASES |= TOOL_CASES
READ = {place: row for place, row in rows().items() if row.kind not in (REFUSED, LABEL)}


@pytest.mark.parametrize("place", READ, ids=[f"{table}: {key}" for table, key in READ])
def test_each_key_changes_the_model(place: tuple[str, str]) -> None:
    """A key that is read has a case that shows what it changes."""
    assert CASES.get(place), f"no case shows what {place} changes"
    for found, expected in CASES[place]:
        assert found == expected


def test_there_are_no_cases_for_keys_that_are_gone() -> None:
    """Every case belongs to a key."""
    assert sorted(CASES.keys() - READ.keys()) == []


def placed(table: Table, key: str) -> str:
    """A file in which a key of a table stands where that table is read."""
    inner = {
        "the file": "version: '1'\n%s\nsteps: {s: {type: noop}}",
        "on_init": "version: '1'\nsteps: {a: {type: noop}, s: {type: noop, on_init: {run: a, %s}}}",
        "on_fail": "version: '1'\nsteps: {s: {type: noop, on_fail: {retry: {max: 1}, %s}}}",
        "on_success": "version: '1'\nsteps: {f: {type: noop}, s: {type: noop, on_success: {run: f, %s}}}",
        "on_finish": "version: '1'\nsteps: {f: {type: noop}, s: {type: noop, forEach: true, on_finish: {run: f, %s}}}",
        "a transition": "version: '1'\nsteps: {a: {type: noop}, s: {type: noop, depends_on: a, on_fail: {transitions: [{when: x, to: a, %s}]}}}",
        "a tool": "version: '1'\ntools: {t: {exec: x, %s}}\nsteps: {s: {type: noop, on_init: {run: [{tool: t}]}}}",
        "an input": "version: '1'\ninputs: [{name: q, default: 1, %s}]\nsteps: {s: {type: noop}}",
        "an output": "version: '1'\noutputs: [{name: o, value: x, %s}]\nsteps: {s: {type: noop}}",
        "ai": "version: '1'\nsteps: {s: {prompt: hi, ai: {%s}}}",
        "ai.fallback": "version: '1'\nsteps: {s: {prompt: hi, ai: {fallback: {%s}}}}",
        "a provider of ai.fallback": "version: '1'\nsteps: {s: {prompt: hi, ai: {fallback: {providers: [{%s}]}}}}",
        "bashConfig": "version: '1'\nsteps: {s: {prompt: hi, ai: {bashConfig: {%s}}}}",
        "workspace": "version: '1'\nworkspace: {%s}\nsteps: {s: {type: noop}}",
        "claude_code": "version: '1'\nsteps: {s: {type: claude-code, prompt: hi, claude_code: {%s}}}",
    }
    if table.name in inner:
        return inner[table.name] % f"{key}: 1"
    kind = next(name for name, found in STEPS.items() if found is table)
    return f"version: '1'\nsteps: {{s: {{type: {kind}, {key}: 1}}}}"


@pytest.mark.parametrize(
    ("table", "row"),
    [(table, row) for table in TABLES for row in table.keys.values() if row.kind in (REFUSED, LABEL)],
    ids=lambda part: part.name,
)
def test_each_other_key_is_told_of(table: Table, row: Key) -> None:
    """What is not run is an error that names the key and says why; a label is a notice."""
    _, findings = compiled(placed(table, row.name))
    word = "error: `{}` is not run by Resile: {}" if row.kind == REFUSED else "notice: `{}` changes nothing here: {}"
    assert word.format(row.name, row.doc) in findings


@pytest.mark.parametrize("kind", TYPES_REFUSED)
def test_types_that_need_a_service_are_refused_by_name(kind: str) -> None:
    """The message names the type and what it would need."""
    expected = f"`{kind}` steps are not run by Resile: they need {TYPES_REFUSED[kind]}"
    assert errors_of(f"version: '1'\nsteps: {{s: {{type: {kind}, anything: 1}}}}") == [expected]


def test_every_type_has_a_table() -> None:
    """A type is run with the keys of a table, or refused."""
    assert sorted({*TYPES.values()} - {*STEPS}) == []
    assert sorted({*TYPES} & {*TYPES_REFUSED}) == []


def test_an_unknown_type_has_a_hint() -> None:
    """A misspelt type is refused."""
    assert errors_of("version: '1'\nsteps: {s: {type: comand}}") == ["there is no type `comand`"]


def test_the_values_of_steps_have_their_names() -> None:
    """Each step captures its value under its own name."""
    assert command("if: x").capture == (Capture("s", "value"),)
    assert isinstance(visor_keys.TABLES, tuple)


def test_files_beside_are_read(tmp_path: Path) -> None:
    """A prompt and a schema may stand in files of their own."""
    (tmp_path / "ask.md").write_text("look at {{ inputs.x }}")
    (tmp_path / "form.json").write_text('{"type": "object"}')
    workflow = workflow_of("version: '1'\nsteps: {s: {prompt: ask.md, schema: form.json}}", tmp_path)
    action = workflow.steps[0].action
    assert isinstance(action, Agent)
    assert action.prompt.startswith("look at {{ inputs.x }}\n\n{% raw %}Answer with JSON only")
    assert workflow.steps[0].transform == Transform(schema={"type": "object"})


def test_conditions_of_a_step_stand_in_one_place() -> None:
    """Tags and events come before what the step assumes, and that before `if`."""
    when = command("if: c, assume: b, on: manual, tags: [t]").when
    assert when is not None
    assert [found.source for found in when.besides[1:]] == ["b", "c"]
    assert all(isinstance(found, Condition) for found in when.besides)
