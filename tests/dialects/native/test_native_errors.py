"""Everything that can be wrong with a native file, with its exact place, message and hint."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text
from resile.dialects.native.keys.steps import WORKFLOW
from resile.model.limits import DIAGNOSTICS_MAX, STEPS_MAX


def findings(text: str | bytes) -> list[str]:
    """The findings of a text as people read them, but for what means something else since 0.2."""
    result = compile_text(text, file="f")
    has_error = any(finding.severity == "error" for finding in result.diagnostics)
    assert (result.workflow is None) == has_error
    return [finding.render() for finding in result.diagnostics if finding.code != "since-0.2"]


def step_findings(keys: str) -> list[str]:
    """The findings of a file whose step `s`, on line 4, has these keys from column 7 on."""
    return findings(f"resile: 1\nsteps:\n  a: {{shell: x}}\n  s: {{{keys}}}\n")


def workflow_findings(line: str) -> list[str]:
    """The findings of a file with this line 2."""
    return findings(f"resile: 1\n{line}\nsteps: {{a: {{shell: x}}}}\n")


SIZE = "\n  hint: a number of bytes, or `512m`, `4g`, `4GiB`"
DURATION = "\n  hint: a number of seconds, or `500ms`, `30s`, `2m`, `1h30m`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["f:1:1: error: the file is empty [empty]\n  hint: a workflow starts with `resile: 1`"]),
        ("hello", ["f:1:1: error: this is not a workflow file: `hello` without `resile: 1` [dialect]"
                   "\n  hint: a native file is a mapping that starts with `resile: 1`; `--dialect NAME` says whose another one is"]),
        ("- a", ["f:1:1: error: this is not a workflow file: a list without `resile: 1` [dialect]"
                 "\n  hint: a native file is a mapping that starts with `resile: 1`; `--dialect NAME` says whose another one is"]),
        ("steps: {a: {shell: x}}", ["f:1:1: error: this is not a workflow file: a mapping without `resile: 1` [dialect]"
                                    "\n  hint: a native file is a mapping that starts with `resile: 1`; `--dialect NAME` says whose another one is"]),
        (b"\x00\x01binary", ["f:1:1: error: this is not a text file: byte 0 is NUL [encoding]"
                             "\n  hint: a workflow file is YAML or JSON text in UTF-8"]),
        ("resile: 2\nsteps: {a: {shell: x}}",
         ["f:1:9: error: this file is for version 2; this Resile reads version 1 [version]"
          "\n  hint: install a newer Resile, or write `resile: 1`"]),
        ("resile: 0\nsteps: {a: {shell: x}}",
         ["f:1:9: error: `0` is out of bounds: expected a whole number from 1 to 1 [value]"]),
        ("resile: 1", ["f:1:1: error: the workflow has no `steps` [value]"
                       "\n  hint: a list runs in order, a mapping by `needs`"]),
        ("resile: 1\nsteps: []",
         ["f:2:8: error: `steps` is empty [value]\n  hint: there must be at least one step"]),
        ("resile: 1\nsteps: {}",
         ["f:2:8: error: `steps` is empty [value]\n  hint: there must be at least one step"]),
        ("resile: 1\nsteps: x", ["f:2:8: error: `steps` must be a list or a mapping, not `x` [type]"]),
        ("resile: 1\nsteps: {a: x}",
         ["f:2:12: error: a step must be a mapping, not `x` [type]\n  hint: write {shell: …}"]),
        ("resile: 1\nsteps: [x, ]",
         ["f:2:9: error: a step must be a mapping, not `x` [type]\n  hint: write {shell: …}"]),
        ("resile: 1\nstps: {a: {shell: x}}",
         ["f:1:1: error: the workflow has no `steps` [value]\n  hint: a list runs in order, a mapping by `needs`",
          "f:2:1: error: the workflow has no key `stps` [unknown-key]\n  hint: did you mean `steps`?"]),
    ],
)  # fmt: skip
def test_files(text: str | bytes, expected: list[str]) -> None:
    """A file that is no workflow says what it is and what was expected."""
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("max_parallel: 0", ["f:2:15: error: `0` is out of bounds: expected a whole number from 1 to 10000 [value]"]),
        ("max_parallel: many", ["f:2:15: error: expected a whole number from 1 to 10000, not `many` [type]"]),
        ("max_parallel: true", ["f:2:15: error: expected a whole number from 1 to 10000, not `true` [type]"]),
        ("grace: -1", ["f:2:8: error: `-1` is negative: expected a duration [value]"
                       "\n  hint: a number of seconds, or `500ms`, `30s`, `2m`"]),
        ("name: ''", ["f:2:7: error: `name` is empty [value]"]),
        ("name: [a]", ["f:2:7: error: expected text, not a list [type]"]),
        ("env: [a]", ["f:2:6: error: expected a mapping of names to values, not a list [type]"]),
        ("env: {'a=b': 1}", ["f:2:7: error: `a=b` can't be the name of an environment variable [value]"]),
        ("env: {A: [1]}", ["f:2:10: error: expected text, not a list [type]"]),
        ('env: {A: "x\\0y"}', ["f:2:10: error: a NUL can't be part of a text here [value]"]),
        ("shell_program: fish", ["f:2:16: error: expected one of sh, bash, dash, ash, ksh, mksh, zsh (or a path to one), "
                                 "not `fish` [type]\n  hint: call any other program as the command itself"]),
        ("inputs: [a]", ["f:2:9: error: expected a mapping of names to defaults, not a list [type]"]),
        ("inputs: {'a b': 1}", ["f:2:10: error: `a b` can't be the name of an input [name]"]),
        ("inputs: {a: }", ["f:2:13: error: expected a default, not nothing [type]"
                           "\n  hint: an input without one: {required: true} or {type: text}"]),
        ("inputs: {a: {type: int}}", ["f:2:20: error: expected one of text, number, bool, json, not `int` [type]"
                                      "\n  hint: did you mean `number`?"]),
        ("inputs: {a: {type: number, default: x}}", ["f:2:37: error: expected a finite number, not `x` [type]"]),
        ("inputs: {a: {type: number, default: .nan}}", ["f:2:37: error: expected a finite number, not `.nan` [type]"]),
        ("inputs: {a: {type: bool, default: 1}}", ["f:2:35: error: expected true or false, not `1` [type]"]),
        ("inputs: {a: {required: true, default: 1}}",
         ["f:2:13: error: an input with a default is never required [conflict]\n  hint: take one of the two out"]),
        ("inputs: {a: {requird: true}}",
         ["f:2:14: error: an input has no key `requird` [unknown-key]\n  hint: did you mean `required`?"]),
        ("secrets: A", ["f:2:10: error: expected a list of environment variables, or a mapping, not `A` [type]"]),
        ("secrets: ['a b']", ["f:2:11: error: `a b` can't be the name of a secret [name]"]),
        ("secrets: {A: {}}", ["f:2:11: error: the secret `A` needs `env` or `file`, one of them [value]"]),
        ("secrets: {A: {env: X, file: f}}",
         ["f:2:11: error: the secret `A` needs `env` or `file`, one of them [value]"]),
        ("secrets: {A: X}", ["f:2:14: error: a secret must be a mapping, not `X` [type]"]),
        ("zzzzzz: x", ["f:2:1: error: the workflow has no key `zzzzzz` [unknown-key]\n  hint: keys: "
                            f"{', '.join(f'`{key}`' for key in list(WORKFLOW.keys)[:10])} and {len(WORKFLOW.keys) - 10} more"]),
        ("name: a\nname: b",
         ["f:3:1: error: the key `name` is here twice; the first is at 2:1 [duplicate-key]\n  hint: keep one of them"]),
    ],
)  # fmt: skip
def test_workflow_keys(line: str, expected: list[str]) -> None:
    """Each wrong value at the top of a file is named with its place."""
    assert workflow_findings(line) == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("shell: x, timeout: -1", ["f:4:26: error: `-1` is negative: expected a duration [value]" + DURATION]),
        ("shell: x, timeout: 0", ["f:4:26: error: `0` is zero: expected a duration [value]" + DURATION]),
        ("shell: x, timeout: soon", ["f:4:26: error: `soon` is not a duration: expected a duration [value]" + DURATION]),
        ("shell: x, timeout: 400d", ["f:4:26: error: `400d` is longer than 366 days: expected a duration [value]" + DURATION]),
        ("shell: x, timeout: ", ["f:4:26: error: expected a duration, not nothing [type]" + DURATION]),
        ("shell: x, timeot: 1", ["f:4:17: error: a step has no key `timeot` [unknown-key]\n  hint: did you mean `timeout`?"]),
        ("", ["f:4:3: error: the step `s` does nothing [action]\n  hint: give it one of: `shell`, `agent`, "
             "`claude`, `validate`, `http`, `python`, `function`, `write_file`, `workflow`, `map`, `script`, `log`, `memory`, `ask`, `collect`, `query`, `noop`"]),
        ("shell: x, noop: true", ["f:4:17: error: a step does one thing: `shell` or `noop` [action]"]),
        ("noop: false", ["f:4:13: error: expected true, not `false` [type]"]),
        ("noop: true, shell_program: bash", ["f:4:19: error: `shell_program` has no meaning without `shell` [action]"]),
        ("shell: ''", ["f:4:14: error: `shell` is empty [value]"]),
        ("shell: [a, b]", ["f:4:14: error: expected text, not a list [type]"]),
        ('shell: "a\\0b"', ["f:4:14: error: a NUL can't be part of a text here [value]"]),
        ("shell: x, id: y", ["f:4:17: error: in a mapping of steps the key is the name: `s` [conflict]\n  hint: take `id` out"]),
        ("shell: x, needs: [b]", ["f:4:25: error: there is no step `b` [unknown-step]\n  hint: steps: `a`, `s`"]),
        ("shell: x, needs: ['a|b']", ["f:4:25: error: there is no step `b` [unknown-step]\n  hint: steps: `a`, `s`"]),
        ("shell: x, needs: ['a|']", ["f:4:25: error: `a|` is no list of names with `|` in between [value]"]),
        ("shell: x, needs: ['a|a']", ["f:4:25: error: `a|a` is no list of names with `|` in between [value]"]),
        ("shell: x, reads: [in, 'data/*.csv']",
         ["f:4:29: warning: `data/*.csv` is the path of one file; `*` has no meaning here [pattern]\n  hint: name a folder: all that is in it counts"]),
        ("shell: x, outputs: '${env.A}/?.txt'",
         ["f:4:26: warning: `${env.A}/?.txt` is the path of one file; `?` has no meaning here [pattern]\n  hint: name a folder: all that is in it counts"]),
        ("shell: x, needs: [a, a]", ["f:4:28: warning: `a` is needed twice [duplicate]\n  hint: once is enough"]),
        ("shell: x, needs: s", ["f:4:24: error: the step `s` needs itself [cycle]"]),
        ("shell: x, needs: [end]", ["f:4:25: error: no step can need `end` [reserved]"
                                    "\n  hint: `end` runs after every other step; nothing can wait for it"]),
        ("shell: x, needs: {a: 1}", ["f:4:24: error: a need names at least one step in `any_of` [value]",
                                     "f:4:25: error: a need has no key `a` [unknown-key]\n  hint: keys: `any_of`, "
                                     "`skip_satisfies`, `failure_satisfies`"]),
        ("shell: x, next: b", ["f:4:23: error: there is no step `b` [unknown-step]\n  hint: steps: `a`, `s`"]),
        ("shell: x, next: []", ["f:4:23: error: `next` names no step [value]"]),
        ("shell: x, next: [{when: true}]", ["f:4:24: error: an arc needs `step` [value]"]),
        ("shell: x, next: [[a]]", ["f:4:24: error: expected a step's name or {step, when}, not a list [type]"]),
        ("shell: x, next: {mode: first}", ["f:4:23: error: `next` with a mode needs `arcs` [value]"]),
        ("shell: x, next: {mode: some, arcs: [a]}", ["f:4:30: error: expected one of all, first, not `some` [type]"]),
        ("shell: x, when: a == b", []),
        ("shell: x, when: ''", ["f:4:23: error: the expression is empty [value]"]),
        ("shell: x, when: [a]", ["f:4:23: error: expected text, not a list [type]"]),
        ("shell: x, retry: -1", ["f:4:24: error: `-1` is out of bounds: expected a whole number from 0 to 1000 [value]"]),
        ("shell: x, retry: 1001", ["f:4:24: error: `1001` is out of bounds: expected a whole number from 0 to 1000 [value]"]),
        ("shell: x, retry: {}", ["f:4:24: error: `retry` needs `max`: how often to try again [value]"]),
        ("shell: x, retry: {max: 1, backoff: [3]}", ["f:4:42: error: backoff must be a mapping, not a list [type]"]),
        ("shell: x, retry: {max: 1, backoff: }", ["f:4:42: error: backoff must be a mapping, not nothing [type]"]),
        ("shell: x, needs: ", []),
        ("shell: x, needs: null", []),
        ("shell: x, retry: {max: 1, backoff: {type: linear}}",
         ["f:4:42: error: `backoff` needs `initial`: the first delay [value]\n  hint: leave `backoff` out to try again at once"]),
        ("shell: x, retry: {max: 1, backoff: {initial: 1, multiplier: 2}}",
         ["f:4:55: error: `multiplier` has no meaning in a fixed backoff [conflict]\n  hint: type: exponential"]),
        ("shell: x, retry: {max: 1, backoff: {initial: 1, delay: 2}}",
         ["f:4:55: error: `delay` and `initial` say the same thing [conflict]"]),
        ("shell: x, retry: {max: 1, backoff: {initial: 1, jitter: 2}}",
         ["f:4:63: error: `2` is out of bounds: from 0 to 1 [value]"]),
        ("shell: x, on_failure: true, on_fail: true", ["f:4:35: error: `on_fail` and `on_failure` say the same thing [conflict]"]),
        ("shell: x, on_failure: true, fail_workflow: true",
         ["f:4:35: error: `on_failure` tolerates the failure, `fail_workflow: true` does not [conflict]"]),
        ("shell: x, on_failure: true, park: true",
         ["f:4:35: error: `park` takes every failure that is left, so `on_failure` would never apply [conflict]"
          "\n  hint: keep one of them"]),
        ("shell: x, rerun_on_loss: nevr", ["f:4:32: error: expected one of retry, never, not `nevr` [type]"
                                           "\n  hint: did you mean `never`?"]),
        ("shell: x, capture: 1x", ["f:4:26: error: `1x` can't be the name of a captured value [name]"
                                   "\n  hint: letters, digits and `_`, not starting with a digit"]),
        ("shell: x, capture: steps", ["f:4:26: error: `steps` is reserved and can't be captured [reserved]"]),
        ("shell: x, capture: {a: txt}", ["f:4:30: error: expected one of text, json, lines, number, bool, stderr, exit_code, combined, value, success, duration, file, "
                                         "not `txt` [type]\n  hint: did you mean `text`?"]),
        ("shell: x, capture: [a]", ["f:4:26: error: expected a name, or a mapping of names to forms, not a list [type]"]),
        ("shell: x, resources: {cpus: 0}", ["f:4:35: error: `0` is out of bounds: from 0.001 to 1e+06 [value]"]),
        ("shell: x, resources: {cpus: .nan}", ["f:4:35: error: expected a number from 0.001 to 1e+06, not `.nan` [type]"]),
        ("shell: x, resources: {memory: lots}", ["f:4:37: error: `lots` is not a size: expected a size [value]" + SIZE]),
        ("shell: x, resources: {gpus: -1}",
         ["f:4:35: error: `-1` is out of bounds: expected a whole number from 0 to 10000 [value]"]),
        ("shell: x, working_dir: ' '", ["f:4:30: error: `working_dir` is empty [value]"]),
        ("shell: x, outputs: ['']", ["f:4:27: error: an output is empty [value]"]),
    ],
)  # fmt: skip
def test_step_keys(keys: str, expected: list[str]) -> None:
    """Each wrong value in a step is named with its place."""
    assert step_findings(keys) == expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("'a|b'", "the step name `a|b` holds `|`, which separates alternatives in `needs`"),
        ('"a\\tb"', "the step name `a b` holds a control character"),
        ("''", "the step name `` is empty"),
        ("' a'", "the step name ` a` begins or ends with a blank"),
        ("x" * 201, "the step name `" + "x" * 59 + "…` is longer than 200 characters"),
        ("End", "the step name `End` is reserved: the step that runs last is called `end`"),
    ],
)
def test_step_names(name: str, problem: str) -> None:
    """Names that can't be, in a mapping and in a list."""
    assert findings(f"resile: 1\nsteps:\n  {name}: {{shell: x}}\n") == [f"f:3:3: error: {problem} [name]"]
    assert findings(f"resile: 1\nsteps:\n- id: {name}\n  shell: x\n") == [f"f:3:7: error: {problem} [name]"]


