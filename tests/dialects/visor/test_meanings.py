"""What Visor files mean beyond their routing: outputs, answers, choices of steps, and where rules stand."""

# ruff: noqa: E501 - a file reads better with one step in a line
from __future__ import annotations

from pathlib import Path

import pytest

from resile.model.workflow import FanOut
from tests.cli.program import rule_text
from tests.dialects.visor.flows import VisorFlows, compiled, errors_of, flow, workflow_of


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder."""
    return VisorFlows(tmp_path)


def run(flows: VisorFlows, text: str, code: int = 0, *words: str) -> list[str]:
    """What the steps of a file that is written out put into the trace."""
    return flows.run(f"version: '1'\n{text}", code, *words).order


@pytest.mark.parametrize(
    ("exec_", "keys", "code"),
    [
        ("echo hello", "fail_if: \"output.includes('x') || output.text !== 'hello'\"", 0),
        ("echo hello", "fail_if: output.issues.length > 0", 0),
        ("echo 5", "fail_if: output.issues.length > 0 || output !== 5", 0),
        ("'true'", "fail_if: output.issues.length > 0", 0),
        ("echo '[1, 2]'", "fail_if: output.items.length !== 2 || output.issues.length > 0", 0),
        ("printf 'working\\nat it\\n{\"ok\": false,\\n \"n\": [1]}\\n'", "guarantee: output.ok === false && output.n.length === 1", 0),
        ("printf 'working\\n{\"ok\": false}\\n'", "fail_if: '!output.ok'", 1),
        ("printf '{\"ok\": false}\\ndone\\n'", "fail_if: typeof output !== 'string'", 0),
    ],
)  # fmt: skip
def test_conditions_can_ask_any_output(flows: VisorFlows, exec_: str, keys: str, code: int) -> None:
    """Text, numbers and nothing have no issues; JSON behind text is what is asked about."""
    given = exec_ if exec_.startswith("'") else "'" + exec_.replace("'", "''") + "'"
    ran = flows.run(f"version: '1'\nsteps: {{a: {{type: command, exec: {given}, {keys}}}}}", code)
    assert ran.status["a"] == ("failed" if code else "completed")


def test_conditions_of_the_whole_file_can_ask_every_step(flows: VisorFlows) -> None:
    """Also those that give nothing."""
    text = "failure_conditions: {many: output.issues.length > 3}\nsteps: {a: {type: noop}, b: {type: log, message: hi}, c: {type: memory, operation: get, key: k}}"
    assert set(flows.run(f"version: '1'\n{text}").status.values()) == {"completed"}


def test_a_text_that_is_a_list_is_one(flows: VisorFlows) -> None:
    """An agent that answers with a list in plain text gave items."""
    program = flows.folder / "claude"
    program.write_text('#!/bin/sh\necho \'["x", "y"]\'\n')
    program.chmod(0o755)
    flows.program.env["PATH"] = f"{flows.folder}:{flows.program.env['PATH']}"
    text = "steps: {l: {prompt: list, schema: plain, forEach: true}, e: {type: command, depends_on: l, exec: 'echo {{ outputs.l }} >> trace'}}"
    assert run(flows, text) == ["x", "y"]


def test_an_answer_is_text(flows: VisorFlows) -> None:
    """Also where it looks like a number: code and texts see it by itself and as its `text`."""
    text = """
steps:
  ask: {type: human-input, prompt: 1 or 2?, timeout: 300}
  one: {type: command, depends_on: ask, if: "outputs.ask === '1'", exec: "echo {{ outputs.ask }} {{ outputs.ask.text }} >> trace"}
  two: {type: command, depends_on: ask, if: "outputs.ask.text === '2'", exec: "echo two >> trace"}
  sum: {type: script, depends_on: ask, content: "return parseFloat(outputs.ask.text) + 1"}
  say: {type: command, depends_on: sum, exec: "echo {{ outputs.sum }} >> trace"}
"""
    ran = flows.run(f"version: '1'{text}", 4)
    flows.program.call("judge", str(ran.document["run"]), "ask", "skip", "--output", "1", "--resume", code=0)
    assert sorted((flows.folder / "trace").read_text().split("\n")[:-1]) == ["1 1", "2"]


TAGGED = """
steps:
  d: {type: command, exec: ./step d, tags: [slow]}
  i: {type: command, exec: ./step i, tags: [fast], if: 'false'}
  f: {type: command, exec: ./step f 9, tags: [bad]}
  s: {type: command, exec: ./step s, depends_on: d}
  t: {type: command, exec: ./step t, depends_on: [d, i]}
  u: {type: command, exec: ./step u, depends_on: "d|i"}
  v: {type: command, exec: ./step v, depends_on: f}
