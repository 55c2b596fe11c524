"""Everything that can be wrong with fan-outs, policies and child workflows, with its exact place, message and hint."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from pathlib import Path

import pytest

from resile.dialects.compile import compile_file
from resile.dialects.native.context import FANOUT_DEPTH_MAX
from resile.model.limits import CHILD_DEPTH_MAX, STEPS_MAX
from tests.dialects.native.test_native_errors import findings, step_findings, workflow_findings

COUNT = "expected a whole number from 1 to 10000000"


def policy_findings(keys: str) -> list[str]:
    """The findings of a map, on line 3, with these keys of an error policy from column 9 on."""
    return findings(
        "resile: 1\nsteps: [{map: {input: [1], steps: [{shell: x}], error_policy:\n"
        f"       {{{keys}}}}}}}]\nhandlers: {{tidy: [{{shell: x}}]}}\n"
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("map: {}", ["f:4:12: error: `map` needs `input`: where the items come from [value]",
                     "f:4:12: error: `map` needs `steps`: what runs for each item [value]"]),
        ("map: x", ["f:4:12: error: map must be a mapping, not `x` [type]"]),
        ("map: {input: [1], steps: [{shell: x}], max_parallel: 0}",
         ["f:4:60: error: `0` is out of bounds: expected a whole number from 1 to 10000 [value]"]),
        ("map: {input: [1], steps: [{shell: x}], max_items: 0}", [f"f:4:57: error: `0` is out of bounds: {COUNT} [value]"]),
        ("map: {input: [1], steps: [{shell: x}], offset: -1}",
         ["f:4:54: error: `-1` is out of bounds: expected a whole number from 0 to 10000000 [value]"]),
        ("map: {input: [1], steps: [{shell: x}], item_timeout: 0}",
         ["f:4:60: error: `0` is zero: expected a duration [value]\n  hint: a number of seconds, or `500ms`, `30s`, `2m`, `1h30m`"]),
        ("map: {input: [1], steps: [{shell: x}], item_timeout: 1, timeout_per_agent: 1}",
         ["f:4:63: error: `timeout_per_agent` and `item_timeout` say the same thing [conflict]"]),
        ("map: {input: [1], steps: [{shell: x}], agent_template: [{shell: x}]}",
         ["f:4:46: error: `agent_template` and `steps` say the same thing [conflict]"]),
        ("map: {input: [1], steps: [{shell: x}], json_path: '$.['}",
         ["f:4:57: error: `$.[` is no JSON path: expected a shorthand selector [value]\n  hint: such as `$.items[*]`"]),
        ("map: {input: [1], steps: [{shell: x}], filter: '${item.a} > 1'}",
         ["f:4:54: error: `${item.a}` can't stand in a filter [value]\n  hint: it is JavaScript that sees `item`: item.size > 3"]),
        ("map: {input: [1], steps: [{shell: x}], sort_by: a up}",
         ["f:4:55: error: expected fields, each with ASC or DESC, NULLS FIRST or NULLS LAST as needed, not `a up` [type]"
          "\n  hint: sort_by: size DESC, owner.name NULLS FIRST"]),
        ("map: {input: [1], steps: [{shell: x}], distinct: a..b}",
         ["f:4:56: error: expected a field of the items, such as name or owner.id, not `a..b` [type]"]),
        ("map: {input: [1], steps: [{shell: x}], isolation: container}",
         ["f:4:57: error: expected one of none, worktree, auto, not `container` [type]"]),
        ("map: {input: [1], steps: [{shell: x}], isolation: worktree, branch: 'a b'}",
         ["f:4:75: error: expected the beginning of a branch's name: letters and digits, with `-`, `_` or `/`, not `a b` "
          "[type]"]),
        ("map: {input: [1], steps: [{shell: x}], branch: a, merge: false}",
         ["f:4:46: error: `branch` has no meaning without `isolation: worktree` [conflict]",
          "f:4:57: error: `merge` has no meaning without `isolation: worktree` [conflict]"]),
        ("map: {inptu: [1], steps: [{shell: x}]}",
         ["f:4:12: error: `map` needs `input`: where the items come from [value]",
          "f:4:13: error: map has no key `inptu` [unknown-key]\n  hint: did you mean `input`?"]),
        ("map: {input: '', steps: [{shell: x}]}", ["f:4:20: error: `input` is empty [value]"]),
        ("map: {input: '${inputs.x}', steps: [{shell: x}]}",
         ["f:4:21: error: `${inputs.x}`: there is no input `x` [unknown-variable]\n  hint: declare it under `inputs`"]),
        ("map: {input: '${FILES}', steps: [{shell: x}]}",
         ["f:4:20: error: `${FILES}`: no step captures `FILES`, and no shell reads it here [unknown-variable]"]),
        ("map: {input: ['${inputs.x}'], steps: [{shell: x}]}",
         ["f:4:21: error: `${inputs.x}` has no value here: items are taken as they are written [value]"
          "\n  hint: a command can print items that are made of values"]),
        ("map: {input: ['${HOME} ${a.b}'], steps: [{shell: x}]}", []),
        ("map: {input: [.nan], steps: [{shell: x}]}", ["f:4:21: error: expected a finite number, not `.nan` [type]"]),
        ("map: {input: {}, steps: [{shell: x}]}", ["f:4:20: error: `input` needs `step`, `path`, `command` or `template`, one of them [value]"]),
        ("map: {input: {step: b}, steps: [{shell: x}]}", ["f:4:27: error: there is no step `b` [unknown-step]\n  hint: steps: `a`, `s`"]),
        ("map: {input: [1], steps: []}", ["f:4:32: error: `steps` is empty [value]\n  hint: there must be at least one step"]),
        ("map: {input: [1], steps: x}", ["f:4:32: error: `steps` must be a list or a mapping, not `x` [type]"]),
        ("map: {input: [1], agent_template: {shell: x}}",
         ["f:4:41: error: `agent_template` needs a list of steps, or `commands` [value]",
          "f:4:42: error: setup, reduce, agent_template has no key `shell` [unknown-key]\n  hint: keys: `commands`"]),
        ("map: {input: [1], agent_template: {commands: {a: {shell: x}}}}",
         ["f:4:52: error: `agent_template` must be a list of steps, not a mapping [type]"]),
        ("map: {input: [1], steps: {end: {shell: x}, b: {shell: x}}}",
         ["f:4:33: error: no step of an item can be called `end` [reserved]\n  hint: what follows all items is a step that needs the map"]),
        ("map: {input: [1], steps: {b: {shell: x, needs: a}}}",
         ["f:4:54: error: `a` is outside of the item [scope]\n  hint: the step that runs the items can need it"]),
        ("map: {input: [1], steps: {b: {shell: x, needs: c}}}",
         ["f:4:54: error: there is no step `c` [unknown-step]\n  hint: steps: `b`"]),
        ("map: {input: [1], steps: {b: {shell: x, next: end}}}",
         ["f:4:53: error: `end` is outside of the item, and nothing jumps out of one [scope]\n  hint: name a step of the item"]),
        ("needs: a, map: {input: [1], steps: {b: {shell: x, on_failure: {goto: a}}}}",
         ["f:4:76: error: `a` is outside of the item, and nothing jumps out of one [scope]\n  hint: name a step of the item"]),
        ("map: {input: [1], steps: {b: {shell: x, on_failure: {run: [a]}}}}",
         ["f:4:66: error: `a` is outside of the item, and nothing jumps out of one [scope]\n  hint: name a step of the item"]),
        ("map: {input: [1], steps: [{shell: x}]}, capture: v",
         ["f:4:47: error: `capture` has no meaning for `map`, which runs no program of its own [action]\n  hint: write it at the steps inside"]),
        ("map: {input: [1], steps: [{shell: x}]}, inputs: {}",
         ["f:4:47: error: `inputs` has no meaning without `python` or `workflow` [action]"]),
        ("map: {input: [1], steps: [{shell: x}]}, error_policy: {}, max_parallel: 1, on_finish: x",
         ["f:4:47: error: `error_policy` has no meaning without `foreach: true` [conflict]\n  hint: `error_policy` stands inside `map`",
          "f:4:65: error: `max_parallel` has no meaning without `foreach: true` [conflict]\n  hint: `max_parallel` stands inside `map`",
          "f:4:82: error: `on_finish` has no meaning without `foreach: true` [conflict]"]),
        ("shell: x, on_failure: [{map: {input: {step: a}, steps: [{shell: x}]}}]",
         ["f:4:51: error: no command `a` stands before this one in its handler [unknown-step]\n  hint: there is no command before it"]),
        ("shell: x, on_failure: [{shell: x, foreach: true, fanout: map, critical: true}]",
         ["f:4:41: error: a command of a handler takes no `foreach`: a `map` in it runs steps for each item [reserved]",
          "f:4:56: error: a command of a handler takes no `fanout`: a `map` in it runs steps for each item [reserved]",
          "f:4:69: error: a command of a handler takes no `critical`: no other runs beside it [reserved]"]),
        ("shell: x, critical: maybe", ["f:4:27: error: expected true or false, not `maybe` [type]"]),
        ("shell: x, fanout: map", ["f:4:17: error: `fanout` has no meaning here: there are no items [conflict]"
                                   "\n  hint: one of its needs has `foreach: true`, or runs for the items of one that has"]),
        ("shell: x, fanout: filter", ["f:4:25: error: expected one of map, reduce, not `filter` [type]"]),
        ("shell: x, foreach: true", ["f:4:17: error: nothing runs for the items of `s` [conflict]\n  hint: a step that needs `s` runs for each of its items"]),
        ("workflow: ''", ["f:4:17: error: `workflow` is empty [value]"]),
        ("workflow: 'c${inputs.x}.yaml'",
         ["f:4:17: error: `c${inputs.x}.yaml`: a value never decides on what runs [value]\n  hint: write the name of the file out"]),
        ("workflow: c.yaml, env: {A: b}",
         ["f:4:17: error: there is no file `c.yaml` [file]",
          "f:4:25: error: `env` has no meaning for `workflow`, which runs no program of its own [action]\n  hint: write it at the steps inside"]),
    ],
)  # fmt: skip
def test_step_keys(keys: str, expected: list[str]) -> None:
    """Each wrong value in a map or a call of a workflow is named with its place."""
    assert [finding for finding in step_findings(keys) if ": notice: " not in finding] == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("on_item_failure: drop", ["f:3:26: error: expected one of dlq, retry, skip, stop, fail, carry_on, custom:NAME, not `drop` [type]"]),
        ("on_item_failure: 'custom:tdy'", ["f:3:26: error: there is no handler `tdy` [unknown-handler]\n  hint: did you mean `tidy`?"]),
        ("max_failures: 0", [f"f:3:23: error: `0` is out of bounds: {COUNT} [value]"]),
        ("failure_threshold: 20", ["f:3:28: error: `20` is out of bounds: from 0 to 1 [value]"]),
        ("failure_threshold_min_items: 0", [f"f:3:38: error: `0` is out of bounds: {COUNT} [value]"]),
        ("continue_on_failure: 1", ["f:3:30: error: expected true or false, not `1` [type]"]),
        ("error_collection: later", ["f:3:27: error: expected one of aggregate, immediate, batched, not `later` [type]"]),
        ("error_collection: 'batched:none'", [f"f:3:27: error: {COUNT}, not `none` [type]"]),
        ("error_collection: {batched: 0}", [f"f:3:37: error: `0` is out of bounds: {COUNT} [value]"]),
        ("error_collection: {batched: {}}", ["f:3:37: error: `batched` needs `size` [value]"]),
        ("error_collection: [batched]", ["f:3:27: error: expected one of aggregate, immediate, batched, not a list [type]"]),
        ("circuit_breaker: 5", ["f:3:26: error: circuit_breaker must be a mapping, not `5` [type]"]),
        ("circuit_breaker: {half_open_requests: 0}",
         ["f:3:47: error: `0` is out of bounds: expected a whole number from 1 to 10000 [value]"]),
        ("circuit_breaker: {timeout: 0}", ["f:3:36: error: `0` is zero: expected a duration [value]"
                                           "\n  hint: a number of seconds, or `500ms`, `30s`, `2m`, `1h30m`"]),
        ("retry_config: 3", ["f:3:23: error: retry_config must be a mapping, not `3` [type]"]),
        ("retry_config: {max_attempts: 0}", ["f:3:38: error: `0` is out of bounds: expected a whole number from 1 to 1000 [value]"]),
        ("retry_config: {backoff: {linear: {initial: 1}, delay: 2}}",
         ["f:3:56: error: `delay` stands beside `linear`, and belongs into it [conflict]"]),
        ("retry_config: {backoff: {linear: {type: fixed, initial: 1}}}",
         ["f:3:34: error: `mode` and `type` say the same thing [conflict]"]),
        ("retry_config: {backoff: {exponential: {}}}",
         ["f:3:33: error: `backoff` needs `initial`: the first delay [value]\n  hint: leave `backoff` out to try again at once"]),
        ("max_failure: 1", ["f:3:9: error: error_policy has no key `max_failure` [unknown-key]\n  hint: did you mean `max_failures`?"]),
    ],
)  # fmt: skip
def test_policies(keys: str, expected: list[str]) -> None:
    """Each wrong value in an error policy is named with its place."""
    unused = "f:4:12: warning: nothing names the handler `tidy` [unused]\n  hint: an `error_policy` names it with `on_item_failure: custom:tidy`"
    assert policy_findings(keys) == (expected or [unused])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("map: {}", ["f:2:1: error: `map` has no meaning without `mode: mapreduce` [conflict]\n  hint: or make it a step: steps: {NAME: {map: …}}"]),
        ("setup: []", ["f:2:1: error: `setup` has no meaning without `mode: mapreduce` [conflict]"]),
        ("mode: mapreduce", ["f:2:1: error: `mode: mapreduce` needs `map`: what runs for each item [value]",
                             "f:3:1: error: `mode: mapreduce` has no `steps` [conflict]\n  hint: they belong to `setup` or `reduce`"]),
        ("mode: batch", ["f:2:1: error: `mode: mapreduce` needs `map`: what runs for each item [value]",
                         "f:2:7: error: expected one of mapreduce, not `batch` [type]",
                         "f:3:1: error: `mode: mapreduce` has no `steps` [conflict]\n  hint: they belong to `setup` or `reduce`"]),
        ("error_policy: {}", ["f:2:1: error: no map of this workflow takes this `error_policy` [conflict]\n  hint: a map without an `error_policy` of its own takes it"]),
        ("handlers: [a]", ["f:2:11: error: expected a mapping of names to lists of steps, not a list [type]"]),
        ("handlers: {a: x}", ["f:2:15: error: expected a list of steps, not `x` [type]"]),
        ("handlers: {a: []}", ["f:2:15: error: expected a list of steps, not a list [type]"]),
        ("handlers: {a: [{shel: x}]}",
         ["f:2:16: error: the step `on_failure-1` does nothing [action]\n  hint: give it one of: `shell`, `agent`, "
          "`claude`, `validate`, `http`, `python`, `function`, `write_file`, `workflow`, `map`, `script`, `log`, `memory`, `ask`, `collect`, `query`, `noop`",
          "f:2:17: error: a step has no key `shel` [unknown-key]\n  hint: did you mean `shell`?"]),
    ],
)  # fmt: skip
def test_workflow_keys(line: str, expected: list[str]) -> None:
    """What a workflow says for its maps makes sense only where there is one."""
    assert workflow_findings(line) == expected


def test_what_is_wrong_in_a_map_is_said_once() -> None:
    """Its numbers and what a child captures are not called unknown because it could not be read."""
    text = (
        "resile: 1\nsteps:\n- {id: m, map: {input: [1], step: [{shell: x}]}}\n- {id: c, workflow: nope.yaml}\n"
        '- {shell: "echo ${steps.m.failed} ${steps.m.results} ${steps.c.outputs.x}"}\n'
        "- {id: map, map: {input: {}, steps: [{shell: x}]}}\n- {shell: 'echo ${map.failed}'}\n"
    )
    assert [one.partition(" ")[0] for one in findings(text)] == ["f:3:16:", "f:3:29:", "f:4:21:", "f:6:26:"]


def test_handlers_that_nothing_names_are_warnings() -> None:
    """They may wait for their use; those that are named are not told of."""
    text = (
        "resile: 1\nfailure_handlers:\n  f: {rules: [{exit_codes: 1}]}\n  g: {rules: [{exit_codes: 2}]}\n"
        "  p: {rules: [{exit_codes: 3}]}\nhandlers: {h: [{shell: x}], i: [{shell: x}]}\nsteps:\n"
        "- {shell: x, failure_handler: g}\n"
        "- {map: {input: [1], error_policy: {on_item_failure: 'custom:i'}, steps: [{shell: x}]}}\n"
        "- {map: {input: [1], error_policy: {on_item_failure: 'custom:p'}, steps: [{shell: x}]}}\n"
    )
    assert [one for one in findings(text) if ": notice: " not in one] == [
        "f:3:3: warning: nothing names the failure handler `f` [unused]\n  hint: a step names it with `failure_handler: f`",
        "f:6:12: warning: nothing names the handler `h` [unused]\n  hint: an `error_policy` names it with `on_item_failure: custom:h`",
    ]


def test_handlers_and_failure_handlers_share_no_name() -> None:
    """`custom:NAME` must mean one thing."""
    text = "resile: 1\nfailure_handlers: {h: {rules: [{exit_codes: 1}]}}\nhandlers: {h: [{shell: x}]}\nsteps: [{shell: x}]\n"
    assert findings(text)[0] == (
        "f:3:12: error: `h` is the name of a failure handler too [duplicate]\n  hint: call one of the two something else"
    )


def test_a_handler_is_blamed_once() -> None:
    """What is wrong in a list of steps that many steps of an item use is said once."""
    text = (
        "resile: 1\nhandlers: {h: [{shell: 'x ${inputs.a} ${steps.zz.output}', timeout: -1}]}\nsteps:\n"
        "- map: {input: [1], error_policy: {on_item_failure: 'custom:h'}, steps: [{shell: x}, {shell: y}]}\n"
    )
    assert [finding.partition(" [")[0] for finding in findings(text)] == [
        "f:2:27: error: `${inputs.a}`: there is no input `a`",
        "f:2:39: error: `${steps.zz.output}`: there is no step `zz`",
        "f:2:69: error: `-1` is negative: expected a duration",
    ]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("echo ${item} ${item.a.b[0]} ${item_index} ${item_id} ${steps.before.output} ${steps.first.output} ${v} ${w.x}", []),
        ("echo ${itme.a}", ["f:6:44: warning: `${itme.a}`: `itme` is not known [unknown-variable]\n  hint: did you mean `item`?"]),
        ("echo ${item_index.a}", ["f:6:44: warning: `${item_index.a}`: `item_index` has no value here [unknown-variable]\n  hint: it is a number, without fields"]),
        ("echo ${steps.after.output}", ["f:6:44: warning: `${steps.after.output}`: `after` may not have run when `m` starts [not-an-ancestor]\n  hint: add `after` to its `needs`"]),
        ("echo ${steps.frist.output}", ["f:6:44: error: `${steps.frist.output}`: there is no step `frist` [unknown-variable]\n  hint: did you mean `first`?"]),
        ("echo ''a${item}", ["f:6:47: error: `${item}`: no value can be put here safely: a single quote never ends [shell-place]"]),
    ],
)  # fmt: skip
def test_references_in_items(shell: str, expected: list[str]) -> None:
    """A step of an item knows its item, the steps beside it, and those that ran before the map."""
    text = (
        "resile: 1\nsteps:\n  before: {shell: x, capture: {w: json}}\n  m: {needs: before, map: {input: [1], steps: [\n"
        "    {id: first, shell: x, capture: v},\n"
        f"    {{id: second,              shell: '{shell}'}}]}}}}\n  after: {{shell: x, needs: m}}\n"
    )
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("echo ${map.total} ${map.successful} ${map.failed} ${map.skipped} ${map.failure_rate} ${map.results[0]}", []),
        ("echo ${steps.map.total} ${steps.map.output} ${steps.map.status}", []),
        ("echo ${map.totl}", ["f:6:16: error: `${map.totl}`: a map has no `totl` [unknown-variable]\n  hint: did you mean `total`?"]),
        ("echo ${steps.map.totl}", ["f:6:16: error: `${steps.map.totl}`: a step has no `totl` [unknown-variable]\n  hint: did you mean `total`?"]),
        ("echo ${steps.one.output}", ["f:6:16: error: `${steps.one.output}`: `one` runs inside the items of `map` [unknown-variable]"
                                      "\n  hint: what came of them is `${steps.map.results}`"]),
        ("echo ${item.a}", ["f:6:16: warning: `${item.a}`: `item` has no value here [unknown-variable]"
                            "\n  hint: the steps of a map's items, and those below a `foreach` step, have it"]),
        ("echo ${setup-1.total}", []),
        ("echo ${steps.setup-1.total}", ["f:6:16: error: `${steps.setup-1.total}`: a step has no `total` [unknown-variable]"
                                         "\n  hint: it has: `output`, `exit_code`, `stderr`, `status`, `attempts`, `outputs`"]),
    ],
)  # fmt: skip
def test_references_after_a_map(shell: str, expected: list[str]) -> None:
    """What came of the items is known after them, by the names it has."""
    text = (
        "resile: 1\nmode: mapreduce\nsetup: [{shell: x}]\nmap: {input: [1], steps: [{id: one, shell: x}]}\n"
        f"reduce:\n- shell: '{shell}'\n"
    )
    assert findings(text) == expected


def test_map_before_it_ran() -> None:
    """`${map.total}` before the map, or without one, is pointed out."""
    text = "resile: 1\nsteps:\n  a: {shell: 'x ${map.total}'}\n"
    assert findings(text) == [
        "f:3:17: warning: `${map.total}`: `map` has no value here [unknown-variable]"
        "\n  hint: it is what came of a map step called `map`; of another, `${steps.NAME.total}`"
    ]
    assert findings(text + "  map: {map: {input: [1], steps: [{shell: x}]}}\n") == [
        "f:3:17: warning: `${map.total}`: `map` may not have run when `a` starts [not-an-ancestor]"
        "\n  hint: add `map` to its `needs`"
    ]


def test_jumps_into_items() -> None:
    """Steps inside items are told apart from steps that do not exist."""
    text = (
        "resile: 1\nsteps:\n  m: {map: {input: [1], steps: {one: {shell: x}}}}\n"
        "  b: {shell: x, needs: [one, m], on_failure: {goto: one, run: one}}\n"
    )
    assert findings(text) == [
        "f:4:25: error: `one` runs inside the items of `m` [scope]\n  hint: need `m`: all its items",
        "f:4:53: error: `one` runs inside the items of `m`, and nothing jumps into an item [scope]\n  hint: go to the step that gives the items",
        "f:4:63: error: `one` runs inside the items of `m`, and nothing jumps into an item [scope]\n  hint: go to the step that gives the items",
    ]


def test_maps_in_handlers() -> None:
    """A map that answers a failure sees the failure and the commands before it."""
    text = (
        "resile: 1\nsteps:\n- id: a\n  shell: x\n  on_failure:\n    max_attempts: 2\n    commands:\n    - {id: l, shell: ls}\n"
        "    - {map: {input: {step: l}, steps: [{shell: 'x ${item} ${error.message} ${steps.l.output} ${steps.a.exit_code}'}]}}\n"
    )
    assert findings(text) == []


def test_fanouts_nest_to_a_depth() -> None:
    """Maps in maps, and foreach below foreach, go down so many levels and no further."""

    def nested(depth: int) -> str:
        """A map in a map in a map."""
        inner = "{shell: x}"
        for _ in range(depth):
            inner = f"{{map: {{input: [1], steps: [{inner}]}}}}"
        return f"resile: 1\nsteps: [{inner}]"

    def chained(depth: int) -> str:
        """A producer below a producer below a producer."""
        return "resile: 1\nsteps:\n" + "- {shell: x, foreach: true}\n" * depth + "- {id: last, shell: x}\n"

    message = f"fan-outs in fan-outs go no deeper than {FANOUT_DEPTH_MAX} levels [limit]"
    assert findings(nested(FANOUT_DEPTH_MAX)) == findings(chained(FANOUT_DEPTH_MAX)) == []
    assert findings(chained(3_000))[0] == f"f:12:3: error: {message}"
    (finding,) = findings(nested(FANOUT_DEPTH_MAX + 1))
    assert finding.endswith(message)


def write(folder: Path, name: str, text: str) -> str:
    """Write a workflow file; its path."""
    (folder / name).write_text("resile: 1\n" + text)
    return str(folder / name)


def file_findings(path: str) -> list[str]:
    """The findings of a file, without its folder."""
    return [finding.render().replace(str(Path(path).parent) + "/", "") for finding in compile_file(path).diagnostics]


def test_child_workflows(tmp_path: Path) -> None:
    """A child's findings stand under its own name; what the call gets wrong stands at the call."""
    write(
        tmp_path,
        "good.yaml",
        "name: good\ninputs: {a: {required: true}, n: {type: number}}\nsteps: [{shell: x, capture: v}]\n",
    )
    write(tmp_path, "bad.yaml", "steps: [{shel: x}]\n")
    path = write(
        tmp_path,
        "flow.yaml",
        "steps:\n"
        "- {id: one, workflow: good.yaml, inputs: {b: 1, n: [2]}}\n"
        "- {id: two, workflow: bad.yaml}\n"
        "- {id: three, workflow: bad.yaml}\n"
        "- {id: four, workflow: godo.yaml}\n"
        "- {id: five, workflow: .}\n"
        "- {id: six, workflow: good.yaml, inputs: [a]}\n"
        "- {id: seven, workflow: good.yaml, inputs: {a: null}}\n"
        "- {shell: 'x ${steps.one.outputs.v} ${steps.one.outputs.w} ${steps.one.output}'}\n",
    )
    assert file_findings(path) == [
        "bad.yaml:2:9: error: the step `step-1` does nothing [action]\n  hint: give it one of: `shell`, `agent`, `claude`, "
        "`validate`, `http`, `python`, `function`, `write_file`, `workflow`, `map`, `script`, `log`, `memory`, `ask`, `collect`, `query`, `noop`",
        "bad.yaml:2:10: error: a step has no key `shel` [unknown-key]\n  hint: did you mean `shell`?",
        "flow.yaml:3:13: error: `good` needs the input `a` [input-missing]\n  hint: inputs: {a: …}",
        "flow.yaml:3:43: error: `good` has no input `b` [unknown-input]\n  hint: inputs: `a`, `n`",
        "flow.yaml:3:52: error: expected a value of the type number, not a list [type]",
        "flow.yaml:4:23: error: `bad.yaml` has errors and can't be run [workflow]",
        "flow.yaml:5:25: error: `bad.yaml` has errors and can't be run [workflow]",
        "flow.yaml:6:24: error: there is no file `godo.yaml` [file]\n  hint: did you mean `good.yaml`?",
        f"flow.yaml:7:24: error: `{tmp_path}/.` is a folder [file]\n  hint: name a workflow file".replace(
            f"{tmp_path}/", ""
        ),
        "flow.yaml:8:13: error: `good` needs the input `a` [input-missing]\n  hint: inputs: {a: …}",
        "flow.yaml:8:42: error: expected a mapping of names to values, not a list [type]",
        "flow.yaml:9:48: error: expected a value of the type text, not nothing [type]",
        "flow.yaml:10:37: error: `${steps.one.outputs.w}`: `one` captures nothing of that name [unknown-variable]"
        "\n  hint: it captures: `v`",
    ]