def test_a_number_in_quotes_is_text() -> None:
    """`retry: "3"` is refused as text, with the way to write the number."""
    assert step_findings('shell: x, retry: "3"') == [
        "f:4:24: error: expected a whole number from 0 to 1000, not the text `3` [type]\n  hint: a number has no quotes"
    ]


def test_longest_name() -> None:
    """Two hundred characters are a name."""
    assert findings(f"resile: 1\nsteps: {{{'x' * 200}: {{shell: x}}}}") == []


def test_duplicate_steps() -> None:
    """A step that is here twice is refused with both places."""
    text = "resile: 1\nsteps:\n- {id: a, shell: x}\n- {name: a, shell: y}\n- {id: step-4, shell: x}\n"
    assert findings(text + "- {shell: z}\n") == [
        "f:4:10: error: the step `a` is here twice; the first is at 3:8 [duplicate]",
        "f:6:3: error: the step `step-4` is here twice; the first is at 5:8 [duplicate]",
    ]
    assert findings("resile: 1\nsteps:\n  a: {shell: x}\n  a: {shell: y}\n") == [
        "f:4:3: error: the key `a` is here twice; the first is at 3:3 [duplicate-key]\n  hint: keep one of them",
    ]


def test_end_takes_no_place() -> None:
    """`end` runs last in every case, so what would say otherwise is refused."""
    text = "resile: 1\nsteps:\n  a: {shell: x}\n  end: {shell: y, needs: [a], next: a, when: true, park: true}\n"
    assert findings(text) == [
        "f:4:19: error: `end` takes no `needs`: `end` runs after every other step by itself [reserved]",
        "f:4:31: error: `end` takes no `next`: nothing runs after `end` [reserved]",
        "f:4:40: error: `end` takes no `when`: `end` runs in every case [reserved]",
        "f:4:52: error: `end` takes no `park`: `end` is the way out and can't wait for a judgement [reserved]",
    ]