"""


@pytest.mark.parametrize(
    ("tags", "order", "code"),
    [("", "s t u v", 0), ("fast", "s v", 0), ("slow", "d s t u v", 0), ("slow,fast,bad", "d f s u", 1)],
)
def test_what_tags_leave_out_is_not_waited_for(flows: VisorFlows, tags: str, order: str, code: int) -> None:
    """It is no part of the run; what `if` skips, or what fails, still counts."""
    words = ("--input", f"tags={tags}") if tags else ()
    assert sorted(run(flows, TAGGED, code, *words)) == order.split()


def test_what_is_for_another_event_is_not_waited_for(flows: VisorFlows) -> None:
    """The same goes for events; where both are for the event one waits for the other."""
    text = "steps: {a: {type: command, exec: ./step a, on: [pr_opened]}, b: {type: command, exec: ./step b, on: [manual, pr_opened], depends_on: a}}"
    assert run(flows, text, 0, "--input", "event=manual") == ["b"]
    assert run(flows, text, 0, "--input", "event=pr_opened") == ["a", "b"]


def test_a_file_in_which_nothing_would_run_says_so() -> None:
    """Every step has tags, and none are asked for."""
    text = "version: '1'\n%ssteps: {a: {type: noop, tags: [x]}, b: {type: noop, tags: [y]}}"
    notice = "notice: every step has tags: nothing runs unless some are asked for"
    assert notice in compiled(text % "")[1]
    assert compiled(text % "tag_filter: {include: [x]}\n")[1] == []


def test_rules_of_another_file_name_that_file(flows: VisorFlows) -> None:
    """Each key where it stands: of the file that extends, or of the one that is extended."""
    flows.program.write("version: '1'\nrouting: {defaults: {on_fail: {retry: {max: 1}}}}\nsteps:\n"
                        "  a: {type: command, exec: ./step a 9, continue_on_failure: true}\n"
                        "  b: {type: command, exec: ./step b 9, depends_on: a, on_fail: {goto: a}}\n", "base.yaml")  # fmt: skip
    ran = flows.run(
        "version: '1'\nextends: base.yaml\nrouting: {max_loops: 3}\nsteps: {b: {on_fail: {retry: {max: 1}}}}\n", 1
    )
    rules = [(route["step"], rule_text(route["rule"])) for route in ran.document["routes"]]
    assert rules[:4] == [
        ("a", "base.yaml:2:32 retry 1"), ("a", "base.yaml:4:40 continue_on_failure"),
        ("b", "flow.yaml:4:23 retry 1"), ("b", "base.yaml:5:65 goto a"),
    ]  # fmt: skip


def test_code_of_another_file_is_found_wrong_there(flows: VisorFlows) -> None:
    """What the sandbox can't read is told with the file in which it stands."""
    flows.program.write("version: '1'\nsteps:\n  a: {type: noop, if: 'x ++ y'}\n", "base.yaml")
    flows.program.write("version: '1'\nextends: base.yaml\nsteps: {b: {type: noop}}\n")
    (found,) = flows.program.json("check", "flow.yaml", code=2)["files"][0]["diagnostics"]
    assert (Path(found["file"]).name, found["line"]) == ("base.yaml", 3)


def test_items_of_several_steps_run_one_after_the_other() -> None:
    """What tidies up after one item must not take away what another still needs; a limit in the file is the user's."""
    chain = "steps: {l: {type: command, exec: x, forEach: true}, p: {type: command, exec: x, depends_on: l}, q: {type: command, exec: x, depends_on: %s}}"
    found = {}
    for name, text in (
        ("chain", chain % "p"), ("beside", chain % "l"), ("limited", f"max_parallelism: 4\n{chain % 'p'}"),
    ):  # fmt: skip
        (fan,) = [step.action for step in workflow_of(f"version: '1'\n{text}").steps if isinstance(step.action, FanOut)]
        found[name] = fan.max_parallel
    assert found == {"chain": 1, "beside": None, "limited": None}