def test_children_that_call_each_other(tmp_path: Path) -> None:
    """A circle of files is refused by name, however it is spelled."""
    write(tmp_path, "a.yaml", "steps: [{workflow: b.yaml}]\n")
    write(tmp_path, "b.yaml", "steps: [{workflow: ./a.yaml}]\n")
    assert file_findings(str(tmp_path / "a.yaml")) == [
        "b.yaml:2:20: error: this workflow calls itself: `a.yaml` calls `b.yaml` calls `a.yaml` [cycle]"
        "\n  hint: a loop inside a workflow is `next` or `goto`",
        "a.yaml:2:20: error: `b.yaml` has errors and can't be run [workflow]",
    ]


def test_children_nest_to_a_depth(tmp_path: Path) -> None:
    """So many levels of workflows are run and no more; a file is compiled once for all who call it."""
    write(tmp_path, "0.yaml", "steps: [{shell: x}]\n")
    for number in range(1, CHILD_DEPTH_MAX + 2):
        write(
            tmp_path, f"{number}.yaml", f"steps: [{{workflow: {number - 1}.yaml}}, {{workflow: {number - 1}.yaml}}]\n"
        )
    assert file_findings(str(tmp_path / f"{CHILD_DEPTH_MAX}.yaml")) == []
    (first, *_) = file_findings(str(tmp_path / f"{CHILD_DEPTH_MAX + 1}.yaml"))
    assert first == f"1.yaml:2:20: error: workflows in workflows go no deeper than {CHILD_DEPTH_MAX} levels [limit]"