def test_cycles_are_named_whole() -> None:
    """Each cycle is one finding with every step and its place; what merely waits for a cycle is not blamed."""
    text = (
        "resile: 1\nsteps:\n"
        "  a: {shell: x, needs: [c]}\n"
        "  b: {shell: x, needs: [a]}\n"
        "  c: {shell: x, needs: ['b|d']}\n"
        "  d: {shell: x}\n"
        "  e: {shell: x, needs: [a]}\n"
        "  f: {shell: x, needs: [g]}\n"
        "  g: {shell: x, needs: [f]}\n"
    )
    assert findings(text) == [
        "f:3:3: error: these steps wait for each other: `a` (3:3) needs `c` (5:3) needs `b` (4:3) needs `a` [cycle]"
        "\n  hint: take one of these needs out",
        "f:8:3: error: these steps wait for each other: `f` (8:3) needs `g` (9:3) needs `f` [cycle]"
        "\n  hint: take one of these needs out",
    ]


def test_a_list_that_goes_back() -> None:
    """In a list a need of a later step is a cycle, and the hint says why."""
    text = "resile: 1\nsteps:\n- {id: a, shell: x, needs: [b]}\n- {id: b, shell: x}\n"
    assert findings(text) == [
        "f:3:8: error: these steps wait for each other: `a` (3:8) needs `b` (4:8) needs `a` [cycle]"
        "\n  hint: a list runs in the order in which it is written"
    ]


