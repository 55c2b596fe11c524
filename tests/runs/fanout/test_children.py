"""Child workflows: what goes in and comes out, whose verdict counts, and what happens when things break."""

from __future__ import annotations

import signal

from tests.runs.ladder.flows import Flows

CHILD = """\
resile: 1
name: child
inputs: {who: {required: true}, times: {type: number, default: 0}}
steps:
  greet: {shell: './step greet-${inputs.who} ${inputs.times}; echo hello ${inputs.who}', capture: greeting}
  count: {shell: 'echo 7', capture: {number: number}, needs: [greet]}
"""
BREAKING = """\
resile: 1
name: breaking
steps:
  first: {shell: ./step child-first}
  second: {shell: './step child-second TIMES', needs: [first]}
  third: {shell: ./step child-third, needs: [second]}
  end: {shell: ./step child-end}
"""


def breaking(flows: Flows, times: int) -> None:
    """A child whose second step fails so many times."""
    flows.program.write(BREAKING.replace("TIMES", str(times)), "child.yaml")


def test_inputs_go_in_and_captured_values_come_out(flows: Flows) -> None:
    """The parent gives inputs, some made of values, and reads what the child captured."""
    flows.program.write(CHILD, "child.yaml")
    ran = flows.run(
        "name: parent\nsteps:\n- {id: name, shell: echo world}\n"
        "- {id: call, workflow: child.yaml, inputs: {who: '${steps.name.output}'}}\n"
        "- {shell: 'echo ${steps.call.outputs.greeting} ${steps.call.outputs.number}', capture: told}\n"
    )
    assert ran.order == ["greet-world"]
    assert ran.document["outputs"] == {"told": "hello world 7"}
    scopes = [(job["scope"], job["step"]) for job in ran.document["jobs"] if job["scope"] != "root"]
    assert scopes == [("call", "greet"), ("call", "count"), ("call", "end")]


def test_inputs_are_checked_before_anything_runs(flows: Flows) -> None:
    """A missing input, one that the child does not know, and one of the wrong type are refused by name."""
    flows.program.write(CHILD, "child.yaml")
    head = "name: parent\nsteps:\n- {id: call, workflow: child.yaml, inputs: "
    assert flows.refused(head + "{}}\n") == ["`child` needs the input `who`"]
    assert flows.refused(head + "{who: a, what: b}}\n") == ["`child` has no input `what`"]
    assert flows.refused(head + "{who: a, times: many}}\n") == ["expected a value of the type number, not `many`"]


def test_computed_inputs_have_the_types_that_the_child_declares(flows: Flows) -> None:
    """A text that is a number becomes one; what is none, or no truth value, fails the step before the child runs."""
    flows.program.write(
        "resile: 1\nname: child\ninputs: {n: {type: number, default: 0}, yes: {type: bool, default: true}}\n"
        "steps: {a: {shell: ./step a, when: inputs.n === 7 && inputs.yes === false}}\n",
        "child.yaml",
    )
    parent = (
        "name: parent\nsteps:\n- {id: say, shell: echo OUTPUT}\n"
        "- {id: call, workflow: child.yaml, inputs: {INPUT: '${steps.say.output}'MORE}}\n"
    )
    good = parent.replace("OUTPUT", "7").replace("INPUT", "n").replace("MORE", ", 'yes': false")
    assert flows.run(good).order == ["a"]
    for name, said, kind in (("n", "seven", "number"), ("n", "", "number"), ("'yes'", "maybe", "bool")):
        ran = flows.run(parent.replace("OUTPUT", said).replace("INPUT", name).replace("MORE", ""), code=1)
        assert ran.document["first_failure"]["kind"] == "contract"
        assert ran.document["first_failure"]["message"] == f"input {name.strip(chr(39))!r}: {said!r} is not a {kind}"


def test_a_changed_child_is_compiled_again(flows: Flows) -> None:
    """The parent's file is the same, the child's is not: the new one runs."""
    parent = "name: parent\nsteps:\n- {id: call, workflow: child.yaml}\n"
    for word in ("old", "new"):
        flows.program.write(f"resile: 1\nsteps: [{{shell: ./step {word}}}]\n", "child.yaml")
        assert flows.run(parent).order == [word]


