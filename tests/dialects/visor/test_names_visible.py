"""What the steps and the code of Visor files see of each other: callers, every value that there was, items, variables."""

# ruff: noqa: E501 - a file reads better with one step in a line
from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.visor.flows import VisorFlows, flow

LIST = "type: command, exec: 'echo ''[1, 2, 3]''', forEach: true"


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder."""
    return VisorFlows(tmp_path)


def run(flows: VisorFlows, text: str, code: int = 0, *words: str) -> list[str]:
    """What the steps of a file that is written out put into the trace."""
    return flows.run(f"version: '1'\n{text}", code, *words).order


def test_a19_a_remedy_sees_the_failure_that_it_answers(flows: VisorFlows) -> None:
    """In its condition and in its texts: the outputs of the step that called for it, with what that printed."""
    text = """
steps:
  validate: {type: command, exec: "./step validate; echo half; test -f s", on_fail: {run: [fixer]}}
  fixer:
    type: command
    depends_on: [validate]
    assume: "outputs['validate'] != null && outputs.validate.error"
    exec: "echo fixer {{ outputs.validate.stdout }} {{ outputs.validate.exit_code }} {{ outputs_raw.validate.exit_code }} >> trace; touch s"
"""
    assert run(flows, text) == ["validate", "fixer half 1 1", "validate"]


def test_a20_a_remedy_sees_the_value_that_failed_a_condition(flows: VisorFlows) -> None:
    """A value that is there and not good enough is seen as it is; one of an earlier visit is not taken for it."""
    text = """
steps:
  review:
    type: command
    exec: "./step review; test -f fixed && echo '{\\"issues\\": []}' || echo '{\\"issues\\": [\\"x\\"]}'"
    fail_if: output.issues.length > 0
    on_fail: {run: [apply]}
  apply: {type: command, exec: "echo apply {{ outputs.review.issues | json }} >> trace; touch fixed"}
"""
    assert run(flows, text) == ["review", 'apply ["x"]', "review"]
    text = """
steps:
  s: {type: command, exec: ./step s}
  a:
    type: command
    depends_on: s
    exec: "test -f late && echo no || { echo '{\\"n\\": 1}'; touch late; }"
    schema: {type: object}
    on_fail: {run: [fix]}
    on_success: {goto_js: "return attempt === 1 ? 's' : null"}
  fix: {type: command, exec: "echo fix {{ outputs.a.n }} {{ outputs.a.message }} >> trace; rm late"}
"""
    assert run(flows, text) == ["s", "s", "fix  schema: the value is 'no', not object"]


def test_a29_what_follows_a_success_sees_the_step_that_it_follows(flows: VisorFlows) -> None:
    """Also with arguments, in what such a step calls for itself, and in code."""
    text = """
steps:
  build: {type: command, exec: "echo '{\\"v\\": 7}'", on_success: {run: [tell, {step: more, with: {w: "{{ outputs.build.v }}0"}}], run_js: "return outputs.build.v === 7 ? ['other'] : []"}}
  tell: {type: command, exec: "echo tell {{ outputs.build.v }} >> trace"}
  more: {type: command, exec: "echo more {{ args.w }} >> trace"}
  other: {type: command, exec: "./step other 1", on_fail: {run: [deep]}}
  deep: {type: command, exec: "echo deep {{ outputs.build.v }} {{ outputs.other.exit_code }} >> trace"}
"""
    assert sorted(run(flows, text)) == ["deep 7 1", "more 70", "other", "other", "tell 7"]


def test_nobody_else_sees_a_step_that_is_not_done(flows: VisorFlows) -> None:
    """A step beside the one that is being mended has nothing of it."""
    text = """
steps:
  a: {type: command, exec: "./step a 1", on_fail: {run: [fix]}}
  fix: {type: command, exec: "until test -e seen; do sleep 0.02; done"}
  b: {type: command, exec: "until grep -q a trace; do sleep 0.02; done"}
  c: {type: command, depends_on: b, if: "outputs.a == null", exec: "echo c [{{ outputs.a }}] >> trace; touch seen"}
"""
    flows.program.write(f"version: '1'{text}")
    flows.program.json("run", "flow.yaml", "--max-parallel", "3")
    assert (flows.folder / "trace").read_text().split("\n")[:-1] == ["a", "c []", "a"]


def test_a10_a_history_has_failed_runs_too(flows: VisorFlows) -> None:
    """Of a command what others see of its failure, of a condition the value that did not meet it."""
    text = """