def test_arcs_may_go_back() -> None:
    """`next` may lead to an earlier step, or to the step itself: that is a loop, and it has a budget."""
    text = (
        "resile: 1\nsteps:\n- {id: a, shell: x, capture: v}\n- {id: b, shell: x, next: [{step: a, when: '${v}'}, b]}\n"
    )
    assert findings(text) == []


def test_id_and_name() -> None:
    """A step is called by its `id`; a `name` beside it says nothing and is pointed out."""
    assert findings("resile: 1\nsteps: [{id: a, name: b, shell: x}]") == [
        "f:2:17: warning: `name` changes nothing where there is an `id` [conflict]"
    ]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("echo ${inputs.targt}", ["f:5:22: error: `${inputs.targt}`: there is no input `targt` [unknown-variable]"
                                  "\n  hint: did you mean `target`?"]),
        ("echo ${inputs.zz}", ["f:5:22: error: `${inputs.zz}`: there is no input `zz` [unknown-variable]"
                               "\n  hint: inputs: `target`"]),
        ("echo ${steps.bild.output}", ["f:5:22: error: `${steps.bild.output}`: there is no step `bild` [unknown-variable]"
                                       "\n  hint: did you mean `build`?"]),
        ("echo ${steps.build.outptu}", ["f:5:22: error: `${steps.build.outptu}`: a step has no `outptu` [unknown-variable]"
                                        "\n  hint: did you mean `output`?"]),
        ("echo ${steps.build}", ["f:5:22: error: `${steps.build}`: what of that step? One of output, exit_code, stderr, status, "
                                 "attempts, outputs [unknown-variable]\n  hint: `${steps.NAME.output}`"]),
        ("echo ${steps.build.outputs.w}", ["f:5:22: error: `${steps.build.outputs.w}`: `build` captures nothing of that name "
                                           "[unknown-variable]\n  hint: it captures: `v`"]),
        ("echo ${steps.other.output}", ["f:5:22: warning: `${steps.other.output}`: `other` may not have run when `s` starts "
                                        "[not-an-ancestor]\n  hint: add `other` to its `needs`"]),
        ("echo ${steps.s.output}", ["f:5:22: warning: `${steps.s.output}`: `s` may not have run when `s` starts "
                                    "[not-an-ancestor]\n  hint: add `s` to its `needs`"]),
        ("echo ${execution.status}",
         ["f:5:22: warning: `${execution.status}`: the execution is complete only in `end` [not-in-end]"]),
        ("echo ${execution.stat}", ["f:5:22: error: `${execution.stat}`: the execution has no `stat` [unknown-variable]"
                                    "\n  hint: did you mean `status`?"]),
        ("echo ${other.output}", ["f:5:22: warning: `${other.output}`: `other` is not known [unknown-variable]"
                                  "\n  hint: did you mean `${steps.other.output}`?"]),
        ("echo ${bild.output[0]}", ["f:5:22: warning: `${bild.output[0]}`: `bild` is not known [unknown-variable]"
                                    "\n  hint: did you mean `${steps.build.output[0]}`?"]),
        ("echo ${raw:target.x}", ["f:5:22: warning: `${raw:target.x}`: `target` is not known [unknown-variable]"
                                  "\n  hint: did you mean `${inputs.target.x}`?"]),
        ("echo ${secrets.TOK}", ["f:5:22: warning: `${secrets.TOK}`: `secrets` is not known [unknown-variable]"
                                 "\n  hint: secrets are environment variables: write `$TOK`"]),
        ("echo \"${run.id}\"", ["f:5:23: warning: `${run.id}`: `run` is not known [unknown-variable]"
                               "\n  hint: `${…}` reads inputs, env, steps, execution and captured names"]),
        ("echo ${workflow.name}", ["f:5:22: warning: `${workflow.name}`: `workflow` is not known [unknown-variable]"
                                   "\n  hint: `${…}` reads inputs, env, steps, execution and captured names"]),
        ("echo ${words[0]}", ["f:5:22: warning: `${words[0]}`: `words` is not known [unknown-variable]"
                              "\n  hint: arrays need `shell_program: bash`"]),
        ("for env in ${inputs}; do echo ${env} ${steps}; done", []),
        ("echo ${env.A.b}", ["f:5:22: error: `${env.A.b}`: `env` has the form `${env.NAME}` [unknown-variable]"]),
        ("echo ${input.target}", ["f:5:22: warning: `${input.target}`: `input` is not known [unknown-variable]"
                                  "\n  hint: did you mean `inputs`?"]),
        ("echo ${error.message}", ["f:5:22: warning: `${error.message}`: `error` has no value here [unknown-variable]"]),
        ("node -e ''x ${user.name} ${HOME} ${item} ${a[0]}'' # ${user.name}", []),
        ("echo ${v.field} ${v} ${steps.build.outputs.v[0]} ${steps.build.output.x} ${inputs.target}", []),
        ("echo ''open ${v}", ["f:5:29: error: `${v}`: no value can be put here safely: a single quote never ends [shell-place]"]),
        ("cat <<${v}", ["f:5:23: error: `${v}`: no value can be put here safely: the delimiter of a here-document is not a "
                        "plain word [shell-place]"]),
        ("echo ${ v.field } ${ other } ${ v; } \\${ v.x }",
         ["f:5:22: warning: `${ v.field }` is left as it stands: no blank can be inside the braces [blank]\n  hint: write `${v.field}`"]),
        ("echo ${v }", ["f:5:22: warning: `${v }` is left as it stands: no blank can be inside the braces [blank]\n  hint: write `${v}`"]),
        ("echo ${raw:v} \"${#v} ${V:-x}\"", []),
        ("echo ${steps.a b.output} \\${steps.a b.output}",
         ["f:5:22: warning: `${steps.a b.output}` is left as it stands: Resile can't read it [reference]"
          "\n  hint: write a name with other marks than letters, digits, `_` and `-` as in `${steps['a name'].output}`"]),
    ],
)  # fmt: skip
def test_references(shell: str, expected: list[str]) -> None:
    """A reference that can't be right is an error at its place, one that is probably wrong a warning."""
    text = (
        "resile: 1\ninputs: {target: x}\nsteps:\n  build: {shell: x, capture: {v: json}}\n"
        f"  s: {{  shell: '{shell}', needs: [build]}}\n  other: {{shell: y}}\n"
    )
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("shell: x, needs: a, when: '${v}'", []),
        ("shell: x, needs: a, when: '${v:-1}'", []),
        ("shell: x, needs: a, when: '${w}'", ["f:5:33: warning: `${w}`: no step captures `w`, so it is null here [unknown-variable]"]),
        ("shell: x, when: '${i} > 1'", ["f:5:23: warning: `${i}`: no step captures `i`, so it is null here [unknown-variable]\n  hint: did you mean `${inputs.i}`?"]),
        ("shell: x, when: '${item}'", []),
        ("shell: x, next: [{step: a, when: '${w}'}]", ["f:5:40: warning: `${w}`: no step captures `w`, so it is null here [unknown-variable]"]),
        ("shell: x, on_failure: {commands: [y, {shell: z, when: '${w}'}], max_attempts: 2}", ["f:5:61: warning: `${w}`: no step captures `w`, so it is null here [unknown-variable]"]),
        ("map: {input: [1], item_name: thing, steps: [{shell: x, when: '${thing} && ${item_index} && ${v}'}]}, needs: a", []),
        ("map: {input: [1], steps: [{shell: x, when: '${w}'}]}", ["f:5:50: warning: `${w}`: no step captures `w`, so it is null here [unknown-variable]"]),
    ],
)  # fmt: skip
def test_bare_names_in_conditions(keys: str, expected: list[str]) -> None:
    """No shell reads a condition, so a name there that nothing gives is a mistake; one with a default is not."""
    text = f"resile: 1\ninputs: {{i: 1}}\nsteps:\n  a: {{shell: x, capture: v}}\n  s: {{{keys}}}\n"
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("row", []),
        ("item", []),
        ("inputs", ["f:2:27: error: `inputs` is reserved and can't name an item [reserved]"]),
        ("my thing", ["f:2:27: error: `my thing` can't be the name of an item [name]"
                      "\n  hint: letters, digits and `_`, not starting with a digit"]),
    ],
)  # fmt: skip
def test_names_of_items(name: str, expected: list[str]) -> None:
    """A second name for `item` that no reference can have is refused, and so is one that means something else."""
    assert (
        findings(f"resile: 1\nsteps: [{{map: {{item_name: {name}, input: [1], steps: [{{shell: x}}]}}}}]\n") == expected
    )