def test_the_parent_waits_and_inherits_a_failed_childs_verdict(flows: Flows) -> None:
    """The child ends through its own `end`; the parent's step fails, what needs it is canceled, its `end` runs last."""
    breaking(flows, 9)
    ran = flows.run(
        "name: parent\nsteps:\n  call: {workflow: child.yaml}\n  after: {shell: ./step after, needs: [call]}\n"
        "  end: {shell: ./step end}\n",
        1,
    )
    assert ran.order == ["child-first", "child-second", "child-end", "end"]
    assert ran.status == {"call": "failed", "after": "canceled", "end": "completed"}
    (failed,) = [event for event in ran.of("attempt_failed") if event["step"] == "call"]
    assert failed["data"]["verdict"] == "failed"
    assert failed["data"]["failed_steps"] == ["second"]
    assert failed["data"]["message"] == "second failed: exit code 1: child-second is broken"
    assert [event["type"] for event in ran.events][-2:] == ["workflow_failed", "playbook_failed"]
    assert [event["type"] for event in ran.events].count("playbook_failed") == 1


def test_the_parents_retry_runs_the_whole_child_again(flows: Flows) -> None:
    """A new attempt of the step is a new visit of the child, from its first step."""
    breaking(flows, 1)
    ran = flows.run("name: parent\nsteps:\n- {id: call, workflow: child.yaml, retry: {max: 1}}\n")
    assert ran.order == [
        "child-first", "child-second", "child-end", "child-first", "child-second", "child-third", "child-end"
    ]  # fmt: skip
    assert ran.status["call"] == "completed"


def test_the_parents_handler_answers_a_failed_child(flows: Flows) -> None:
    """It sees what failed, and the step is recovered."""
    breaking(flows, 9)
    ran = flows.run(
        "name: parent\nsteps:\n- id: call\n  workflow: child.yaml\n"
        "  on_failure: 'echo ${error.step} ${error.exit_code} ${error.message} > seen; ./step mended'\n"
        "- {shell: ./step after}\n"
    )
    assert ran.order == ["child-first", "child-second", "child-end", "mended", "after"]
    assert ran.status["call"] == "recovered"
    seen = (flows.folder / "seen").read_text()
    assert seen == "call 1 second failed: exit code 1: child-second is broken\n"


def test_rules_inside_the_child_answer_first(flows: Flows) -> None:
    """What the child mends itself, its parent never hears of."""
    text = BREAKING.replace("TIMES', needs", "1', retry: {max: 1}, needs")
    flows.program.write(text, "child.yaml")
    ran = flows.run("name: parent\nsteps:\n- {id: call, workflow: child.yaml, retry: {max: 5}}\n")
    assert ran.order == ["child-first", "child-second", "child-second", "child-third", "child-end"]
    assert [route["scope"] for route in ran.document["routes"]] == ["call"]


def test_the_childs_end_may_override_its_verdict(flows: Flows) -> None:
    """`workflow_status` of the child's `end` is what the parent's step inherits."""
    text = BREAKING.replace("TIMES", "9").replace(
        "end: {shell: ./step child-end}", 'end: {shell: \'echo {\\"workflow_status\\": \\"completed\\"}\'}'
    )
    flows.program.write(text, "child.yaml")
    ran = flows.run("name: parent\nsteps:\n- {id: call, workflow: child.yaml}\n- {shell: ./step after}\n")
    assert ran.order == ["child-first", "child-second", "after"]


def test_a_child_runs_for_each_item_of_a_map(flows: Flows) -> None:
    """Each visit has its own inputs and its own scope, inside its item."""
    flows.program.write(CHILD, "child.yaml")
    ran = flows.run(
        "name: parent\nsteps:\n- id: process\n  map:\n    input: [a, b]\n    steps:\n"
        "    - {id: call, workflow: child.yaml, inputs: {who: '${item}'}}\n"
        "    - {id: use, shell: 'echo ${steps.call.outputs.greeting}'}\n"
        "- {shell: 'echo ${steps.process.results}', capture: all}\n"
    )
    assert ran.order == ["greet-a", "greet-b"]
    assert ran.document["outputs"] == {"all": '["hello a","hello b"]'}
    assert {job["scope"] for job in ran.document["jobs"]} >= {"process[0]/call", "process[1]/call"}


def test_expressions_in_a_child_see_the_childs_inputs(flows: Flows) -> None:
    """`inputs` in code is what the child was given, not what the run was."""
    flows.program.write(
        "resile: 1\ninputs: {go: {type: bool, default: false}}\nsteps:\n"
        "- {shell: ./step yes, when: inputs.go}\n- {shell: ./step no, when: '!inputs.go'}\n",
        "child.yaml",
    )
    ran = flows.run(
        "name: parent\ninputs: {go: {type: bool, default: false}}\nsteps:\n"
        "- {id: call, workflow: child.yaml, inputs: {go: true}}\n"
    )
    assert ran.order == ["yes"]


