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
        ("shell: x, ir: {join: all}", ["f:4:22: error: `join` is for steps that arcs lead to [conflict]\n  hint: no `next` names this one: take `join` out"]),
        ("ir: {script: ''}", ["f:4:20: error: the expression is empty [value]"]),
        ("ir: {script: {namespace: n}}", ["f:4:20: error: script needs `code` [value]"]),
        ("ir: {log: {message: x, level: loud}}", ["f:4:37: error: expected one of debug, info, warn, error, not `loud` [type]"]),
        ("ir: {memory: {operation: set, key: k}}", ["f:4:20: error: `set` needs `value` or `code` [conflict]"]),
        ("ir: {memory: {operation: list, key: k}}", ["f:4:20: error: `list` takes no `key` [conflict]"]),
        ("ir: {memory: {operation: get}}", ["f:4:20: error: `get` needs `key` [conflict]"]),
        ("ir: {memory: {operation: get, key: k, value: 1}}", ["f:4:20: error: `get` takes no `value` [conflict]"]),
        ("ir: {memory: {operation: set, key: k, value: 1, code: q}}", ["f:4:20: error: `value` and `code` say the same thing [conflict]"]),
        ("ir: {collect: {a: {}}}", ["f:4:25: error: `a` needs `code`, or a template [value]"]),
        ("ir: {collect: {a: {code: q, template: t}}}", ["f:4:35: error: a collected value has no key `template` [unknown-key]\n  hint: keys: `code`"]),
        ("ir: {collect: [a]}", ["f:4:21: error: expected a mapping of names to templates, or to {code}, not a list [type]"]),
        ("ir: {query: {engine: oracle}}", ["f:4:28: error: `query` needs an `engine`: duckdb or postgres, not `oracle` [value]\n  hint: any other database: its client, in `shell`"]),
        ("ir: {query: {engine: duckdb, sql: x}}", ["f:4:36: error: there is no key `sql` here [unknown-key]\n  hint: keys: `engine`, "
                                             "`statements`, `file`, `auth`, `database`, `params`, `table`, `rows`, `columns`, `key` and 1 more"]),
        ("ir: {function: {name: f}}", ["f:4:22: error: `function` needs `file` or `module`, one of them [value]"]),
        ("ir: {function: {name: f, file: f.py, module: m}}", ["f:4:22: error: `function` needs `file` or `module`, one of them [value]"]),
        ("ir: {function: {name: f, module: m, arg: []}}",
         ["f:4:43: error: there is no key `arg` here [unknown-key]\n  hint: did you mean `args`?"]),
        ("ir: {function: {name: f, module: m, args: [[stap, a]]}}", ["f:4:51: error: `function`: invalid enum value 'stap' [type]"]),
        ("ir: {function: {name: f, module: m, args: [[list, [[stap, a]]]]}}",
         ["f:4:22: error: an argument of `f`: `stap` is no kind of argument: did you mean `step`? [value]"]),
        ("ir: {function: {name: f, module: m, args: [[list, [3]]]}}",
         ["f:4:22: error: an argument of `f`: each is a pair of a kind and a value [value]"]),
        ("ir: {function: {name: f, module: m, args: [[mapping, [3]]]}}",
         ["f:4:22: error: an argument of `f`: `mapping` takes a mapping of arguments [value]"]),
        ("ir: {function: {name: f, module: m, args: [[step, 3]]}}", ["f:4:22: error: an argument of `f`: `step` takes a name [value]"]),
        ("ir: {function: {name: f, module: m, args: [[list, [[step, a]]]]}}",
         ["f:4:12: error: an argument is what `a` gave, which the step does not need [unknown-step]\n  hint: needs: [a]"]),
        ("ir: {function: {name: f, module: m, kwargs: {k: [input, a]}}}", ["f:4:12: error: there is no input `a` [unknown-name]"]),
        ("ir: {function: {name: f, module: m, args: [[item]]}}", ["f:4:12: error: an argument is the item, and there is none here [unknown-name]"]),
        ("ir: {function: {name: f, module: m, args: [[execution]]}}",
         ["f:4:12: error: an argument is how the run went, which only `end` knows [unknown-name]"]),
        ("ir: {function: {name: f, module: m}}, capture: x",
         ["f:4:45: error: `capture` has no meaning for `function`, whose result is its value [action]"]),
        ("ir: {function: {name: f, module: m, workers: threads}}, env: {A: b}",
         ["f:4:63: error: `env` has a meaning only in worker processes: threads share one environment [action]"
          "\n  hint: `processes` as workers, or an argument"]),
        ("shell: x, on_failure: {commands: [{ir: {function: {name: f, module: m}}}]}",
         ["f:4:47: error: a command of a handler takes no `function`: functions are steps of the workflow, which `run` can name [reserved]"]),
        ("noop: true, stdin: x", ["f:4:19: error: `stdin` has no meaning without `shell` [action]"]),
        ("noop: true, ir: {checks: []}", ["f:4:24: error: `noop` has no output that could become something [action]"]),
        ("noop: true, ir: {result: x}",
         ["f:4:24: error: `ir` has no key `result` [unknown-key]\n  hint: `result` is a key of a step itself"]),
        ("noop: true, result: x", ["f:4:19: error: `result` has no meaning without `workflow` [action]"]),
        ("shell: x, ir: {in_order: true}", ["f:4:22: error: `in_order` has a meaning only for the steps of items [conflict]"]),
        ("shell: x, ir: {checks: [{name: n, code: c}]}", ["f:4:31: error: a check needs `must` [value]"]),
        ("shell: x, ir: {cases: [{on_failure: true}]}", ["f:4:30: error: expected a case with `when`, not a mapping [type]"]),
        ("shell: x, ir: {effects: [{kind: sit}]}", ["f:4:39: error: `effects`: invalid enum value 'sit' [type]"]),
        ("shell: x, when: {js: a, code: b}", ["f:4:23: error: a condition needs `value`, `js` or another language, one of them [value]"]),
        ("shell: x, ir: {rules: {}}", ["f:4:29: error: expected a list of rules, not a mapping [type]"]),
        ("shell: x, ir: {rules: [h]}", ["f:4:30: error: there is no failure handler `h` [unknown-handler]"
         "\n  hint: declare it under `failure_handlers`"]),
        ("shell: x, ir: {rules: [{limit: 1}]}", ["f:4:30: error: a rule needs `then`: what follows [value]"]),
        ("shell: x, ir: {rules: [{then: goto}]}", ["f:4:30: error: a rule goes somewhere if it says `then: goto`, and only then [conflict]"
                                             "\n  hint: `goto`, `goto_js` or `transitions` says where"]),
        ("shell: x, ir: {rules: [{then: park, halts: true}]}", ["f:4:43: error: `halts` has no meaning in this rule [conflict]"]),
        ("shell: x, ir: {rules: [{then: fail, retries_anyway: true}]}", ["f:4:43: error: `retries_anyway` has no meaning in this rule [conflict]"]),
        ("shell: x, ir: {rules: [{then: retry, run: [q]}]}", ["f:4:50: error: there is no step `q` [unknown-step]\n  hint: steps: `s`"]),
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
        ("ir: {templates: mustache}", ["f:2:17: error: expected one of dollar, liquid, jinja, not `mustache` [type]"]),
        ("ir: {memory_file: {load: true}}", ["f:2:19: error: memory_file needs `path` [value]"]),
        ("ir: {cluster: {schedulers: {b: {}}}}", ["f:2:28: error: `cluster`: object missing required field `walltime_seconds` [type]"]),
        ("ir: {cluster: {schedulers: {b: {walltime_seconds: 1, nodez: 2}}}}",
         ["f:2:54: error: there is no key `nodez` here [unknown-key]\n  hint: did you mean `nodes`?"]),
    ],
)  # fmt: skip
def test_workflow_keys(line: str, expected: list[str]) -> None:
    """Each wrong value above the steps."""
    assert findings("shell: x", line) == expected


