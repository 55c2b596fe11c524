"""What each key of the ladder's tables does to the model; test_native_keys compares."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from resile.model.limits import LOOPS_DEFAULT, LOOPS_MAX
from resile.model.rules import Backoff, Escalation, Match, Origin, Transition
from resile.model.workflow import (
    Agent,
    Capture,
    Http,
    Need,
    Python,
    Repair,
    Rule,
    Shell,
    Step,
    SuccessActions,
    WriteFile,
)
from tests.dialects.compiling import (
    agent_with,
    default_with,
    escalating,
    handler_with,
    on_failure_of,
    on_success_with,
    repair_of,
    repair_with,
    routed,
    rule_of,
    rule_with,
    seconds_of,
    step_with,
    then_of,
    workflow_with,
)

LADDER_CASES: dict[tuple[str, str], list[tuple[object, object]]] = {
    ("on_failure", "retry"): [
        (rule_with("on_failure: {retry: 2}"), Rule(then="retry", text="retry 2", limit=2, routing=True, retries_anyway=True, origin=Origin(5, 30)))
    ],
    ("on_failure", "run"): [
        (
            routed("on_failure", "run: [f, a, f]").rules,
            (Rule(then="retry", text="run f, a", cost=1, routing=True, origin=Origin(5, 42),
                  repair=Repair(calls=("f", "a"), on_failure="fail")),),
        ),
        (
            routed("on_failure", "retry: 2, run: f").rules,
            (Rule(then="retry", text="retry 2 after run f", limit=2, cost=1, routing=True, retries_anyway=True, origin=Origin(5, 42),
                  repair=Repair(calls=("f",), on_failure="fail")),),
        ),
    ],
    ("on_failure", "run_js"): [
        (routed("on_failure", "run_js: '[]'").rules[0].repair, Repair(calls_js="[]", on_failure="fail")),
        (routed("on_failure", "run_js: '[]'").rules[0].retries_anyway, False),
        (routed("on_failure", "run_js: '[]', retry: 1").rules[0].retries_anyway, True),
    ],
    ("on_failure", "goto"): [
        (
            routed("on_failure", "goto: a").rules,
            (Rule(then="goto", text="goto a", target="a", limit=LOOPS_MAX, cost=1, routing=True, origin=Origin(5, 42)),),
        )
    ],
    ("on_failure", "goto_js"): [(routed("on_failure", "goto_js: q").rules[0].target_js, "q")],
    ("on_failure", "transitions"): [
        (
            routed("on_failure", "transitions: [{when: q, to: a}, {when: r, to: null}]").rules[0].transitions,
            (Transition("q", "a"), Transition("r", None)),
        )
    ],
    ("on_failure", "shell"): [
        (
            step_with("shell: x, env: {A: b}, working_dir: d, timeout: 1, on_failure: {shell: h}").rules,
            (
                Rule(
                    then="recovered", text="on_failure: recovery", origin=Origin(5, 71),
                    repair=Repair(steps=(Step(name="on_failure-1", action=Shell("h"), env={"A": "b"}, working_dir="d",
                                              origin=Origin(5, 78)),)),
                ),
            ),
        )
    ],
    ("on_failure", "agent"): [([s.action for s in repair_with("agent: p").steps], [Shell("h"), Agent("p")])],
    ("on_failure", "claude"): [([s.action for s in repair_with("claude: p").steps], [Shell("h"), Agent("p")])],
    ("on_failure", "commands"): [
        (
            [(s.name, s.action, s.needs) for s in repair_of("{commands: [h, /p, {id: q, shell: i}]}").steps],
            [("on_failure-1", Shell("h"), ()), ("on_failure-2", Agent("/p"), (Need(("on_failure-1",), True),)),
             ("q", Shell("i"), (Need(("on_failure-2",), True),))],
        )
    ],
    ("on_failure", "strategy"): [
        (then_of("on_failure: {shell: h, strategy: recovery}"), ["recovered"]),
        (then_of("on_failure: {shell: h, strategy: custom}"), ["recovered"]),
        (then_of("on_failure: {shell: h, strategy: fallback}"), ["fallback"]),
        (then_of("on_failure: {shell: h, strategy: cleanup}"), ["fail"]),
        (then_of("on_failure: {shell: h, strategy: cleanup, fail_workflow: false}"), ["tolerate", "tolerate"]),
        (then_of("on_failure: {shell: h, strategy: cleanup, fail_workflow: true}"), ["fail"]),
        (then_of("on_failure: {shell: h, strategy: cleanup}, park: true"), ["park", "park"]),
    ],
    ("on_failure", "max_attempts"): [
        (handler_with("max_attempts: 3").limit, 2),
        (then_of("on_failure: {shell: h, max_attempts: 3}"), ["retry"]),
        (then_of("on_failure: {shell: h, max_attempts: 1}"), ["recovered"]),
        (repair_with("max_attempts: 3").on_failure, "ignore"),
        (then_of("on_failure: {max_attempts: 2}"), ["retry"]),
    ],
    ("on_failure", "max_retries"): [(handler_with("max_retries: 3").limit, 3)],
    ("on_failure", "retry_original"): [(handler_with("retry_original: true").then, "retry")],
    ("on_failure", "timeout"): [(repair_with("timeout: 5").timeout_seconds, 5.0)],
    ("on_failure", "handler_failure_fatal"): [
        (repair_with("handler_failure_fatal: true").on_failure, "fail"),
        (repair_with("handler_failure_fatal: false").on_failure, "next"),
        (repair_with("handler_failure_fatal: true, max_attempts: 3").on_failure, "fail"),
    ],
    ("on_failure", "accept"): [
        (then_of("on_failure: {accept: true}"), ["recovered"]),
        (then_of("on_failure: {shell: h, max_attempts: 2, accept: true}"), ["retry", "recovered"]),
        (then_of("on_failure: {accept: false}"), []),
    ],
    ("ir, of a step", "on_exit_code"): [
        (
            step_with("shell: x, ir: {on_exit_code: {3: h, '4': [/p, {shell: i}]}}, retry: 1").rules[:2],
            (
                Rule(then="recovered", text="on_exit_code 3", match=Match(codes=(3,)), origin=Origin(5, 37),
                     repair=Repair(steps=(Step(name="on_failure-1", action=Shell("h"), origin=Origin(5, 40)),))),
                Rule(then="recovered", text="on_exit_code 4", match=Match(codes=(4,)), origin=Origin(5, 43),
                     repair=Repair(steps=(Step(name="on_failure-1", action=Agent("/p"), origin=Origin(5, 49)),
                                          Step(name="on_failure-2", action=Shell("i"), origin=Origin(5, 53),
                                               needs=(Need(("on_failure-1",), True),))))),
            ),
        )
    ],
    ("on_failure", "capture"): [
        ([s.capture for s in repair_with("agent: p, capture: v").steps], [(Capture("v", "combined"),)] * 2),
        (repair_with("capture: {v: text}").steps[0].capture, (Capture("v", "combined"),)),
        (repair_with("capture: {v: label, w: json}").steps[0].capture, (Capture("v", "combined"), Capture("w", "json"))),
    ],
    ("a transition", "when"): [
        (routed("on_failure", "transitions: [{when: 'q > 1', to: a}]").rules[0].transitions, (Transition("q > 1", "a"),))
    ],
    ("a transition", "to"): [
        (routed("on_success", "transitions: [{when: q, to: null}]").on_success.transitions, (Transition("q"),))  # type: ignore[union-attr]
    ],
    ("on_success", "run"): [(on_success_with("run: f"), SuccessActions(calls=("f",), origin=Origin(5, 29)))],
    ("on_success", "run_js"): [(on_success_with("run_js: q").calls_js, "q")],
    ("on_success", "goto"): [(on_success_with("goto: a"), SuccessActions(target="a", cost=1, origin=Origin(5, 29)))],
    ("on_success", "goto_js"): [(on_success_with("goto_js: q"), SuccessActions(target_js="q", cost=1, origin=Origin(5, 29)))],
    ("on_success", "transitions"): [(on_success_with("transitions: [{when: q, to: a}]").cost, 1)],
    ("routing", "max_loops"): [
        (workflow_with("routing: {max_loops: 0}").loops_max, 0),
        (workflow_with("").loops_max, LOOPS_DEFAULT),
    ],
    ("routing", "defaults"): [([rule.then for rule in default_with("retry: 2")], ["retry"])],
    ("routing.defaults", "on_failure"): [([rule.then for rule in default_with("retry: 2")], ["retry"])],
    ("routing.defaults", "on_fail"): [
        (workflow_with("routing: {defaults: {on_fail: {retry: 2}}}").steps[0].rules[0].limit, 2)
    ],
    ("routing.defaults.on_failure", "retry"): [
        (default_with("retry: 2"), (Rule(then="retry", text="retry 2", limit=2, routing=True, retries_anyway=True, origin=Origin(2, 35)),))
    ],
    ("routing.defaults.on_failure", "run"): [(default_with("run: f")[0].repair, Repair(calls=("f",), on_failure="fail"))],
    ("routing.defaults.on_failure", "run_js"): [(default_with("run_js: q")[0].repair, Repair(calls_js="q", on_failure="fail"))],
    ("routing.defaults.on_failure", "goto"): [(default_with("goto: a")[0].target, "a"), (default_with("goto: s"), ())],
    ("routing.defaults.on_failure", "goto_js"): [
        (default_with("goto_js: q")[0].target_js, "q"),
        ([(rule.target, rule.target_js) for rule in default_with("goto: f, goto_js: q")], [("", "q")]),
    ],
    ("routing.defaults.on_failure", "transitions"): [
        (default_with("transitions: [{when: q, to: s}]")[0].transitions, (Transition("q", "s"),))
    ],
    ("routing.defaults.on_failure", "fail_workflow"): [([r.then for r in default_with("fail_workflow: false")], ["tolerate"])],
    ("a failure handler", "rules"): [
        (
            list(workflow_with("failure_handlers: {h: {rules: [{match_all_exit_codes: true}, {exit_codes: [1]}]}}").failure_handlers["h"]),
            [
                Rule(then="retry", text="failure_handler h: exit_codes 1", match=Match(codes=(1,)), limit=3, origin=Origin(2, 62)),
                Rule(then="retry", text="failure_handler h: every failure", limit=3, origin=Origin(2, 32)),
            ],
        )
    ],
    ("a rule", "exit_codes"): [(rule_of("exit_codes: [10, 11]").match, Match(codes=(10, 11)))],
    ("a rule", "match_all_exit_codes"): [(rule_of("match_all_exit_codes: true").match, Match())],
    ("a rule", "signals"): [(rule_of("signals: [KILL, SIGTERM, segv, 6]").match, Match(signals=(9, 15, 11, 6)))],
    ("a rule", "kinds"): [(rule_of("kinds: [oom, timeout]").match, Match(kinds=("oom", "timeout")))],
    ("a rule", "pattern"): [(rule_of("pattern: 'disk.*full'").match, Match(pattern="disk.*full"))],
    ("a rule", "recovery_script"): [
        (
            rule_of("exit_codes: 1, recovery_script: ./fix.sh").repair,
            Repair(steps=(Step(name="recovery_script", action=Shell("bash /f/./fix.sh"), origin=Origin(2, 65)),), on_failure="ignore"),
        ),
        (
            rule_of("exit_codes: 1, recovery_script: 'rm -rf mesh; ./refine'").repair,
            Repair(steps=(Step(name="recovery_script", action=Shell("rm -rf mesh; ./refine", "bash"), origin=Origin(2, 65)),), on_failure="ignore"),
        ),
    ],
    ("a rule", "max_retries"): [(rule_of("exit_codes: 1, max_retries: 7").limit, 7), (rule_of("exit_codes: 1").limit, 3)],
    ("a rule", "backoff"): [(rule_of("exit_codes: 1, backoff: {initial: 2}").wait, Backoff("fixed", 2.0))],
    ("a rule", "timeout"): [(seconds_of("timeout: 9"), 9.0), (seconds_of("on_script_failure: fail"), None)],
    ("a rule", "on_script_failure"): [
        (on_failure_of("on_script_failure: fail"), "fail"), (on_failure_of("on_script_failure: continue"), "ignore")
    ],
    ("escalate", "factor"): [
        (
            escalating("factor: 2"),
            Rule(then="retry", text="escalate x2", match=Match(kinds=("oom", "timeout")), limit=3, change=Escalation(2.0), origin=Origin(5, 51)),
        )
    ],
    ("escalate", "memory_max"): [(escalating("memory_max: 4k").change, Escalation(memory_bytes_max=4096))],
    ("escalate", "runtime_max"): [(escalating("runtime_max: 1h").change, Escalation(runtime_seconds_max=3600.0))],
    ("escalate", "rounds"): [(escalating("rounds: 5").limit, 5)],
    ("http", "url"): [
        (step_with(f"http: {{url: '{url}'}}").action, Http(url))
        for url in ("https://h:8080", "http://[::1]/a?b=${inputs.i}#c", "${inputs.i}", "http://h/${inputs.i}/x")
    ],
    ("http", "method"): [(step_with("http: {url: 'http://h', method: put}").action, Http("http://h", "PUT"))],
    ("http", "headers"): [
        (step_with("http: {url: 'http://h', headers: {A: 1.10, B: 'x ${inputs.i}'}}").action, Http("http://h", headers={"A": "1.10", "B": "x ${inputs.i}"}))
    ],
    ("http", "body"): [
        (step_with("http: {url: 'http://h', body: '${inputs.i}'}").action, Http("http://h", "POST", body="${inputs.i}")),
        (step_with("http: {url: 'http://h', body: ''}").action, Http("http://h", "POST", body="")),
    ],
    ("http", "json"): [
        (
            step_with("http: {url: 'http://h', method: PATCH, json: {a: [1, '${inputs.i}', null, 1.5]}}").action,
            Http("http://h", "PATCH", json={"a": [1, "${inputs.i}", None, 1.5]}),
        )
    ],
    ("http", "expect_status"): [
        (step_with("http: {url: 'http://h', expect_status: 404}").action, Http("http://h", expect_status=(404,))),
        (step_with("http: {url: 'http://h', expect_status: [201, 302]}").action, Http("http://h", expect_status=(201, 302))),
    ],
    ("python", "source"): [(step_with("python: {source: 'x = 1'}").action, Python("x = 1"))],
    ("python", "file"): [(step_with("python: {file: a.py}").action, Python(file="a.py"))],
    ("python", "inputs"): [
        (step_with("python: {file: a.py, inputs: {a: 1, b: ['${inputs.i}']}}").action, Python(file="a.py", inputs={"a": 1, "b": ["${inputs.i}"]}))
    ],
    ("write_file", "path"): [(step_with("write_file: {path: 'd/${inputs.i}', content: x}").action, WriteFile("d/${inputs.i}", "x"))],
    ("write_file", "content"): [(step_with("write_file: {path: f, content: 1.10}").action, WriteFile("f", "1.10"))],
    ("write_file", "format"): [
        (step_with("write_file: {path: f, content: x, format: json}").action, WriteFile("f", "x", format="json"))
    ],
    ("write_file", "mode"): [
        (step_with(f"write_file: {{path: f, content: x, mode: {mode}}}").action, WriteFile("f", "x", 0o755))
        for mode in ("755", "0755", "0o755", "'0755'")
    ],
    ("agent", "command"): [
        (agent_with("command: [a, 'b c']").action, Agent("hi", ("a", "b c"))),
        (agent_with("command: claude -p --json").action, Agent("hi", ("claude", "-p", "--json"))),
    ],
    ("agent", "prompt"): [(agent_with("prompt: stdin").action, Agent("hi", prompt_by="stdin"))],
    ("agent", "max_cost"): [(agent_with("max_cost: 0.5").action, Agent("hi", cost_max=0.5))],
    ("agent", "max_tokens"): [(agent_with("max_tokens: 500").action, Agent("hi", tokens_max=500))],
    ("agent", "timeout"): [(agent_with("timeout: 5m").timeout_seconds, 300.0)],
    ("on_failure", "fail_workflow"): [
        (rule_with("on_failure: {fail_workflow: false}").then, "tolerate"),
        (step_with("shell: x, on_failure: {fail_workflow: true}").rules, ()),
        (then_of("on_failure: {shell: h, fail_workflow: true}"), ["fail"]),
        (then_of("on_failure: {shell: h, fail_workflow: true, max_attempts: 2}"), ["retry"]),
        (then_of("on_failure: {shell: h, fail_workflow: true}, fail_workflow: false"), ["fail"]),
    ],
}  # fmt: skip
