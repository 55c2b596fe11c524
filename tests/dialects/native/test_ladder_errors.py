"""What can be wrong with handlers, rules and routes in a native file, and what could be said better."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text
from resile.model.limits import REPAIR_DEPTH_MAX
from tests.dialects.native.test_native_errors import findings, step_findings, workflow_findings

UNCHECKED = ("notice: the step counts as recovered once its handler passes: nothing checks that it works now [unchecked]"
             "\n  hint: add `max_attempts: 2` to re-check")  # fmt: skip
MATCHERS = "\n  hint: list `exit_codes`, `signals`, `kinds` or a `pattern`, or say `match_all_exit_codes: true`"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("shell: x, on_failure: h", [f"f:4:17: {UNCHECKED}"]),
        ("shell: x, on_failure: {commands: h}", [f"f:4:30: {UNCHECKED}"]),
        ("shell: x, on_failure: {commands: h, max_attempts: 1}", []),
        ("shell: x, on_failure: {commands: h, fail_workflow: true}", []),
        ("shell: x, on_failure: {commands: h, strategy: custom}", []),
        ("shell: x, on_failure: [[h]]",
         ["f:4:30: error: expected a command, or a mapping with the keys of a step, not a list [type]"]),
        ("shell: x, on_failure: []", ["f:4:29: error: a handler without commands does nothing [value]"]),
        ("shell: x, on_failure: {commands: }",
         ["f:4:40: error: expected a command, or a mapping with the keys of a step, not nothing [type]"]),
        ("shell: x, on_failure: ''", ["f:4:29: error: `shell` is empty [value]", f"f:4:17: {UNCHECKED}"]),
        ("shell: x, on_failure: {shel: h}", ["f:4:30: error: on_failure has no key `shel` [unknown-key]\n  hint: did you mean `shell`?"]),
        ("shell: x, on_failure: {commands: [{shel: h}], max_attempts: 1}",
         ["f:4:41: error: the step `on_failure-1` does nothing [action]\n  hint: give it one of: `shell`, `agent`, `claude`, `validate`, `http`, `python`, `function`, `write_file`, `workflow`, `map`, `script`, `log`, `memory`, `ask`, `collect`, `query`, `noop`",
          "f:4:42: error: a step has no key `shel` [unknown-key]\n  hint: did you mean `shell`?"]),
        ("shell: x, on_failure: {commands: h, shell: i, max_attempts: 1}",
         ["f:4:30: error: `commands` and `shell` both say what the handler runs [conflict]"]),
        ("shell: x, on_failure: {strategy: cleanup}", ["f:4:30: error: `strategy` has no meaning without commands [conflict]"]),
        ("shell: x, on_failure: {timeout: 5}", ["f:4:30: error: `timeout` has no meaning without commands [conflict]"]),
        ("shell: x, on_failure: {capture: v}", ["f:4:30: error: `capture` has no meaning without commands [conflict]"]),
        ("shell: x, on_failure: {handler_failure_fatal: true}",
         ["f:4:30: error: `handler_failure_fatal` has no meaning without commands [conflict]"]),
        ("shell: x, on_failure: {shell: h, strategy: hope}",
         ["f:4:50: error: expected one of recovery, fallback, cleanup, custom, not `hope` [type]", f"f:4:30: {UNCHECKED}"]),
        ("shell: x, on_failure: {shell: h, max_attempts: 0}",
         ["f:4:54: error: `0` is out of bounds: expected a whole number from 1 to 1000 [value]", f"f:4:30: {UNCHECKED}"]),
        ("shell: x, on_failure: {shell: h, max_attempts: 2, max_retries: 2}",
         ["f:4:57: error: `max_retries` and `max_attempts` say the same thing [conflict]"]),
        ("shell: x, on_failure: {shell: h, max_attempts: 1, capture: steps}",
         ["f:4:66: error: `steps` is reserved and can't be captured [reserved]"]),
        ("shell: x, on_failure: {shell: h, max_attempts: 1, capture: {v: [x]}}", ["f:4:70: error: expected a label, not a list [type]"]),
        ("shell: x, on_failure: {shell: h, retry_original: true}",
         ["f:4:40: notice: `retry_original` is not needed any more [deprecated]\n  hint: `max_attempts: 2` or more runs the step again"]),
        ("shell: x, on_failure: {shell: h, retry_original: false, max_attempts: 2}",
         ["f:4:40: notice: `retry_original` is not needed any more [deprecated]\n  hint: `max_attempts: 2` or more runs the step again"]),
        ("shell: x, on_failure: h, max_attempts: 2",
         ["f:4:32: notice: `max_attempts` beside `on_failure` is taken as if it stood inside [beside]\n  hint: write `max_attempts` inside `on_failure`"]),
        ("shell: x, on_failure: {shell: h, max_attempts: 2}, max_retries: 3",
         ["f:4:58: notice: `max_retries` beside `on_failure` changes nothing: the one inside it counts [beside]\n  hint: write `max_retries` inside `on_failure`"]),
        ("shell: x, max_attempts: 2",
         ["f:4:17: error: `max_attempts` belongs to `on_failure`, and there is none [conflict]\n  hint: to try again without a handler: `retry: {max: …}`"]),
        ("shell: x, retry: 1, on_failure: {retry: 1}",
         ["f:4:17: error: `retry` stands here and in `on_failure` [conflict]\n  hint: keep one of them"]),
        ("shell: x, park: true, fail_workflow: false",
         ["f:4:17: error: `park` takes every failure that is left, so `fail_workflow` would never apply [conflict]\n  hint: keep one of them"]),
        ("shell: x, continue_on_error: true",
         ["f:4:17: error: `continue_on_error` has a meaning only in a handler [conflict]\n  hint: `on_failure: true` lets dependents of a failed step go on"]),
        ("shell: x, on_failure: {commands: [{shell: h, needs: a}], max_attempts: 1}",
         ["f:4:52: error: a command of a handler takes no `needs`: its commands run in the order in which they are written [reserved]"]),
        ("shell: x, on_failure: {commands: [{id: q, shell: h}, {id: q, shell: i}], max_attempts: 1}",
         ["f:4:65: error: the step `q` is here twice [duplicate]"]),
        ("shell: x, on_failure: {commands: [{id: end, shell: h}], max_attempts: 1}",
         ["f:4:46: error: the step name `end` is the name of the step that runs last [name]"]),
        ("shell: x, failure_handler: solver",
         ["f:4:34: error: there is no failure handler `solver` [unknown-handler]\n  hint: declare it under `failure_handlers`"]),
        ("shell: x, failure_handler: [a]", ["f:4:34: error: expected the name of a failure handler, not a list [type]"]),
        ("shell: x, resources: {cpus: 1, enforce: true}",
         ["f:4:28: error: `enforce` has no `memory` to enforce [conflict]\n  hint: add `memory: 512m`"]),
        ("shell: x, resources: {escalate: {}}",
         ["f:4:39: error: `escalate` has neither `memory` nor `runtime` to start from [conflict]\n  hint: say in `resources` what the first attempt has"]),
        ("shell: x, resources: {memory: 1g, escalate: {factor: 1}}", ["f:4:60: error: `1` is out of bounds: from 1.01 to 100 [value]"]),
        ("shell: x, on_success: true", ["f:4:29: error: expected a command, a step or a list of these, not `true` [type]"]),
        ("shell: x, on_success: []", ["f:4:29: error: expected a command, a step or a list of these, not a list [type]"]),
        ("shell: x, on_failure: {commands: [{id: on_failure-2, shell: h}, i], max_attempts: 1}",
         ["f:4:71: error: the step `on_failure-2` is here twice [duplicate]"]),
        ("shell: x, on_failure: [" + "h, " * 1_001 + "]", ["f:4:30: error: 1001 commands are more than 1000 [limit]"]),
        ("shell: x, on_success: {}", ["f:4:29: error: the step `on_success-1` does nothing [action]\n  hint: give it one of: `shell`, `agent`, `claude`, `validate`, `http`, `python`, `function`, `write_file`, `workflow`, `map`, `script`, `log`, `memory`, `ask`, `collect`, `query`, `noop`"]),
        ("shell: x, on_success: {shell: y, tmeout: 1}", ["f:4:40: error: a step has no key `tmeout` [unknown-key]\n  hint: did you mean `timeout`?"]),
        ("write_file: {path: f}", ["f:4:19: error: `write_file` needs `content` [value]"]),
        ("write_file: {path: f, content: x, mode: rwx}", ["f:4:47: error: expected permissions such as 644 or 0755, not `rwx` [type]"]),
        ("write_file: {path: f, content: x}, commit_required: true",
         ["f:4:42: error: `commit_required` has no meaning for `write_file`, which makes no commit [action]"]),
        ("agent: ' '", ["f:4:14: error: the prompt is empty [value]"]),
        ("agent: a, claude: b", ["f:4:17: error: `claude` and `agent` say the same thing [conflict]",
                                 "f:4:17: error: a step does one thing: `agent` or `claude` [action]"]),
        ("validate: x, shell_program: fish", ["f:4:35: error: expected one of sh, bash, dash, ash, ksh, mksh, zsh (or a path to one), not `fish` [type]"
                                              "\n  hint: call any other program as the command itself"]),
    ],
)  # fmt: skip
def test_step_keys(keys: str, expected: list[str]) -> None:
    """Each wrong or improvable answer to a failure is named with its place."""
    assert sorted(step_findings(keys)) == sorted(expected)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("goto: s", ["`s` can't go back to itself", "`retry` runs a step again"]),
        ("goto: z", ["`z` comes after `s`, and `goto` leads back", "`next` leads on to another step"]),
        ("goto: u", ["`u` does not come before `s`, and `goto` leads back",
                     "a step can go back to what it `needs`; `run: [u]` runs a step as a remedy"]),
        ("goto: q", ["there is no step `q`", "steps: `a`, `s`, `z`, `u`"]),
        ("goto: end", ["`goto` can't name `end`", "`end` runs last, by itself"]),
        ("goto: ", ["expected a step's name, not nothing", ""]),
        ("goto: [a]", ["expected text, not a list", ""]),
        ("goto_js: ''", ["the expression is empty", ""]),
        ("run: [q]", ["there is no step `q`", "steps: `a`, `s`, `z`, `u`"]),
        ("run: [s]", ["`s` can't be its own remedy", "`retry` runs a step again"]),
        ("run: [end]", ["`run` can't name `end`", "`end` runs last, by itself"]),
        ("transitions: {}", ["expected a list of {when, to}, not a mapping", ""]),
        ("transitions: [{when: x}]", ["a transition needs `to`", ""]),
        ("transitions: [{to: a}]", ["a transition needs `when`", ""]),
        ("transitions: [{when: x, to: z}]", ["`z` comes after `s`, and `goto` leads back", "`next` leads on to another step"]),
        ("run_js: " + "x" * 8193, ["the expression has more than 8192 bytes", ""]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["on_failure", "on_success"])
def test_routes(key: str, keys: str, expected: list[str]) -> None:
    """B15 to B18: a route that can't be taken is refused when the file is loaded, with what to do instead."""
    text = f"resile: 1\nsteps:\n  a: {{shell: x}}\n  s: {{shell: x, needs: [a], {key}: {{{keys}}}}}\n"
    text += "  z: {shell: x, needs: [s]}\n  u: {shell: x}\n"
    (finding,) = compile_text(text).diagnostics
    assert [finding.severity, finding.message, finding.hint] == ["error", *expected]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("recovery_script: x", ["f:2:32: error: this rule matches no failure [value]" + MATCHERS]),
        ("match_all_exit_codes: false", ["f:2:32: error: this rule matches no failure [value]" + MATCHERS]),
        ("match_all_exit_codes: true, exit_codes: 1",
         ["f:2:33: error: `match_all_exit_codes` and `exit_codes` contradict each other [conflict]"]),
        ("exit_codes: 256", ["f:2:32: error: this rule matches no failure [value]" + MATCHERS,
                             "f:2:45: error: `256` is out of bounds: expected a whole number from 0 to 255 [value]"]),
        ("exit_codes: 1, signals: FOO", ["f:2:57: error: expected a signal, such as KILL, SIGTERM or 9, not `FOO` [type]"]),
        ("exit_codes: 1, signals: 99", ["f:2:57: error: expected a signal, such as KILL, SIGTERM or 9, not `99` [type]"]),
        ("exit_codes: 1, kinds: oomm", ["f:2:55: error: expected one of exit, signal, timeout, oom, lost, spawn, check, contract, not `oomm` [type]"
                                        "\n  hint: did you mean `oom`?"]),
        ("exit_codes: 1, pattern: '('",
         ["f:2:57: error: `(` is no regular expression: missing ): ( [value]"]),
        ("exit_codes: 1, timeout: 5", ["f:2:48: error: `timeout` has no meaning without `recovery_script` [conflict]"]),
        ("exit_codes: 1, on_script_failure: fail",
         ["f:2:48: error: `on_script_failure` has no meaning without `recovery_script` [conflict]"]),
        ("exit_codes: 1, max_retries: -1",
         ["f:2:61: error: `-1` is out of bounds: expected a whole number from 0 to 1000 [value]"]),
    ],
)  # fmt: skip
def test_rules(rule: str, expected: list[str]) -> None:
    """Each wrong value in a rule is named with its place."""
    assert workflow_findings(f"failure_handlers: {{h: {{rules: [{{{rule}}}]}}}}") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("failure_handlers: [h]", ["f:2:19: error: expected a mapping of names to rules, not a list [type]"]),
        ("failure_handlers: {h: {}}", ["f:2:20: error: the failure handler `h` needs a list of `rules` [value]"]),
        ("failure_handlers: {h: {rules: []}}", ["f:2:20: error: the failure handler `h` needs a list of `rules` [value]"]),
        ("failure_handlers: {h: 1}", ["f:2:23: error: a failure handler must be a mapping, not `1` [type]"]),
        ("routing: {max_loops: -1}", ["f:2:22: error: `-1` is out of bounds: expected a whole number from 0 to 10000 [value]"]),
        ("routing: {max_loops: abc}", ["f:2:22: error: expected a whole number from 0 to 10000, not `abc` [type]"]),
        ("routing: {defaults: {on_failure: {shell: x}}}",
         ["f:2:35: error: routing.defaults.on_failure has no key `shell` [unknown-key]\n  hint: keys: `retry`, `run`, `run_js`, `goto`, `goto_js`, "
          "`transitions`, `fail_workflow`"]),
        ("routing: {defaults: {on_failure: {goto: q}}}", ["f:2:41: error: there is no step `q` [unknown-step]\n  hint: steps: `a`"]),
        ("agent: {command: []}", ["f:2:18: error: expected the words of a command, not a list [type]\n  hint: command: [claude, -p]"]),
        ("agent: {command: 'a | b'}", ["f:2:18: error: expected the words of a command, not `a | b` [type]\n  hint: command: [claude, -p]"]),
        ("agent: {max_cost: 0}", ["f:2:19: error: `0` is out of bounds: from 1e-06 to 1e+06 [value]"]),
        ("agent: {prompt: mail}", ["f:2:17: error: expected one of argument, stdin, not `mail` [type]"]),
    ],
)  # fmt: skip
def test_workflow_keys(line: str, expected: list[str]) -> None:
    """B21, B22: each wrong value at the top of a file is named with its place."""
    assert workflow_findings(line) == expected


