"""`end` always starts: what it names and never came is empty, null or undefined there, in files of every system."""

from __future__ import annotations

import pytest

from tests.runs.ladder.flows import Flows

NEVER = "resile: 1\nname: never\nsteps:\n- {id: bad, shell: exit 3}\n"
SOURCES = {
    "step": ("{step: list}", "'list' gave no list, so there are no items"),
    "captured": ("'${things}'", "`${things}` has no value, so there are no items"),
    "deep": ("'${steps.list.output.some.thing}'", "has no value, so there are no items"),
    "results": ("'${steps.work.results}'", "`${steps.work.results}` has no value, so there are no items"),
    "file": ("made.json", "there is no file made.json, so there are no items"),
    "path": ("'${steps.list.output}/items.json'", "there is no file /items.json, so there are no items"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_map_in_end_over_what_never_came_has_no_items(flows: Flows, source: str) -> None:
    """It completes, and says why it had none; the run has failed by the step that failed, and by nothing else."""
    given, why = SOURCES[source]
    ran = flows.run(
        NEVER + "- {id: list, needs: [bad], shell: 'echo [1] | tee made.json', capture: {things: json}}\n"
        "- {id: work, needs: [bad], map: {input: [1], steps: [{shell: echo 1}]}}\n"
        f"- {{id: end, map: {{input: {given}, steps: [{{shell: 'echo ${{item}}'}}]}}}}\n",
        1,
    )
    assert ran.status["end"] == "completed"
    (listed,) = ran.of("items_listed")
    assert listed["data"]["total"] == 0
    assert why in listed["data"]["remarks"][0]
    assert ran.document["first_failure"]["step"] == "bad"


def test_outside_of_end_such_a_list_fails_its_map(flows: Flows) -> None:
    """Only `end` has to run whatever happened."""
    ran = flows.run(
        "name: m\nsteps:\n- {id: a, shell: 'true'}\n- {id: m, map: {input: {step: a}, steps: [{shell: 'true'}]}}\n", 1
    )
    assert ran.failed == "the output of 'a' is not a list"


def test_a_wrong_list_in_end_still_fails_it(flows: Flows) -> None:
    """A step that ran and printed no list is a failure there too."""
    ran = flows.run(
        "name: m\nsteps:\n- {id: a, shell: 'echo x'}\n- {id: end, map: {input: {step: a}, steps: [{shell: 'true'}]}}\n",
        1,
    )
    assert ran.failed == "the output of 'a' is not a list"


def test_texts_and_conditions_of_a_native_end(flows: Flows) -> None:
    """Texts are empty, and a condition that asks for what never ran does not hold; everything else of `end` runs."""
    ran = flows.run(
        NEVER + "- {id: list, needs: [bad], shell: 'echo 1', capture: {things: json}}\n"
        "- id: end\n  map:\n    input: [one]\n    steps:\n"
        "    - {id: asks, when: 'outputs.list.deep.er === 1', shell: 'echo asked >> seen'}\n"
        "    - {id: none, when: 'outputs.list === undefined || outputs.list === null', shell: 'echo none >> seen'}\n"
        "    - {id: tells, shell: 'echo \"<${steps.list.output.x}> <${things.deep.er}>\" >> seen'}\n",
        1,
    )
    assert ran.status["end"] == "completed"
    assert sorted((flows.folder / "seen").read_text().splitlines()) == ["<> <>", "none"]


STOPPED = """\
resile: 1
name: stopped
steps:
  bad: {shell: exit 3, critical: true}
  fix: {shell: touch fixed; echo fix >> seen}
  calls: {needs: [bad], shell: 'false', on_failure: {run: [fix]}}
  end: END
"""
HEALS = "shell: echo check >> seen; test -e fixed, on_failure"
ENDS = {
    "map": ("{map: {input: [1, 2], max_parallel: 1, steps: [{shell: 'echo ${item} >> seen'}]}}", "1 2"),
    "child": ("{workflow: child.yaml}", "child"),
    "retry": ("{shell: 'echo x >> seen; test $(wc -l < seen) -ge 2', retry: 2}", "x x"),
    "handler": (f"{{{HEALS}: {{shell: 'touch fixed; echo fix >> seen', max_attempts: 2}}}}", "check fix check"),
    "remedy": (f"{{{HEALS}: {{run: [fix]}}}}", "check fix check"),
    "after": ("{shell: echo last >> seen, on_success: echo after >> seen}", "last after"),
}


@pytest.mark.parametrize("form", ENDS)
def test_everything_of_end_runs_in_a_run_that_was_stopped(flows: Flows, form: str) -> None:
    """A critical failure stops the workflow: items, a child, retries and handlers of its `end` run all the same."""
    end, seen = ENDS[form]
    flows.program.write("resile: 1\nname: child\nsteps: [{shell: echo child >> seen}]\n", "child.yaml")
    ran = flows.run(STOPPED.replace("END", end), 1)
    assert (flows.folder / "seen").read_text().split() == seen.split()
    assert ran.status["end"] in ("completed", "recovered")
    assert ran.document["first_failure"]["step"] == "bad"


VISOR = """\
version: "1.0"
steps:
  bad: {type: command, exec: exit 3}
  list: {type: command, exec: "echo '{}'", depends_on: [bad]}
outputs:
- name: told
  value: "<{{ outputs.list.deep.er }}{% for x in outputs.list.some %}{{ x }}{% endfor %}{{ outputs.list.x | upcase }}>"
- {name: code, value_js: "return outputs.list === undefined || outputs.list === null ? 'none' : 'some'"}
- {name: deep, value_js: "return outputs.list.deep.er"}
"""
NOETL = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
- {step: start, tool: {kind: shell, cmd: exit 3}, next: [{step: list}]}
- {step: list, tool: {kind: shell, cmd: echo 1}, next: [{step: end}]}
- {step: end, LOOPtool: {kind: shell, cmd: "echo '<{{ list.data.x.y }}{{ list.z | upper }}>' >> seen"}}
"""
TORC = """\
name: t
jobs:
- {name: bad, command: exit 3}
- {name: list, command: echo 1, depends_on: [bad]}
actions:
- {trigger_type: on_workflow_complete, action_type: run_commands, commands: [touch ended]}
"""
PYTHON = """\
import resile

@resile.step
def bad():
    raise ValueError("no")

@resile.step
def listed(value):
    return [1, 2]

@resile.step(name="end")
def last(value):
    with open("seen", "w") as file:
        file.write(repr(value))

with resile.Workflow("t") as flow:
    last(listed(bad()))
"""
PRODIGY = """\
name: t
mode: mapreduce
map:
  input: [{n: 1}]
  json_path: "$[*]"
  agent_template: [{shell: "exit 3"}]
reduce: [{shell: "echo ${map.results} >> seen"}]
"""


def test_outputs_of_a_visor_file(flows: Flows) -> None:
    """Liquid gives empty text, JavaScript what it makes of undefined; the run has failed by its step alone."""
    flows.program.write(VISOR, "visor.yaml")
    ran = flows.drive("run", "visor.yaml", code=1)
    told = {name: value for name, value in ran.document["outputs"].items() if name != "bad"}
    assert told == {"told": "<>", "code": "none", "deep": None}
    assert ran.document["first_failure"]["step"] == "bad"
    assert [event["step"] for event in ran.of("step_failed")] == ["bad"]


@pytest.mark.parametrize("loop", ["", "loop: {in: '{{ list.data.rows }}', iterator: row}, "])
def test_end_of_a_playbook(flows: Flows, loop: str) -> None:
    """Jinja gives empty text; a loop over what never came has no items."""
    flows.program.write(NOETL.replace("LOOP", loop), "noetl.yaml")
    ran = flows.drive("run", "noetl.yaml", code=1)
    assert ran.status["end"] == "completed"
    assert (flows.folder / "seen").exists() == (not loop)
    assert [event["step"] for event in ran.of("step_failed")] == ["start"]


def test_end_of_a_torc_file(flows: Flows) -> None:
    """The actions on completion run after a failure."""
    flows.program.write(TORC, "torc.yaml")
    ran = flows.drive("run", "torc.yaml", code=1)
    assert ran.status["end"] == "completed"
    assert [file.name for file in flows.folder.rglob("ended")] == ["ended"]


def test_end_of_a_python_workflow(flows: Flows) -> None:
    """An argument whose step never ran is None."""
    flows.program.write(PYTHON, "flow.py")
    ran = flows.drive("run", "flow.py", code=1)
    assert ran.status["end"] == "completed"
    assert (flows.folder / "seen").read_text() == "None"


def test_a_prodigy_file_has_an_end_that_does_nothing(flows: Flows) -> None:
    """Nothing in such a file is `end`; it starts all the same, also after an item that failed."""
    flows.program.write(PRODIGY, "prodigy.yaml")
    ran = flows.drive("run", "prodigy.yaml", code=0)
    assert ran.status["end"] == "completed"