def test_children_go_down_to_a_depth_and_never_call_themselves(flows: Flows) -> None:
    """Eight levels are compiled, a ninth is refused, and so is a circle."""
    for level in range(9):
        flows.program.write(f"resile: 1\nsteps: [{{workflow: level{level + 1}.yaml}}]\n", f"level{level}.yaml")
    flows.program.write("resile: 1\nsteps: [{shell: ./step bottom}]\n", "level9.yaml")
    assert flows.run("name: top\nsteps: [{workflow: level2.yaml}]\n").order == ["bottom"]
    found = flows.refused("name: top\nsteps: [{workflow: level0.yaml}]\n")
    assert "workflows in workflows go no deeper than 8 levels" in found
    flows.program.write("resile: 1\nsteps: [{workflow: flow.yaml}]\n", "back.yaml")
    found = flows.refused("name: circle\nsteps: [{workflow: back.yaml}]\n")
    assert any("calls itself" in message for message in found)


GATED = """\
resile: 1
name: gated
steps:
  first: {shell: ./step child-first}
  hold: {shell: 'echo up > up; read line < gate; ./step child-hold', needs: [first]}
  last: {shell: ./step child-last, needs: [hold]}
  end: {shell: 'echo child-end ${execution.status} >> trace'}
"""
PARENT = """\
resile: 1
name: parent
steps:
  call: {workflow: child.yaml}
  after: {shell: ./step after, needs: [call]}
  end: {shell: 'echo end ${execution.status} >> trace'}
"""


def test_a_cancel_goes_down_into_the_child(flows: Flows) -> None:
    """What runs in the child is ended, what waits never starts, both ends run, the child's first."""
    flows.program.gate("gate")
    up = flows.program.gate("up")
    flows.program.write(GATED, "child.yaml")
    flows.program.write(PARENT)
    with flows.program.start("run", "flow.yaml", "--json") as run:
        up.wait()
        flows.program.call("cancel", "1", code=0)
        assert run.end() == 3
    assert (flows.folder / "trace").read_text().splitlines() == ["child-first", "child-end canceled", "end canceled"]
    jobs = flows.program.json("status", "1")["jobs"]
    assert {(job["scope"], job["step"], job["status"]) for job in jobs if job["step"] != "end"} == {
        ("root", "call", "terminated"),
        ("root", "after", "canceled"),
        ("call", "first", "completed"),
        ("call", "hold", "terminated"),
        ("call", "last", "canceled"),
    }


def test_a_crash_resumes_in_the_child_and_starts_no_second(flows: Flows) -> None:
    """Killed while a step of the child runs: that step is adopted, what had finished is not run again."""
    gate, up = flows.program.gate("gate"), flows.program.gate("up")
    flows.program.write(GATED, "child.yaml")
    flows.program.write(PARENT)
    with flows.program.start("run", "flow.yaml", "--json") as run:
        up.wait()
        run.send(signal.SIGKILL)
        run.process.wait()
    gate.open()
    document = flows.program.json("resume", "1")
    assert document["status"] == "completed"
    assert (flows.folder / "trace").read_text().splitlines() == [
        "child-first", "child-hold", "child-last", "child-end completed", "after", "end completed"
    ]  # fmt: skip
    assert [job["attempts"] for job in document["jobs"] if job["step"] == "call"] == [1]
    assert sum(job["step"] == "first" for job in document["jobs"]) == 1


def test_a_child_that_takes_too_long_is_ended(flows: Flows) -> None:
    """`timeout` on the step is for the whole visit; the child's `end` still runs."""
    flows.program.gate("gate")
    flows.program.gate("up")
    flows.program.write(GATED, "child.yaml")
    ran = flows.run("name: parent\nsteps:\n- {id: call, workflow: child.yaml, timeout: 300ms}\n", 1)
    assert ran.order[0] == "child-first"
    assert ran.order[-1].startswith("child-end")
    assert ran.failed == "timed out after 0.3s"
    assert ran.document["first_failure"]["kind"] == "timeout"


def test_how_many_run_at_once_is_for_the_caller_to_say(flows: Flows) -> None:
    """`max_parallel` in a native child is refused where the child is called, also inline; alone it may have one."""
    child = "resile: 1\nmax_parallel: 2\nsteps: [{shell: ./step alone}]\n"
    flows.program.write(child, "child.yaml")
    message = "`max_parallel` has no meaning in a workflow that another one calls: the caller's counts"
    called = flows.refused("name: parent\nsteps:\n- {id: call, workflow: child.yaml}\n")
    assert called == [message, "`child.yaml` has errors and can't be run"]
    inline = "name: parent\nsteps:\n- {id: call, workflow: {resile: 1, max_parallel: 2, steps: [{shell: 'true'}]}}\n"
    assert flows.refused(inline) == [message]
    assert flows.run(child.removeprefix("resile: 1\n")).order == ["alone"]