def test_a_dangling_on_failure_belongs_to_the_step_before_it() -> None:
    """A list entry that is nothing but `on_failure` is attached with a notice; alone or twice it is refused."""
    text = "resile: 1\nsteps:\n- shell: x\n- on_failure: {shell: h}\n  max_attempts: 2\n- shell: y\n"
    assert [finding.split(" [")[0] for finding in findings(text)] == [
        "f:4:3: notice: `on_failure` stands alone in the list: it is taken as a key of the step before it",
        "f:5:3: notice: `max_attempts` beside `on_failure` is taken as if it stood inside",
    ]
    workflow = compile_text(text).workflow
    assert workflow is not None
    assert [(step.name, [rule.then for rule in step.rules]) for step in workflow.steps] == [
        ("step-1", ["retry"]),
        ("step-2", []),
    ]
    assert findings("resile: 1\nsteps:\n- on_failure: h\n- shell: x\n") == [
        "f:3:3: error: `on_failure` stands alone, and there is no step before it [action]"
    ]
    assert findings("resile: 1\nsteps:\n- {shell: x, on_failure: true}\n- on_failure: h\n") == [
        "f:4:3: error: `on_failure` stands alone, and the step before it has one [conflict]\n  hint: keep one of them"
    ]


def test_handlers_nest_to_a_depth() -> None:
    """Eight levels are read, the ninth is refused."""
    handler = "{shell: h, max_attempts: 2}"
    for _ in range(REPAIR_DEPTH_MAX - 1):
        handler = f"{{max_attempts: 2, commands: [{{shell: h, on_failure: {handler}}}]}}"
    assert step_findings(f"shell: x, on_failure: {handler}") == []
    deeper = f"shell: x, on_failure: {{max_attempts: 2, commands: [{{shell: h, on_failure: {handler}}}]}}"
    (finding,) = step_findings(deeper)
    assert "error: handlers of handlers go no deeper than 8 levels [limit]" in finding