steps:
  setup: {type: command, exec: ./step setup}
  flaky:
    type: command
    depends_on: setup
    exec: "./step flaky 99"
    on_fail: {goto_js: "return (outputs_history['flaky'] || []).length < 3 ? 'setup' : null"}
"""
    assert run(flows, text, 1) == ["setup", "flaky"] * 3
    text = """
steps:
  n: {type: memory, operation: increment, key: n, fail_if: output < 3, on_fail: {retry: {max: 5}}}
  tell: {type: command, depends_on: n, exec: "echo {{ outputs_history.n | json }} {{ outputs.history.n | size }} >> trace"}
"""
    assert run(flows, text) == ["[1,2,3] 3"]


WAVES = """
routing: {max_loops: 6}
steps:
  extract:
    type: command
    exec: "echo w >> waves; echo '[{\\"id\\": 1}, {\\"id\\": 2}]'"
    forEach: true
    on_finish: {run: [agg], goto_js: "return memory.get('all_valid') === true ? null : 'extract'"}
  check: {type: command, depends_on: [extract], exec: "test $(wc -l < waves) -ge 2 && echo '{\\"valid\\": true}' || echo '{\\"valid\\": false}'"}
MORE
  agg:
    type: script
    content: |
      const all = outputs_history['check'] || [], last = all.slice(-2);
      memory.set('all_valid', last.length > 0 && last.every((one) => one && one.valid));
      return [all.length, outputs.check.length, all.map((one) => one.valid ? 'y' : 'n').join('')];
  post: {type: command, depends_on: [LAST], if: "memory.get('all_valid') === true", exec: "echo {{ outputs.agg | join: ' ' }} {{ outputs_history.check | size }} >> trace", reduce: true}
"""


@pytest.mark.parametrize("more", [False, True])
def test_a91_a93_b67_what_follows_items_sees_the_values_of_all_waves(flows: VisorFlows, more: bool) -> None:
    """Whether one step hangs below the list or two: the wave after the first is good, and nothing runs a third time."""
    second = "  next: {type: command, depends_on: [check], exec: 'true'}" if more else ""
    text = WAVES.replace("MORE\n", f"{second}\n").replace("LAST", "next" if more else "check")
    assert run(flows, text) == ["4 2 nnyy 4"]
    assert (flows.folder / "waves").read_text() == "w\nw\n"


def test_a32_transitions_after_items_see_them(flows: VisorFlows) -> None:
    """Any value of any item, and the outputs of the last wave alone."""
    text = """
steps:
  s: {type: command, exec: ./step s}
  extract:
    type: command
    depends_on: s
    exec: "./step extract; test $(grep -cx extract trace) -eq 1 && echo '[1, 2, 3]' || echo '[4]'"
    forEach: true
    on_finish: {transitions: [{when: "any(outputs_history.validate, (one) => one.n === 4)", to: null}, {when: "outputs.validate.length === 3 && event.name === 'manual'", to: s}]}
  validate: {type: command, depends_on: extract, exec: "echo '{\\"n\\": {{ outputs.extract }}}'"}
  tell: {type: command, reduce: true, depends_on: validate, exec: "echo {{ outputs.validate | json }} >> trace"}
"""
    assert run(flows, text) == ["s", "extract", "s", "extract", '[{"n":4}]']


def test_code_after_items_speaks_of_the_list(flows: VisorFlows) -> None:
    """`forEach` says how large it was, `step` and `output` are those of the step that gave it; others have no items."""
    text = """
steps:
  s: {type: command, exec: ./step s}
  l:
    type: command
    depends_on: s
    exec: "echo '[5, 6]'"
    forEach: true
    on_success: {run_js: "return forEach.is_parent && forEach.last_wave_size === 2 ? ['m'] : []"}
    on_finish: {goto_js: "return forEach.is_parent && forEach.last_wave_size === 2 && forEach.last_items[1] === 6 && step.id === 'l' && output.length === 2 && attempt === 1 ? 's' : null"}
  w: {type: command, depends_on: l, exec: "echo w{{ outputs.l }}", if: "forEach === null"}
  m: {type: command, exec: ./step m}
"""
    assert run(flows, text) == ["s", "m", "s", "m"]


def test_a31_whole_lists_of_steps_that_run_for_items(flows: VisorFlows) -> None:
    """Code that speaks of `outputs_raw` finds every step that has something, and no others."""
    text = """