def test_items_that_share_a_place_come_to_their_end(flows: VisorFlows) -> None:
    """The first item tidies up before the second begins, on as many processors as there are."""
    flows.program.write("""
version: '1'
steps:
  list: {type: command, exec: "echo '[1, 2, 3]'", forEach: true}
  mark: {type: command, depends_on: list, exec: "touch mark-{{ outputs.list }}"}
  use: {type: command, depends_on: list, exec: "test -f mark-{{ outputs.list }}", on_fail: {run: [mark], retry: {max: 1}}}
  tidy: {type: command, depends_on: use, exec: "rm mark-* && echo {{ outputs.list }} >> trace"}
""")
    document = flows.program.json("run", "flow.yaml", "--max-parallel", "4")
    assert (flows.folder / "trace").read_text() == "1\n2\n3\n"
    assert [job["status"] for job in document["jobs"] if job["step"] == "use"] == ["completed"] * 3


def test_a_remedy_may_need_a_remedy(flows: VisorFlows) -> None:
    """Neither runs unless it is called for; a step that runs anyway makes what it needs run anyway."""
    text = "a%s: on_fail: {run: [one, two]}\none\ntwo < one\nb < a"
    assert flows.run(flow(text % "")).order == ["a", "b"]
    assert flows.run(flow(text % ".1")).order == ["a", "one", "two", "a", "b"]
    assert flows.run(flow(text % "" + "\nthree < two")).order == ["a", "one", "b", "two", "three"]


def test_a9_a16_a_jump_to_what_follows_anyway_is_none(flows: VisorFlows) -> None:
    """A step after this one runs when this one is done, once; it costs nothing, and the user is told."""
    text = "routing: {max_loops: %s}\nask: on_success: {goto: refine}\nrefine.%s < ask: on_fail: {goto: ask}, on_success: {goto: finish}\nfinish < refine"
    assert flows.run(flow(text % (2, 2))).order == ["ask", "refine", "ask", "refine", "ask", "refine", "finish"]
    notices = [found["message"] for found in flows.program.json("check", "flow.yaml")["files"][0]["diagnostics"]]
    assert notices == [
        "`refine` depends on `ask` and follows it by itself: nothing jumps",
        "`finish` depends on `refine` and follows it by itself: nothing jumps",
    ]
    assert flows.run(flow(text % (0, 9)), 1).order == ["ask", "refine"]
    more = flow("a: on_success: {goto: c, run: [n]}\nb < a\nc < b\nn")
    assert flows.run(more).order == ["a", "n", "b", "c"]


def test_a_jump_aside_is_refused_in_the_words_of_the_file() -> None:
    """The hints name keys that a Visor file has."""
    findings = errors_of(
        flow("a: on_success: {goto: b}\nb\nc < a: on_fail: {transitions: [{when: 'true', to: d}]}\nd < c")
    )
    assert findings == [
        "`b` does not come before `a`, and `goto` leads back", "`d` comes after `c`, and `goto` leads back",
    ]  # fmt: skip


def test_schemas_are_written_as_text_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON in a text is a schema; a path is looked for beside the file, then in the caller's folder."""
    text = "version: '1'\nsteps: {s: {type: command, exec: x, schema: '%s'}}"
    transform = workflow_of(text % '{"type": "object"}').steps[0].transform
    assert transform is not None
    assert transform.schema == {"type": "object"}
    assert errors_of(text % "{type: object}") == [
        "the schema is not JSON (JSON is malformed: object keys must be strings (byte 1))"
    ]
    assert errors_of(text % '{"type": "{{ x }}"}') == ["a schema is known before the run: this one is a template"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "form.json").write_text('{"type": "array"}')
    transform = workflow_of(text % "./form.json", tmp_path / "elsewhere").steps[0].transform
    assert transform is not None
    assert transform.schema == {"type": "array"}


def test_a_list_that_only_others_gather_is_one_value(flows: VisorFlows) -> None:
    """Steps that run once for all items need no items to be run for."""
    text = """
steps:
  l: {type: command, exec: "echo '[1, 2]'", forEach: true}
  p: {type: command, depends_on: l, reduce: true, exec: "echo p {{ outputs.l | json }} >> trace"}
  q: {type: log, depends_on: l, message: hi}
  r: {type: command, depends_on: [p, q], exec: "echo r >> trace"}
"""
    assert run(flows, text) == ["p [1,2]", "r"]