def test_remedies_that_wait_for_each_other_are_refused() -> None:
    """A step and its remedy can't both be the other's remedy; and a remedy goes back to nobody but its caller."""
    text = "resile: 1\nsteps:\n  a: {shell: x, on_failure: {run: b}}\n  b: {shell: x, on_failure: {run: a}}\n"
    assert [finding.partition(" [")[0] for finding in findings(text)] == [
        "f:3:35: error: `b` is a remedy of `a`, and the other way round",
        "f:4:35: error: `a` is a remedy of `b`, and the other way round",
    ]
    text = (
        "resile: 1\nsteps:\n  a: {shell: x, on_failure: {run: b}}\n  b: {shell: x, needs: a, on_failure: {goto: a}}\n"
    )
    assert [finding.partition(" [")[0] for finding in findings(text)] == [
        "f:4:3: error: `b` runs only as a remedy and can't go back"
    ]


def test_a_command_of_a_handler_goes_back_within_it() -> None:
    """`goto` inside a handler names a command before; a step of the workflow is out of reach."""
    text = "resile: 1\nsteps:\n  a: {{shell: x}}\n  s:\n    shell: x\n    needs: a\n    on_failure:\n      max_attempts: 2\n"
    text += "      commands: [{{id: one, shell: h}}, {{id: two, shell: i, on_failure: {{goto: {0}}}}}]\n"
    assert findings(text.format("one")) == []
    assert findings(text.format("a")) == [
        "f:9:78: error: no command `a` stands before this one in its handler [goto]\n  hint: before it: `one`"
    ]