steps:
  list: {type: script, content: "return [1, 2]", forEach: true}
  a: {type: command, depends_on: list, exec: "echo a{{ outputs.list }}"}
  b: {type: command, depends_on: a, exec: "echo b"}
  s: {type: script, depends_on: b, content: "return [outputs_raw.list.length, outputs_raw.a.join(), outputs['a-raw'].length, outputs.a.length, typeof outputs_raw.later]"}
  later: {type: command, depends_on: s, exec: "echo {{ outputs.s | join: ' ' }} {{ outputs_raw.a | size }} >> trace"}
"""
    assert run(flows, text) == ["2 a1,a2 2 2 undefined 2"]


FAILS = "exec: 'echo w{{ outputs.list }} >> trace; test {{ outputs.list }} -ne 2 && echo w{{ outputs.list }}'"
FIN = "exec: 'echo fin {{ outputs.work | json }} >> trace', reduce: true"


@pytest.mark.parametrize("key", ["continue_on_failure: true", "criticality: info"])
def test_a_failure_is_tolerated_inside_an_item_too(flows: VisorFlows, key: str) -> None:
    """Its dependents run, for that item and after all of them, and the run does not fail."""
    nxt = "exec: 'echo n{{ outputs.list }}-{{ outputs.work.exit_code }} >> trace'"
    ran = flows.run(flow(f"list: {LIST}\nwork < list: {FAILS}, {key}\nnxt < work: {nxt}\nfin < nxt: {FIN}"))
    assert ran.order == ["w1", "n1-", "w2", "n2-1", "w3", "n3-", 'fin ["w1","w3"]']
    work = [job for job in ran.document["jobs"] if job["step"] == "work"]
    assert [(job["status"], job["recovered"]) for job in work] == [("completed", False), ("completed", True), ("completed", False)]  # fmt: skip
    assert ("work", "recovered", None) in ran.routes()
    counts = ran.document["maps"]["work+nxt"]
    assert (counts["successful"], counts["failed"], counts["dead_letters"]) == (3, 0, 0)


def test_a_tolerant_step_does_not_excuse_others(flows: VisorFlows) -> None:
    """Each step of an item answers for itself."""
    nxt = "exec: 'test {{ outputs.list }} -ne 3'"
    ran = flows.run(
        flow(f"list: {LIST}\nwork < list: {FAILS}, continue_on_failure: true\nnxt < work: {nxt}\nfin < nxt: {FIN}"), 1
    )
    assert ran.order == ["w1", "w2", "w3", 'fin ["w1","w3"]']
    assert ran.document["maps"]["work+nxt"]["failed"] == 1


def test_a82_what_follows_items_runs_for_those_that_succeeded(flows: VisorFlows) -> None:
    """One failed item keeps nothing from running but its own steps; the run has failed, and says so."""
    ran = flows.run(flow(f"list: {LIST}\nwork < list: {FAILS}\nfin < work: {FIN}\nlast < fin"), 1)
    assert ran.order == ["w1", "w2", "w3", 'fin ["w1","w3"]', "last"]
    assert ran.status == {
        "list": "completed", "work": "failed", "fin": "completed", "last": "completed", "end": "completed",
    }  # fmt: skip
    assert ran.failed == "1 of 3 items failed"
    assert ran.document["maps"]["work"]["dead_letters"] == 1


def test_a81_where_every_item_failed_nothing_follows(flows: VisorFlows) -> None:
    """Unless the step says that its failures are tolerated."""
    fails = "exec: 'echo w{{ outputs.list }} >> trace; exit 1'"
    ran = flows.run(flow(f"list: {LIST}\nwork < list: {fails}\nfin < work: {FIN}"), 1)
    assert (ran.order, ran.status["fin"]) == (["w1", "w2", "w3"], "canceled")
    ran = flows.run(flow(f"list: {LIST}\nwork < list: {fails}, continue_on_failure: true\nfin < work: {FIN}"))
    assert ran.order == ["w1", "w2", "w3", "fin []"]


def test_what_follows_items_may_go_back_where_some_failed(flows: VisorFlows) -> None:
    """The steps after them run once, when the last wave is over."""
    text = f"""
steps:
  list: {{type: command, exec: "./step list; echo '[1, 2, 3]'", forEach: true, on_finish: {{goto_js: "return attempt === 1 ? 'list' : null"}}}}
  work: {{type: command, depends_on: list, exec: "test {{{{ outputs.list }}}} -ne 2 -o $(grep -cx list trace) -gt 1 && echo w{{{{ outputs.list }}}}"}}
  fin: {{type: command, depends_on: work, {FIN}}}