def test_the_place_of_keys_for_other_systems() -> None:
    """A key that stands beside `ir` instead of under it, or the other way round, is told where it stands."""
    assert findings("shell: x, tags: [q]", "templates: jinja") == [
        "f:2:1: error: `templates` is a key for files of other systems and stands under `ir` [unknown-key]"
        "\n  hint: ir: {templates: …}",
        "f:4:17: error: `tags` is a key for files of other systems and stands under `ir` [unknown-key]"
        "\n  hint: ir: {tags: …}",
    ]
    assert findings("shell: x, ir: {retry: 1, tag: [q]}", "ir: [jinja]") == [
        "f:2:5: error: `ir` must be a mapping, not a list [type]",
        "f:4:22: error: `ir` has no key `retry` [unknown-key]\n  hint: `retry` is a key of a step itself",
        "f:4:32: error: `ir` has no key `tag` [unknown-key]\n  hint: did you mean `tags`?",
    ]


def test_functions_and_what_stands_above_them() -> None:
    """A workflow that calls functions has no secrets, and no environment of its own where threads call them."""
    assert findings("ir: {function: {name: f, module: m}}", "secrets: [TOKEN]") == [
        "f:2:1: error: a workflow that calls functions takes no `secrets`: what they print and return is kept as it is"
        " [conflict]\n  hint: functions read the environment themselves"
    ]
    assert findings("ir: {function: {name: f, module: m}}", "env: {A: b}") == []
    assert findings("ir: {function: {name: f, module: m, workers: threads}}", "env: {A: b}") == [
        "f:2:1: error: `env` has a meaning only in worker processes: threads share one environment [action]"
        "\n  hint: `processes` as workers, or an argument"
    ]


def test_other_templates_have_no_references() -> None:
    """Where texts are in another language, `${…}` is left alone; in Liquid a url begins with its server or one output."""
    assert findings("shell: 'echo ${steps.nobody.output}'", "ir: {templates: jinja}") == []
    assert findings("http: 'http://{{ host }}{{ path }}'", "ir: {templates: jinja}") == []
    assert findings("http: '{{ url }}/path'", "ir: {templates: liquid}") == []
    (found,) = findings("http: 'http://{{ host }}/'", "ir: {templates: liquid}")
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
    call = "ir: {function: {name: f, file: F}}"
    hint = "\n  hint: a path is relative to the workflow file; a step that the call needs may write it"

    def told(steps: str, file: str) -> list[str]:
        """What is said of a file with these steps in its second line."""
        text = f"resile: 1\nsteps: {steps.replace('CALL', call.replace('F', file))}\n"
        return [finding.render() for finding in compile_text(text, file="w", folder=str(tmp_path)).diagnostics
                if finding.code != "since-0.2"]  # fmt: skip

    def missing(column: int, file: str) -> list[str]:
        """The one finding."""
        return [f"w:2:{column}: error: there is no file `{tmp_path}/{file}` [file]{hint}"]

    assert told("{s: {CALL}}", "flow.py") == told("{s: {CALL}}", str(tmp_path / "flow.py")) == []
    assert told("{s: {CALL}}", "flaw.py") == missing(44, "flaw.py")
    assert told("{a: {noop: true}, s: {CALL}}", ".") == missing(61, ".")
    assert told("[{CALL}, {noop: true}]", "flaw.py") == missing(41, "flaw.py")
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