def test_end_answers_failures_like_any_other_step() -> None:
    """It may have a handler and remedies, but there is no way back from it."""
    text = "resile: 1\nsteps:\n  a: {shell: x}\n  f: {shell: x}\n"
    assert findings(text + "  end: {shell: x, on_failure: {shell: h, max_attempts: 2, run: f}}\n") == []
    (finding,) = findings(text + "  end: {shell: x, on_failure: {goto: a}}\n")
    assert finding.startswith("f:5:38: error: `end` can't go back [goto]")


VALUES = "${error.message} ${error.exit_code} ${shell.output} ${steps.s.output}"


@pytest.mark.parametrize(
    ("s", "expected"),
    [
        (f"on_failure: 'echo {VALUES}', max_attempts: 2", ["notice"]),
        (f"on_failure: {{commands: [{{shell: y, id: one, capture: v}}, 'echo {VALUES} ${{steps.one.output}} ${{v.x}}'], max_attempts: 2}}", []),
        (f"on_failure: {{run: f}}, env: {{A: '{VALUES}'}}", ["warning"] * 4),
        ("on_failure: {shell: 'echo ${error.mesage}', max_attempts: 2}", ["error: `${error.mesage}`: `error` has no `mesage`"]),
        ("on_failure: {shell: 'echo ${shell.err}', max_attempts: 2}", ["error: `${shell.err}`: `shell` has no `err`"]),
        ("on_success: 'echo ${error.message} ${steps.s.output}'", ["warning"]),
        ("on_success: {shell: z, on_failure: {shell: 'echo ${error.message}', max_attempts: 2}}", []),
        ("on_failure: {shell: 'cat <<${error.message}', max_attempts: 2}", ["error: `${error.message}`: no value can be put here safely"]),
    ],
)  # fmt: skip
def test_the_failure_is_known_where_it_is_answered(s: str, expected: list[str]) -> None:
    """`error` and `shell.output` have values in handlers and remedies, and a warning elsewhere."""
    text = f"resile: 1\nsteps:\n  s: {{shell: x, {s}}}\n  f: {{shell: 'echo ${{error.message}} ${{shell.output}}'}}\n"
    found = findings(text)
    if "run: f" not in s:
        assert [line.partition(": ")[2].partition(":")[0] for line in found[-2:]] == ["warning", "warning"]
        found = found[:-2]
    assert len(found) == len(expected)
    for line, words in zip(found, expected, strict=True):
        assert line.partition(": ")[2].startswith(words)