def test_references_in_a_block() -> None:
    """A reference in a text of several lines is found on its own line."""
    text = "resile: 1\nsteps:\n  a:\n    shell: |\n      echo 1\n      echo ${inputs.x} ${inputs.x}\n"
    hint = "[unknown-variable]\n  hint: declare it under `inputs`"
    assert findings(text) == [
        f"f:6:12: error: `${{inputs.x}}`: there is no input `x` {hint}",
        f"f:6:24: error: `${{inputs.x}}`: there is no input `x` {hint}",
    ]


def test_references_that_the_shell_does_not_read() -> None:
    """Code of another language in a quoted here-document is left alone; a bash array is the shell's."""
    text = "resile: 1\nshell_program: PROGRAM\nsteps:\n  a:\n    shell: |\n      node <<'E'\n      `${user.name}`\n      E\n"
    assert findings(text.replace("PROGRAM", "sh")) == []
    assert findings(text.replace("PROGRAM", "bash").replace("node <<'E'", "echo ${words[0]} <<'E'")) == []
    (finding,) = findings(text.replace("PROGRAM", "sh").replace("'E'", "E"))
    assert finding.startswith("f:7:8: warning: `${user.name}`: `user` is not known [unknown-variable]\n")


def test_references_elsewhere() -> None:
    """Environment, folder, outputs and conditions are looked at as well."""
    text = (
        "resile: 1\nenv: {A: '${inputs.a}'}\nsteps:\n  s:\n    shell: x\n    env: {B: '${inputs.b}'}\n"
        "    working_dir: ${inputs.c}\n    outputs: ['${inputs.d}']\n    when: ${inputs.e}\n"
        "    next: [{step: end, when: '${inputs.f}'}]\n"
    )
    assert [finding.partition(": error")[0] for finding in findings(text)] == [
        "f:2:11", "f:6:15", "f:7:18", "f:8:16", "f:9:11", "f:10:31",
    ]  # fmt: skip