"""
    assert run(flows, text) == ["list", "list", 'fin ["w1","w2","w3"]']


def test_b75_the_environment_is_seen_by_code_and_texts(flows: VisorFlows) -> None:
    """The caller's, over it the file's, over that the step's; each value may name those before it."""
    text = """
env: {DEPLOY: "yes", WHO: "${WHO}!", BOTH: "${WHO}-${DEPLOY}"}
steps:
  a: {type: command, if: "env.DEPLOY === 'yes'", exec: "echo a {{ env.DEPLOY }} $DEPLOY $WHO {{ env.WHO }} $BOTH >> trace"}
  b: {type: command, depends_on: a, env: {P: "x ${DEPLOY}", WHO: "${WHO}?", Q: $P}, if: "env.P === 'x yes'", exec: 'echo "b $P-$WHO-$Q" "{{ env.Q }}" >> trace'}
  c: {type: script, depends_on: b, content: "return env.DEPLOY + env.WHO + env.P"}
  d: {type: command, depends_on: c, exec: "echo {{ outputs.c }} >> trace"}
"""
    flows.program.env["WHO"] = "me"
    assert run(flows, text) == ["a yes yes me! me! me!-yes", "b x yes-me!?-x yes x yes", "yesme!undefined"]


def test_code_that_throws_says_where(flows: VisorFlows) -> None:
    """In the line and the column of the file's own code, whatever stands before it."""
    for content, place in (
        ("throw new Error('boom')", "line 1, column 11"),
        ("memory.set('a', 1); throw new Error('boom')", "line 1, column 31"),
        ("const x = 1\\nthrow new Error('boom')", "line 2, column 11"),
    ):
        ran = flows.run(f"version: '1'\nsteps: {{s: {{type: script, content: \"{content}\"}}}}", 1)
        assert ran.failed == f"script: Error: boom ({place})"


ISSUES = """exec: 'echo ''{"issues": [{"message": "m", "severity": "critical", "file": "a.py"}, {"message": "n", "severity": "error"}]}'''"""


@pytest.mark.parametrize(
    "code",
    [
        "issues.length === 2",
        "metadata.criticalIssues > 0 && metadata.errorIssues === 1 && metadata.warningIssues === 0",
        "totalIssues === 2 && criticalIssues === 1 && errorIssues === 1 && warningIssues + infoIssues === 0",
        "issues.some((issue) => issue.severity === 'critical')",
        "hasIssue(issues, 'severity', 'critical') && countIssues(issues, 'severity', 'error') === 1",
        "metadata.checkName === 'a' && metadata.schema === 'code-review' && metadata.group === 'g'",
    ],
)
@pytest.mark.parametrize("key", ["fail_if: {}", "failure_conditions: {{many: {}}}"])
def test_conditions_see_the_issues_of_their_step(flows: VisorFlows, key: str, code: str) -> None:
    """Its output's `issues`, counted by severity: the gate closes."""
    ran = flows.run(flow(f"a: {ISSUES}, schema: code-review, group: g, {key.format(chr(34) + code + chr(34))}"), 1)
    assert ran.status["a"] == "failed"


def test_a_condition_before_the_step_counts_no_issues(flows: VisorFlows) -> None:
    """Nothing is found before it has run."""
    ran = flows.run(flow("a: if: 'issues.length === 0 && metadata.totalIssues === 0 && metadata.checkName === \"a\"'"))
    assert ran.order == ["a"]


@pytest.mark.parametrize(
    "code",
    [
        "JSON.parse(outputs.j).ok === true",
        "JSON.parse(outputs.j).n[1] === 2 && outputs.j.n[1] === 2",
        "outputs.j.trim().endsWith('}')",
        "outputs.j.includes('\\\"ok\\\": true')",
        '/\\"ok\\": +true/.test(outputs.j)',
        "`${outputs.j}`.includes(': true')",
        "contains(outputs.j, 'OK')",
        "outputs.number.trim() === '5' && outputs.number + 1 === 6",
        "outputs.list.trim() === '[1, 2]' && outputs.list.includes(2)",
        "outputs.text.trim() === 'plain' && outputs.text.split('a')[0] === 'pl'",
        "outputs.made.includes('3') && outputs.made.k === 3",
    ],
)
def test_json_behaves_as_text_and_as_its_value(flows: VisorFlows, code: str) -> None:
    """Code can parse it again, or look for words in it, as the command printed it."""
    text = f"""
version: '1'
steps:
  j: {{type: command, exec: "echo '  {{\\"ok\\": true,  \\"n\\": [1, 2]}}'"}}
  number: {{type: command, exec: echo 5}}
  list: {{type: command, exec: "echo '[1, 2]'"}}
  text: {{type: command, exec: echo plain}}
  made: {{type: command, exec: "echo '{{}}'", transform_js: "return {{k: 3}}"}}
  a: {{type: command, exec: ./step a, depends_on: [j, number, list, text, made], if: "{code}"}}
  b: {{type: script, depends_on: a, content: "if (!({code})) throw new Error('no')"}}
"""
    ran = flows.run(text)
    assert ran.order == ["a"]