def test_what_follows_items_follows_a_list_without_them(flows: VisorFlows) -> None:
    """`on_finish` of a step below which nothing runs for each item is not forgotten; beside `on_success` it is refused."""
    text = "steps: {l: {type: command, exec: 'echo [1]', forEach: true, on_finish: {run: [z]}%s}, z: {type: command, exec: ./step z}}"
    assert run(flows, text % "") == ["z"]
    message = "`on_finish` and `on_success` follow the same thing here: nothing runs for each item"
    assert errors_of(f"version: '1'\n{text % ', on_success: {run: [z]}'}") == [message]


def test_a_transition_to_what_follows_anyway_is_none(flows: VisorFlows) -> None:
    """It ends the search, so that no later transition jumps; the step that depends on this one runs once."""
    text = """
steps:
  s: {type: command, exec: ./step s}
  a:
    type: command
    depends_on: [s]
    exec: ./step a
    on_success: {transitions: [{when: "true", to: b}, {when: "true", to: s}]}
  b: {type: command, depends_on: [a], exec: ./step b}
"""
    assert run(flows, text) == ["s", "a", "b"]
    said = "notice: `b` depends on `a` and follows it by itself: nothing jumps"
    assert said in compiled(f"version: '1'\n{text}")[1]


@pytest.mark.parametrize("given", ["'{{ files }}'", "{items: x, itemVar: y}"])
def test_for_each_with_anything_but_true_or_false_counts_as_true_with_a_warning(flows: VisorFlows, given: str) -> None:
    """As in Visor: the step runs once, and what depends on it runs for each item of its output."""
    text = f"""
steps:
  list: {{type: command, exec: "./step list; echo '[1, 2]'", forEach: {given}}}
  each: {{type: command, depends_on: [list], exec: "./step each{{{{ outputs.list }}}}"}}
"""
    assert run(flows, text) == ["list", "each1", "each2"]
    assert [said for said in compiled(f"version: '1'\n{text}")[1] if said.startswith("warning: `forEach` is true or")]


@pytest.mark.parametrize(
    ("keys", "is_noticed"),
    [
        ("schema: code-review", True),
        ("schema: security, failure_conditions: {many: {condition: 'totalIssues > 9', severity: info}}", True),
        ("schema: code-review, fail_if: criticalIssues > 0", False),
        ("schema: code-review, failure_conditions: {many: {condition: totalIssues > 9}}", False),
        ("schema: code-review, guarantee: criticalIssues == 0", False),
        ("schema: overview", False),
    ],
)
def test_critical_issues_that_nothing_judges_are_noticed(keys: str, is_noticed: bool) -> None:
    """Visor ends with exit code 1 after a critical issue; here a condition has to say so, and `check` tells how."""
    said = compiled(f"version: '1'\nsteps: {{a: {{type: ai, prompt: look, {keys}}}}}\n")[1]
    notice = "notice: an issue of severity `critical` does not fail the run, as it does in Visor"
    assert [line for line in said if line.startswith("notice: an issue")] == [notice] * is_noticed


def test_a_schema_that_is_a_template_is_put_into_the_prompt_and_not_checked() -> None:
    """The agent is asked for it, with a warning; other steps refuse it."""
    schema = """schema: '{"type": "object", "n": {{ inputs.n }}}'"""
    workflow, found = compiled(f"version: '1'\nsteps: {{s: {{type: ai, prompt: hi, {schema}}}}}")
    assert workflow is not None
    [step] = workflow.steps
    assert str(getattr(step.action, "prompt", "")).endswith('schema:\n{"type": "object", "n": {{ inputs.n }}}')
    assert getattr(step.transform, "schema", None) is None
    assert any(said.startswith("warning: this schema is a template") for said in found)
    assert errors_of(f"version: '1'\nsteps: {{s: {{type: command, exec: x, {schema}}}}}") == [
        "a schema is known before the run: this one is a template"
    ]


def test_services_are_told_of_by_check_and_by_run(flows: VisorFlows) -> None:
    """Both say that nothing starts them, before anything runs."""
    flows.program.write("version: '1'\nslack: {version: v1}\nhttp_server: {port: 1}\nsteps: {s: {type: noop}}\n")
    for words in (("check", "flow.yaml"), ("run", "flow.yaml")):
        done = flows.program.call(*words, code=0)
        for name in ("slack", "http_server"):
            assert f"`{name}` is not started: a run here is started by hand or by a timer" in done.stdout + done.stderr