def test_ancestors() -> None:
    """Steps reached by needs, by a group or by an arc have run before; in a list every earlier one has."""
    assert findings(
        "resile: 1\nsteps:\n  a: {shell: x, next: d}\n  b: {shell: x, needs: [a]}\n  c: {shell: x, needs: ['b|a']}\n"
        "  d: {shell: 'echo ${steps.a.output}'}\n  e: {shell: 'echo ${steps.a.status}', needs: [c]}\n"
    ) == []  # fmt: skip
    assert findings(
        "resile: 1\nsteps:\n- {id: a, shell: 'echo ${steps.c.output}'}\n- {id: b, shell: x}\n"
        "- {id: c, shell: 'echo ${steps.a.output}'}\n"
    ) == [
        "f:3:24: warning: `${steps.c.output}`: `c` may not have run when `a` starts [not-an-ancestor]"
        "\n  hint: add `c` to its `needs`"
    ]


def test_names_with_dots() -> None:
    """A step whose name holds a dot is referred to in quotes, and the hint says so."""
    text = "resile: 1\nsteps:\n- {id: v1.2, shell: x}\n- {shell: 'echo ${steps.v1.2.output}'}\n"
    assert findings(text) == [
        "f:4:17: error: `${steps.v1.2.output}`: there is no step `v1` [unknown-variable]"
        "\n  hint: quote a name with dots: `${steps['v1.…'].output}`"
    ]
    assert findings(text.replace("steps.v1.2", 'steps["v1.2"]')) == []