def test_children_have_so_many_steps_in_all(tmp_path: Path) -> None:
    """Calls that multiply are refused by their number, not by the memory they would take."""
    write(tmp_path, "0.yaml", "steps: [{shell: x}]\n")
    for number in range(1, 7):
        call = f"{{workflow: {number - 1}.yaml}}"
        write(tmp_path, f"{number}.yaml", f"steps: [{', '.join([call] * 20)}]\n")
    found = file_findings(str(tmp_path / "6.yaml"))
    assert f"error: workflows in workflows have more than {STEPS_MAX} steps in all [limit]" in found[0]


@pytest.mark.parametrize(
    ("steps", "place", "first"),
    [
        ("  m: {map: {input: [1], steps: [{shell: x}]}}\n  n: {map: {input: [1], scope: m, steps: [{shell: x}]}}\n", "4:32", "m"),
        ("  n: {map: {input: [1], scope: m, steps: [{shell: x}]}}\n  m: {map: {input: [1], steps: [{shell: x}]}}\n", "3:32", "m"),
        ("  a: {shell: x, on_failure: {max_attempts: 2, commands: [{name: b, map: {input: [1], steps: [{shell: x}]}},\n"
         "    {name: c, map: {input: [1], scope: b, steps: [{shell: x}]}}]}}\n", "4:40", "b"),
    ],
)  # fmt: skip
def test_two_maps_in_one_scope(steps: str, place: str, first: str) -> None:
    """Items of two maps can't have the same names: the dead letters of one would replace those of the other."""
    errors = [found for found in findings(f"resile: 1\nsteps:\n{steps}") if ": error: " in found]
    message = f"the items of `{first}` have the scope `{first}` already"
    assert errors == [f"f:{place}: error: {message} [duplicate]\n  hint: give it another name"]
