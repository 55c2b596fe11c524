"""Keys that say a field of the model as it is: what is wrong with a value is named with its place."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from pathlib import Path

import pytest

from resile.dialects.compile import compile_text


def findings(keys: str, above: str = "") -> list[str]:
    """The errors of a file with a step of these keys in its fourth line."""
    text = f"resile: 1\n{above}\nsteps:\n  s: {{{keys}}}\n"
    return [
        finding.render()
        for finding in compile_text(text, file="f", folder="/f").diagnostics
        if finding.severity == "error"
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("shell: x, join: all", ["f:4:17: error: `join` is for steps that arcs lead to [conflict]\n  hint: no `next` names this one: take `join` out"]),
        ("script: ''", ["f:4:15: error: the expression is empty [value]"]),
        ("script: {namespace: n}", ["f:4:15: error: script needs `code` [value]"]),
        ("log: {message: x, level: loud}", ["f:4:32: error: expected one of debug, info, warn, error, not `loud` [type]"]),
        ("memory: {operation: set, key: k}", ["f:4:15: error: `set` needs `value` or `code` [conflict]"]),
        ("memory: {operation: list, key: k}", ["f:4:15: error: `list` takes no `key` [conflict]"]),
        ("memory: {operation: get}", ["f:4:15: error: `get` needs `key` [conflict]"]),
        ("memory: {operation: get, key: k, value: 1}", ["f:4:15: error: `get` takes no `value` [conflict]"]),
        ("memory: {operation: set, key: k, value: 1, code: q}", ["f:4:15: error: `value` and `code` say the same thing [conflict]"]),
        ("collect: {a: {}}", ["f:4:20: error: `a` needs `code`, or a template [value]"]),
        ("collect: [a]", ["f:4:16: error: expected a mapping of names to templates, or to {code}, not a list [type]"]),
        ("query: {engine: oracle}", ["f:4:23: error: `query`: invalid enum value 'oracle' [type]"]),
        ("query: {engine: duckdb, sql: x}", ["f:4:31: error: there is no key `sql` here [unknown-key]\n  hint: keys: `engine`, "
                                             "`statements`, `file`, `auth`, `database`, `params`, `table`, `rows`, `columns`, `key`"]),
        ("function: {name: f}", ["f:4:17: error: `function` needs `file` or `module`, one of them [value]"]),
        ("function: {name: f, file: f.py, module: m}", ["f:4:17: error: `function` needs `file` or `module`, one of them [value]"]),
        ("function: {name: f, module: m, arg: []}",
         ["f:4:38: error: there is no key `arg` here [unknown-key]\n  hint: did you mean `args`?"]),
        ("function: {name: f, module: m, args: [[stap, a]]}", ["f:4:46: error: `function`: invalid enum value 'stap' [type]"]),
        ("function: {name: f, module: m, args: [[list, [[stap, a]]]]}",
         ["f:4:17: error: an argument of `f`: `stap` is no kind of argument: did you mean `step`? [value]"]),
        ("function: {name: f, module: m, args: [[list, [3]]]}",
         ["f:4:17: error: an argument of `f`: each is a pair of a kind and a value [value]"]),
        ("function: {name: f, module: m, args: [[mapping, [3]]]}",
         ["f:4:17: error: an argument of `f`: `mapping` takes a mapping of arguments [value]"]),
        ("function: {name: f, module: m, args: [[step, 3]]}", ["f:4:17: error: an argument of `f`: `step` takes a name [value]"]),
        ("function: {name: f, module: m, args: [[list, [[step, a]]]]}",
         ["f:4:7: error: an argument is what `a` gave, which the step does not need [unknown-step]\n  hint: needs: [a]"]),
        ("function: {name: f, module: m, kwargs: {k: [input, a]}}", ["f:4:7: error: there is no input `a` [unknown-name]"]),
        ("function: {name: f, module: m, args: [[item]]}", ["f:4:7: error: an argument is the item, and there is none here [unknown-name]"]),
        ("function: {name: f, module: m, args: [[execution]]}",
         ["f:4:7: error: an argument is how the run went, which only `end` knows [unknown-name]"]),
        ("function: {name: f, module: m}, capture: x",
         ["f:4:39: error: `capture` has no meaning for `function`, whose result is its value [action]"]),
        ("function: {name: f, module: m, workers: threads}, env: {A: b}",
         ["f:4:57: error: `env` has a meaning only in worker processes: threads share one environment [action]"
          "\n  hint: `processes` as workers, or an argument"]),
        ("shell: x, on_failure: {commands: [{function: {name: f, module: m}}]}",
         ["f:4:42: error: a command of a handler takes no `function`: functions are steps of the workflow, which `run` can name [reserved]"]),
        ("noop: true, stdin: x", ["f:4:19: error: `stdin` has no meaning without `shell` [action]"]),
        ("noop: true, checks: []", ["f:4:19: error: `noop` has no output that could become something [action]"]),
        ("noop: true, result: x", ["f:4:19: error: `result` has no meaning without `workflow` [action]"]),
        ("shell: x, in_order: true", ["f:4:17: error: `in_order` has a meaning only for the steps of items [conflict]"]),
        ("shell: x, checks: [{name: n, code: c}]", ["f:4:26: error: a check needs `must` [value]"]),
        ("shell: x, cases: [{on_failure: true}]", ["f:4:25: error: expected a case with `when`, not a mapping [type]"]),
        ("shell: x, effects: [{kind: sit}]", ["f:4:34: error: `effects`: invalid enum value 'sit' [type]"]),
        ("shell: x, when: {js: a, code: b}", ["f:4:23: error: a condition needs `value`, `js` or another language, one of them [value]"]),
        ("shell: x, rules: {}", ["f:4:24: error: expected a list of rules, not a mapping [type]"]),
        ("shell: x, rules: [{limit: 1}]", ["f:4:25: error: a rule needs `then`: what follows [value]"]),
        ("shell: x, rules: [{then: goto}]", ["f:4:25: error: a rule goes somewhere if it says `then: goto`, and only then [conflict]"
                                             "\n  hint: `goto`, `goto_js` or `transitions` says where"]),
        ("shell: x, rules: [{then: park, halts: true}]", ["f:4:38: error: `halts` has no meaning in this rule [conflict]"]),
        ("shell: x, rules: [{then: fail, retries_anyway: true}]", ["f:4:38: error: `retries_anyway` has no meaning in this rule [conflict]"]),
        ("shell: x, rules: [{then: retry, run: [q]}]", ["f:4:45: error: there is no step `q` [unknown-step]\n  hint: steps: `s`"]),
        ("shell: x, retry: {max: 1, backoff: {initial: 1s, jitter_of: delay}}",
         ["f:4:56: error: `jitter_of` has no meaning without `jitter` [conflict]"]),
        ("shell: x, on_success: {run_cost: 1, commands: x, shell: y}",
         ["f:4:43: error: `commands` and the keys of a step both say what runs [conflict]"]),
        ("map: {input: [1], filter_bare: true, steps: [{shell: x}]}",
         ["f:4:25: error: `filter_bare` has no meaning without `filter` [conflict]"]),
        ("workflow: {steps: {}}", ["f:4:25: error: `steps` is empty [value]\n  hint: there must be at least one step"]),
    ],
)  # fmt: skip
def test_step_keys(keys: str, expected: list[str]) -> None:
    """Each wrong value in a step."""
    assert findings(keys) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("templates: mustache", ["f:2:12: error: expected one of dollar, liquid, jinja, not `mustache` [type]"]),
        ("memory_file: {load: true}", ["f:2:14: error: memory_file needs `path` [value]"]),
        ("cluster: {schedulers: {b: {}}}", ["f:2:23: error: `cluster`: object missing required field `walltime_seconds` [type]"]),
        ("cluster: {schedulers: {b: {walltime_seconds: 1, nodez: 2}}}",
         ["f:2:49: error: there is no key `nodez` here [unknown-key]\n  hint: did you mean `nodes`?"]),
    ],
)  # fmt: skip
def test_workflow_keys(line: str, expected: list[str]) -> None:
    """Each wrong value above the steps."""
    assert findings("shell: x", line) == expected


def test_functions_and_what_stands_above_them() -> None:
    """A workflow that calls functions has no secrets, and no environment of its own where threads call them."""
    assert findings("function: {name: f, module: m}", "secrets: [TOKEN]") == [
        "f:2:1: error: a workflow that calls functions takes no `secrets`: what they print and return is kept as it is"
        " [conflict]\n  hint: functions read the environment themselves"
    ]
    assert findings("function: {name: f, module: m}", "env: {A: b}") == []
    assert findings("function: {name: f, module: m, workers: threads}", "env: {A: b}") == [
        "f:2:1: error: `env` has a meaning only in worker processes: threads share one environment [action]"
        "\n  hint: `processes` as workers, or an argument"
    ]


def test_other_templates_have_no_references() -> None:
    """Where texts are in another language, `${…}` is left alone; in Liquid a url begins with its server or one output."""
    assert findings("shell: 'echo ${steps.nobody.output}'", "templates: jinja") == []
    assert findings("http: 'http://{{ host }}{{ path }}'", "templates: jinja") == []
    assert findings("http: '{{ url }}/path'", "templates: liquid") == []
    (found,) = findings("http: 'http://{{ host }}/'", "templates: liquid")
    assert found.startswith("f:4:13: error: `http://{{ host }}/`: a value can't decide on the scheme or the server")


def test_workflows_in_workflows_have_a_depth() -> None:
    """What stands in a step that stands in a step comes to an end."""
    text = "noop: true"
    for _ in range(10):
        text = f"workflow: {{steps: {{s: {{{text}}}}}}}"
    assert [found.partition(": error: ")[2] for found in findings(text)] == [
        "workflows in workflows go no deeper than 8 levels [limit]"
    ]


def test_the_file_of_a_function_is_there_or_can_be_written_before(tmp_path: Path) -> None:
    """One that nothing could write before its call is missed when the workflow is compiled, at its place."""
    (tmp_path / "flow.py").write_text("")
    call = "function: {name: f, file: F}"
    hint = "\n  hint: a path is relative to the workflow file; a step that the call needs may write it"

    def told(steps: str, file: str) -> list[str]:
        """What is said of a file with these steps in its second line."""
        text = f"resile: 1\nsteps: {steps.replace('CALL', call.replace('F', file))}\n"
        return [finding.render() for finding in compile_text(text, file="w", folder=str(tmp_path)).diagnostics]

    def missing(column: int, file: str) -> list[str]:
        """The one finding."""
        return [f"w:2:{column}: error: there is no file `{tmp_path}/{file}` [file]{hint}"]

    assert told("{s: {CALL}}", "flow.py") == told("{s: {CALL}}", str(tmp_path / "flow.py")) == []
    assert told("{s: {CALL}}", "flaw.py") == missing(39, "flaw.py")
    assert told("{a: {noop: true}, s: {CALL}}", ".") == missing(56, ".")
    assert told("[{CALL}, {noop: true}]", "flaw.py") == missing(36, "flaw.py")
    for steps in (
        "{a: {noop: true}, s: {CALL, needs: a}}",
        "{a: {noop: true, next: s}, s: {CALL}}",
        "[{noop: true}, {CALL}]",
        "{a: {shell: x, on_failure: {run: [s]}}, s: {CALL}}",
        "{a: {map: {input: [1], steps: [{CALL}]}}}",
        "{a: {workflow: {steps: {s: {CALL}}}}}",
        "{a: {noop: true}, end: {CALL}}",
    ):
        assert told(steps, "flaw.py") == []
