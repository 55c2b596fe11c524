"""What each key of the fan-outs' tables does to the model; test_native_keys compares."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from resile.dialects.native.keys.failures import BACKOFF_KINDS
from resile.model.fanout import Breaker, ErrorPolicy, Source
from resile.model.rules import Backoff, Match, Origin, Transition
from resile.model.workflow import FanOut, Need, Noop, Repair, Rule, Shell, Step, SuccessActions
from tests.dialects.compiling import compiled, step_with, wait_with

EXPONENTIAL = Backoff("exponential", 1.0)


def map_with(keys: str) -> FanOut:
    """The fan-out of a map step over a list, with these keys."""
    return fan_of(f"input: [1], steps: [{{shell: x}}], {keys}")


def fan_of(keys: str) -> FanOut:
    """The fan-out of a map step with nothing but these keys."""
    action = step_with(f"map: {{{keys}}}").action
    assert isinstance(action, FanOut)
    return action


def source_of(keys: str) -> Source:
    """Where the items of a map with these keys come from."""
    return fan_of(f"steps: [{{shell: x}}], {keys}").source


def policy_with(keys: str) -> ErrorPolicy:
    """The policy of a map with these keys of an error policy."""
    return map_with(f"error_policy: {{{keys}}}").policy


def breaker_with(keys: str) -> Breaker | None:
    """The circuit breaker with these keys."""
    return policy_with(f"circuit_breaker: {{{keys}}}").breaker


def each_with(keys: str, steps: str = "  s: {shell: x, needs: p}\n") -> Step:
    """The fan-out below a producer `p` with these keys; `a` stands before it, `f` beside it."""
    text = (
        f"resile: 1\nsteps:\n  a: {{shell: x}}\n  f: {{shell: x}}\n  p: {{shell: x, needs: a, foreach: true, {keys}}}\n"
    )
    return next(step for step in compiled(text + steps).steps if isinstance(step.action, FanOut))


def finish_with(keys: str) -> SuccessActions:
    """What follows the items of a producer with these keys in its `on_finish`."""
    actions = each_with(f"on_finish: {{{keys}}}").on_success
    assert actions is not None
    return actions


def fan(step: Step) -> FanOut:
    """The fan-out that a step is."""
    assert isinstance(step.action, FanOut)
    return step.action


def mapreduce(keys: str) -> list[tuple[str, object, tuple[Need, ...]]]:
    """The steps of a map and reduce with these lines: names, what they do, what they need."""
    steps = compiled(f"resile: 1\nmode: mapreduce\nmap: {{input: [1], steps: [{{shell: x}}]}}\n{keys}\n").steps
    return [(step.name, "map" if isinstance(step.action, FanOut) else step.action, step.needs) for step in steps]


ONLY_MAP = [("map", "map", ())]
BEFORE_MAP = [
    ("setup-1", Shell("b"), ()),
    ("q", Noop(), (Need(("setup-1",), True),)),
    ("map", "map", (Need(("q",), True),)),
]
AFTER_MAP = [*ONLY_MAP, ("reduce-1", Shell("b ${map.total}"), (Need(("map",), True),))]
HANDLED = "resile: 1\nhandlers: {h: [{shell: 'fix ${item} ${error.kind}'}, /look]}\nsteps: [{map: {input: [1], error_policy: {on_item_failure: 'custom:h'}, steps: [{shell: x, env: {A: b}}]}}]"
SHARED = "resile: 1\nfailure_handlers: {h: {rules: [{exit_codes: 3}]}}\nsteps: [{map: {input: [1], error_policy: {on_item_failure: 'custom:h'}, steps: [{shell: x, on_failure: y}]}}]"

FANOUT_CASES: dict[tuple[str, str], list[tuple[object, object]]] = {
    ("the workflow", "mode"): [(mapreduce(""), ONLY_MAP)],
    ("the workflow", "map"): [(mapreduce("name: x"), ONLY_MAP)],
    ("the workflow", "setup"): [
        (mapreduce("setup: [{shell: b}, {id: q, noop: true}]"), BEFORE_MAP),
        (mapreduce("setup: {commands: [{shell: b}, {name: q, noop: true}]}"), BEFORE_MAP),
    ],
    ("the workflow", "reduce"): [
        (mapreduce("reduce: [{shell: 'b ${map.total}'}]"), AFTER_MAP),
        (mapreduce("reduce: {commands: [{shell: 'b ${map.total}'}]}"), AFTER_MAP),
    ],
    ("the workflow", "error_policy"): [
        (
            [fan(s).policy for s in compiled(
                "resile: 1\nerror_policy: {max_failures: 3, failure_threshold: 0.5}\nsteps:\n"
                "- map: {input: [1], steps: [{shell: x}]}\n- map: {input: [1], steps: [{shell: x}], error_policy: {max_failures: 4}}\n"
            ).steps],
            [ErrorPolicy(failures_max=3, failure_threshold=0.5), ErrorPolicy(failures_max=4)],
        )
    ],
    ("the workflow", "handlers"): [
        (
            fan(compiled(HANDLED).steps[0]).steps[0].rules,
            (
                Rule(
                    then="recovered", text="on_item_failure: custom:h", origin=Origin(3, 60),
                    repair=Repair(steps=(
                        Step(name="on_failure-1", action=Shell("fix ${item} ${error.kind}"), env={"A": "b"}, origin=Origin(2, 16)),
                        Step(name="on_failure-2", action=compiled("resile: 1\nsteps: [{agent: /look}]").steps[0].action, env={"A": "b"},
                             needs=(Need(("on_failure-1",), True),), origin=Origin(2, 54)),
                    )),
                ),
            ),
        ),
        (fan(compiled(HANDLED).steps[0]).policy, ErrorPolicy("fail")),
    ],
    ("a step", "map"): [
        (
            step_with("map: {input: [1, two, {n: 3}], steps: {q: {shell: 'echo ${item.n}'}, r: {shell: x, needs: q}}}").action,
            FanOut(
                Source(values=(1, "two", {"n": 3})),
                (Step(name="q", action=Shell("echo ${item.n}"), origin=Origin(5, 46)),
                 Step(name="r", action=Shell("x"), needs=(Need(("q",)),), origin=Origin(5, 76))),
                ErrorPolicy("fail"),
            ),
        ),
        (fan(step_with("map: {input: ls, steps: [{shell: x}]}, shell_program: bash, env: {A: b}, working_dir: d")),
         FanOut(Source(command="ls", program="bash"),
                (Step(name="step-1", action=Shell("x", "bash"), env={"A": "b"}, working_dir="d", origin=Origin(5, 32)),),
                ErrorPolicy("fail"))),
    ],
    ("a step", "critical"): [
        (step_with("shell: x, critical: true").critical, True), (step_with("shell: x, critical: false").critical, False)
    ],
    ("a step, for items", "foreach"): [
        (
            each_with("").action,
            FanOut(Source(step="p"), (Step(name="s", action=Shell("x"), origin=Origin(6, 3)),), ErrorPolicy("fail"), scope="p"),
        ),
        (each_with("").needs, (Need(("p",)),)),
        (step_with("shell: x, foreach: false").action, Shell("x")),
    ],
    ("a step, for items", "fanout"): [
        (fan(each_with("", "  s: {shell: x, needs: p}\n  t: {shell: x, needs: s, fanout: map}\n")).steps[1].needs, (Need(("s",)),)),
        (len(fan(each_with("", "  s: {shell: x, needs: p}\n  t: {shell: x, needs: s, fanout: reduce}\n")).steps), 1),
    ],
    ("a step, for items", "max_parallel"): [(fan(each_with("max_parallel: 3")).max_parallel, 3), (fan(each_with("")).max_parallel, None)],
    ("a step, for items", "error_policy"): [(fan(each_with("error_policy: {max_failures: 2}")).policy, ErrorPolicy(failures_max=2))],
    ("a step, for items", "on_finish"): [
        (
            each_with("on_finish: 'tell ${steps.s.failed}'").on_success,
            SuccessActions(steps=(Step(name="on_finish-1", action=Shell("tell ${steps.s.failed}"), origin=Origin(5, 53)),), origin=Origin(5, 42)),
        ),
        (
            each_with("on_finish: t").rules,
            (Rule(then="fail", text="on_finish", origin=Origin(5, 42),
                  repair=Repair(steps=(Step(name="on_finish-1", action=Shell("t"), origin=Origin(5, 53)),), on_failure="ignore")),),
        ),
    ],
    ("on_finish", "run"): [
        (finish_with("run: f").calls, ("f",)),
        (each_with("on_finish: {run: [f]}").rules,
         (Rule(then="fail", text="on_finish", repair=Repair(calls=("f",), on_failure="ignore"), origin=Origin(5, 42)),)),
    ],
    ("on_finish", "run_js"): [
        (finish_with("run_js: q").calls_js, "q"),
        (each_with("on_finish: {run_js: q}").rules[0].repair, Repair(calls_js="q", on_failure="ignore")),
    ],
    ("on_finish", "goto"): [
        (finish_with("goto: p"), SuccessActions(target="p", cost=1, origin=Origin(5, 42))),
        ([(r.then, r.target, r.repair) for r in each_with("on_finish: {goto: a, run: f}").rules],
         [("goto", "a", Repair(calls=("f",), on_failure="ignore")), ("fail", "", Repair(calls=("f",), on_failure="ignore"))]),
    ],
    ("on_finish", "goto_js"): [
        (finish_with("goto_js: q").target_js, "q"),
        ([(r.then, r.target_js) for r in each_with("on_finish: {goto_js: q}").rules], [("goto", "q")]),
    ],
    ("on_finish", "transitions"): [
        (finish_with("transitions: [{when: q, to: a}]").transitions, (Transition("q", "a"),)),
        (each_with("on_finish: {transitions: [{when: q, to: a}]}").rules[0].transitions, (Transition("q", "a"),)),
    ],
    ("map", "input"): [
        (source_of("input: [1, a, {b: [2]}, null]"), Source(values=(1, "a", {"b": [2]}, None))),
        (source_of("input: []"), Source(values=())),
        (source_of("input: work.jsonl"), Source(path="work.jsonl")),
        (source_of("input: 'd/${inputs.i}.ndjson'"), Source(path="d/${inputs.i}.ndjson")),
        (source_of("input: cat work.json"), Source(command="cat work.json")),
        (source_of("input: 'ls ${inputs.i}'"), Source(command="ls ${inputs.i}")),
        (source_of("input: '${steps.a.output}'"), Source(step="a")),
        (step_with("map: {input: '${steps[\"a\"].output}', steps: [{shell: x}]}").needs, (Need(("a",)),)),
    ],
    ("input", "step"): [
        (source_of("input: {step: a}"), Source(step="a")),
        (step_with("map: {input: {step: a}, steps: [{shell: x}]}").needs, (Need(("a",)),)),
        (step_with("map: {input: {step: a}, steps: [{shell: x}]}, needs: a").needs, (Need(("a",)),)),
    ],
    ("map", "json_path"): [
        (source_of(f"input: w.json, json_path: '{path}'").json_path, path)
        for path in ("$.items[*]", "$.a[?@.b > 3]", "$..x", "$.${inputs.i}")
    ],
    ("map", "filter"): [(source_of("input: [1], filter: item.n > 3").filter, "item.n > 3")],
    ("map", "sort_by"): [
        (source_of("input: [1], sort_by: 'size desc,  owner.name'").sort_by, "size DESC, owner.name"),
        (source_of("input: [1], sort_by: a asc nulls first").sort_by, "a ASC NULLS FIRST"),
    ],
    ("map", "distinct"): [(source_of("input: [1], distinct: owner.id").distinct, "owner.id")],
    ("map", "offset"): [(source_of("input: [1], offset: 2").offset, 2), (source_of("input: [1], offset: 0").offset, 0)],
    ("map", "max_items"): [(source_of("input: [1], max_items: 5").items_max, 5)],
    ("map", "redrive_parallel"): [(map_with("redrive_parallel: 4").redrive_parallel, 4), (map_with("").redrive_parallel, None)],
    ("map", "max_parallel"): [(map_with("max_parallel: 4").max_parallel, 4), (map_with("").max_parallel, None)],
    ("map", "item_timeout"): [(map_with("item_timeout: 2m").item_timeout_seconds, 120.0)],
    ("map", "timeout_per_agent"): [(map_with("timeout_per_agent: 60").item_timeout_seconds, 60.0)],
    ("map", "steps"): [
        ([(s.name, s.needs) for s in fan_of("input: [1], steps: [{shell: x}, {id: b, shell: y}]").steps],
         [("step-1", ()), ("b", (Need(("step-1",), True),))]),
        ([(s.name, s.needs) for s in fan_of("input: [1], steps: {b: {shell: x}, c: {shell: y, needs: b}}").steps],
         [("b", ()), ("c", (Need(("b",)),))]),
    ],
    ("map", "agent_template"): [
        ([s.action for s in fan_of("input: [1], agent_template: [{shell: x}, {shell: y}]").steps], [Shell("x"), Shell("y")]),
    ],
    ("setup, reduce, agent_template", "commands"): [
        ([s.action for s in fan_of("input: [1], agent_template: {commands: [{shell: x}]}").steps], [Shell("x")]),
    ],
    ("map", "error_policy"): [(map_with("error_policy: {on_item_failure: skip}").policy, ErrorPolicy("skip"))],
    ("map", "isolation"): [
        (map_with("isolation: worktree").isolation, "worktree"), (map_with("isolation: none").isolation, "none")
    ],
    ("map", "branch"): [(map_with("isolation: worktree, branch: a/b-c").branch, "a/b-c"), (map_with("").branch, "")],
    ("map", "merge"): [
        (map_with("isolation: worktree, merge: false").merge, False), (map_with("isolation: worktree").merge, True)
    ],
    ("error_policy", "on_item_failure"): [
        *((policy_with(f"on_item_failure: {word}"), ErrorPolicy(word)) for word in ("skip", "stop", "fail", "carry_on")),  # type: ignore[arg-type]
        (policy_with("on_item_failure: dlq"), ErrorPolicy("fail")),
        (policy_with("on_item_failure: retry"), ErrorPolicy("fail", attempts_max=3, backoff=EXPONENTIAL)),
        (policy_with("on_item_failure: retry, continue_on_failure: true").on_item_failure, "retry"),
        (
            [(r.then, r.match) for r in fan(compiled(SHARED).steps[0]).steps[0].rules],
            [("recovered", Match()), ("retry", Match(codes=(3,)))],
        ),
    ],
    ("error_policy", "continue_on_failure"): [
        (policy_with("continue_on_failure: false").continue_on_failure, False),
        (policy_with("continue_on_failure: true"), ErrorPolicy()),
    ],
    ("error_policy", "max_failures"): [(policy_with("max_failures: 7"), ErrorPolicy(failures_max=7))],
    ("error_policy", "failure_threshold"): [
        (policy_with("failure_threshold: 0.2"), ErrorPolicy(failure_threshold=0.2)), (policy_with("failure_threshold: 0").failure_threshold, 0.0)
    ],
    ("error_policy", "failure_threshold_min_items"): [
        (policy_with("failure_threshold_min_items: 1").threshold_items_min, 1), (policy_with("").threshold_items_min, 10)
    ],
    ("error_policy", "error_collection"): [
        *((policy_with(f"error_collection: {word}").collection, word) for word in ("aggregate", "immediate", "batched")),
        (policy_with("error_collection: batched").batch_size, 10),
        (policy_with("error_collection: 'batched:5'"), ErrorPolicy("fail", collection="batched", batch_size=5)),
    ],
    ("error_collection", "batched"): [
        (policy_with("error_collection: {batched: 4}"), ErrorPolicy("fail", collection="batched", batch_size=4))
    ],
    ("batched", "size"): [
        (policy_with("error_collection: {batched: {size: 6}}"), ErrorPolicy("fail", collection="batched", batch_size=6))
    ],
    ("error_policy", "circuit_breaker"): [(breaker_with(""), Breaker()), (policy_with("").breaker, None)],
    ("circuit_breaker", "failure_threshold"): [(breaker_with("failure_threshold: 9"), Breaker(failure_threshold=9))],
    ("circuit_breaker", "success_threshold"): [(breaker_with("success_threshold: 2"), Breaker(success_threshold=2))],
    ("circuit_breaker", "timeout"): [(breaker_with("timeout: 500ms"), Breaker(timeout_seconds=0.5))],
    ("circuit_breaker", "half_open_requests"): [(breaker_with("half_open_requests: 1"), Breaker(half_open_requests=1))],
    ("error_policy", "retry_config"): [
        (policy_with("retry_config: {}"), ErrorPolicy("fail", attempts_max=3, backoff=EXPONENTIAL)),
        (policy_with("on_item_failure: stop, retry_config: {max_attempts: 2}"),
         ErrorPolicy("stop", attempts_max=2, backoff=EXPONENTIAL)),
    ],
    ("retry_config", "max_attempts"): [(policy_with("retry_config: {max_attempts: 5}").attempts_max, 5)],
    ("retry_config", "backoff"): [
        (policy_with(f"retry_config: {{backoff: {written}}}").backoff, meant)
        for written, meant in (
            ("{type: fixed, delay: 2s}", Backoff("fixed", 2.0)),
            ("{type: linear, initial: 1s, increment: 500ms}", Backoff("linear", 1.0, 0.5)),
            ("{exponential: {initial: 2s, multiplier: 3}}", Backoff("exponential", 2.0, multiplier=3.0)),
            ("exponential", EXPONENTIAL),
            ("linear", Backoff("linear", 1.0, 1.0)),
            ("5s", Backoff("fixed", 5.0)),
        )
    ],
    **{
        ("backoff", kind): [
            (wait_with(f"{kind}: {{initial: 2}}"), Backoff(kind, 2.0, 2.0 if kind == "linear" else 0.0)),  # type: ignore[arg-type]
            (wait_with(f"{kind}: 2s"), Backoff(kind, 2.0, 2.0 if kind == "linear" else 0.0)),  # type: ignore[arg-type]
        ]
        for kind in BACKOFF_KINDS
    },
}  # fmt: skip