def test_captures_that_clash() -> None:
    """Two sources of one name are pointed out."""
    text = "resile: 1\ninputs: {v: 1}\nsteps:\n  a: {shell: x, capture: v}\n  b: {shell: x, capture: v}\n"
    assert findings(text) == [
        "f:4:17: warning: `v` is an input too: `${v}` is captured, `${inputs.v}` given [capture-clash]",
        "f:5:17: warning: `v` is captured in `a` too: the last to finish decides [capture-clash]",
    ]


def test_all_findings_at_once() -> None:
    """Errors of every kind in one file are reported together, in its order."""
    text = "resile: 1\nmax_parallel: 0\nsteps:\n  a: {shel: x}\n  b: {shell: x, needs: [c], timeout: -1}\n"
    assert [finding.partition(": error: ")[0] for finding in findings(text)] == [
        "f:2:15", "f:4:3", "f:4:7", "f:5:25", "f:5:38",
    ]  # fmt: skip


def test_findings_are_capped() -> None:
    """A hundred findings are enough; the rest is counted."""
    text = "resile: 1\nsteps:\n" + "".join(f"  s{n}: {{shel: x, needs: [zz{n}]}}\n" for n in range(1_000))
    diagnostics = compile_text(text, file="f").diagnostics
    assert len(diagnostics) == DIAGNOSTICS_MAX + 1
    assert diagnostics[-1].render() == "f: error: 2900 more findings are not shown [more]"


def test_too_many_steps() -> None:
    """More steps than the limit are refused before they are read."""
    text = "resile: 1\nsteps: [" + "{}," * (STEPS_MAX + 1) + "]"
    assert findings(text) == ["f:2:8: error: 200001 steps are more than 200000 [limit]"]


def test_long_chains_need_no_stack() -> None:
    """A cycle through thousands of steps is found, and its message stays readable."""
    steps = "".join(f"  s{n}: {{shell: x, needs: [s{(n + 1) % 5_000}]}}\n" for n in range(5_000))
    (finding,) = findings("resile: 1\nsteps:\n" + steps)
    assert finding.startswith("f:3:3: error: these steps wait for each other: `s0` (3:3) needs `s1` (4:3) needs ")
    assert finding.endswith("needs 4950 more steps needs `s0` [cycle]\n  hint: take one of these needs out")