def test_the_own_output_is_text_too(flows: VisorFlows) -> None:
    """In `transform_js`, in conditions, and in the code of routes."""
    own = "JSON.parse(output).ok && output.includes('\\\"ok\\\": true') && output.trim().startsWith('{') && output.ok"
    keys = f"transform_js: \"if (!({own})) throw new Error('no'); return output\""
    said = """exec: 'echo ''{"ok": true}'''"""
    ran = flows.run(
        flow(
            f'a: {said}, {keys}\nb: {said}, guarantee: "{own}", on_success: {{run_js: "return {own} ? [\'f\'] : []"}}\nf'
        )
    )
    assert ran.order == ["f"]


def warnings_of(flows: VisorFlows, text: str) -> list[str]:
    """The warnings of `check` about a file."""
    flows.program.write(text)
    (checked,) = flows.program.json("check", "flow.yaml", code=0)["files"]
    return [found["message"] for found in checked["diagnostics"] if found["severity"] == "warning"]


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ("fail_if: isues.length > 0", "isues"),
        ("fail_if: metadata.critical > 0", "metadata.critical"),
        ("if: \"outputs['lst'].length > 0\"", "outputs.lst"),
        ("if: outputs.nothing?.ok", "outputs.nothing"),
        (
            "on_success: {goto_js: 'return outputs_history.nothing.length > 1 ? \"a\" : null'}",
            "outputs_history.nothing",
        ),
        ("failure_conditions: {gate: 'verdict === 1'}", "verdict"),
    ],
)
def test_names_that_nothing_provides_are_warned_of(flows: VisorFlows, keys: str, name: str) -> None:
    """A typo in a gate is found before it lets everything pass."""
    found = [message.partition(" names ")[2] for message in warnings_of(flows, flow(f"a\nb < a: {keys}"))]
    assert found == [f"`{name}`, which nothing provides"]


def test_names_that_are_there_are_not(flows: VisorFlows) -> None:
    """Variables, helpers, steps, fields, strings, patterns, comments, and what the code declares itself."""
    code = (
        "const {x, y: z} = outputs.a ?? {}; let n = 0, m = 1; for (const one of issues) { n += one.line; } "
        "function twice(v) { return v * 2; } const f = (p, q) => p + q + m; try { f(1, 2); } catch (e) { log(e); } "
        "/* nothing.here */ // nor.here\\n"
        "return /foo|bar/i.test('words in text') && [1].map((k) => ({key: k})).length && twice(n) > x + z && isOwner();"
    )
    text = flow(f'a\nb < a: fail_if: "{code}"\nc < b: if: "outputs[\'a-raw\'] || outputs.history.a || env.HOME"')
    assert warnings_of(flows, text) == []


def test_a_condition_on_an_output_that_is_too_large_fails_its_step(flows: VisorFlows) -> None:
    """Code that throws skips its step, as in Visor; a limit of ours must not decide a condition in silence."""
    big = "exec: 'head -c 600000 /dev/zero | tr \"\\\\0\" x'"
    ran = flows.run(flow(f"big: {big}\na < big: if: 'outputs.big.length > 5'\nb < big: if: 'nothing.here'"), 1)
    assert (ran.status["a"], ran.status["b"]) == ("failed", "skipped")
    assert ran.failed == "condition: the variables have 600022 bytes; 524288 are allowed"


def test_an_output_that_is_too_large_names_no_key_of_another_system(flows: VisorFlows) -> None:
    """Its step fails; Visor's files have no `capture`."""
    flows.run(flow("big: exec: 'head -c 4194305 /dev/zero | tr \"\\\\0\" x'"), 1)
    failed = flows.program.json("explain", "1")["steps"][0]["attempts"][0]["message"]
    assert failed == "the output: 4194305 bytes are more than 4194304: write it to a file"