def test_a_called_file_of_another_kind_is_told_that_the_caller_counts(flows: Flows) -> None:
    """There its `max_parallelism` says more than that, so it is no error."""
    flows.program.write("version: '1.0'\nmax_parallelism: 2\nsteps: {a: {type: command, exec: 'true'}}\n", "child.yaml")
    flows.program.write("resile: 1\nsteps:\n- {id: call, workflow: child.yaml}\n", "flow.yaml")
    (checked,) = flows.program.json("check", "flow.yaml")["files"]
    (found,) = checked["diagnostics"]
    said = "`child.yaml` bounds how many of its steps run at once: the caller's `max_parallel` counts"
    assert (found["severity"], found["line"], found["message"]) == ("warning", 3, said)


def test_a_child_has_what_its_env_files_say(flows: Flows) -> None:
    """They lie beside the child's file; a name that the caller's own file gives has the caller's value."""
    for name, text in (("child.env", "MINE=child\nBOTH=child\n"), ("parent.env", "BOTH=parent\n")):
        flows.program.write(text, name)
    flows.program.write(
        "resile: 1\nname: child\nenv_files: [child.env]\nsteps:\n- {id: say, shell: './step $MINE-$BOTH'}\n",
        "child.yaml",
    )
    ran = flows.run("name: parent\nenv_files: [parent.env]\nsteps:\n- {id: call, workflow: child.yaml}\n")
    assert ran.order == ["child-parent"]


RESULTS = """\
resile: 1
name: child
inputs: {who: {required: true}}
steps:
- {id: say, shell: 'echo hello ${inputs.who}'}
- {id: list, shell: 'echo [1, 2]', capture: {numbers: json}}
- {id: each, map: {input: [1], steps: [{shell: 'true'}]}}
"""


def test_result_names_the_step_whose_output_is_that_of_the_child(flows: Flows) -> None:
    """Its stdout, or its one captured value, also through two children and in JavaScript; captured values stay."""
    flows.program.write(RESULTS, "child.yaml")
    middle = "resile: 1\nname: middle\nsteps:\n- {id: deep, workflow: child.yaml, inputs: {who: us}, result: say}\n"
    flows.program.write(middle, "middle.yaml")
    ran = flows.run(
        "name: parent\nsteps:\n- {id: text, workflow: child.yaml, inputs: {who: me}, result: say}\n"
        "- {id: value, workflow: child.yaml, inputs: {who: me}, result: list}\n"
        "- {id: far, workflow: middle.yaml, result: deep}\n"
        "- {id: plain, workflow: child.yaml, inputs: {who: me}}\n"
        "- {id: tell, when: \"outputs.text === 'hello me' && outputs.value[1] === 2\", capture: told, shell: "
        "'echo ${steps.text.output}, ${steps.value.output[0]}, ${steps.far.output}, "
        "${steps.text.outputs.numbers[1]}'}\n"
        "- {id: all, shell: 'echo ${steps.plain.output}', capture: all}\n"
    )
    assert ran.document["outputs"] == {"told": "hello me, 1, hello us, 2", "all": '{"numbers":[1,2]}'}


def test_a_result_that_gives_no_value_is_refused(flows: Flows) -> None:
    """A step that the child does not have, or one that has a value for each item; and `result` without a child."""
    flows.program.write(RESULTS, "child.yaml")
    call = "name: parent\nsteps:\n- {id: c, workflow: child.yaml, inputs: {who: me}, result: NAME}\n"
    assert flows.refused(call.replace("NAME", "sya")) == ["`child` has no step `sya`, which `result` names"]
    assert flows.refused(call.replace("NAME", "each")) == [
        "`each` has one value for each item or step inside, so it can't be the `result`"
    ]
    assert flows.refused("name: parent\nsteps:\n- {id: c, shell: 'true', result: c}\n") == [
        "`result` has no meaning without `workflow`"
    ]


def test_migrate_keeps_the_result_of_a_child(flows: Flows) -> None:
    """The file that it writes has the key, and the same value."""
    flows.program.write(RESULTS, "child.yaml")
    call = "resile: 1\nname: parent\nsteps:\n- {id: c, workflow: child.yaml, inputs: {who: me}, result: say}\n"
    flows.program.write(call + "- {shell: 'echo ${steps.c.output}', capture: told}\n")
    flows.program.call("migrate", "flow.yaml", "-o", "written.yaml", code=0)
    assert "    result: say\n" in (flows.folder / "written.yaml").read_text()
    assert flows.drive("run", "written.yaml").document["outputs"] == {"told": "hello me"}
