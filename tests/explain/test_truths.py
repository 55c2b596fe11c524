"""`explain` says only what is so: conditions as the file has them, whose failure it was, which items are alike."""

from __future__ import annotations

from pathlib import Path

from resile.explain.wording import condition_text
from resile.model.builtin_actions import Case
from resile.model.workflow import Condition, Noop, Step
from tests.explain.explain_fixture import ExplainFlows, lines

CASES = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: cases, path: cases}
workflow:
  - step: start
    tool: {kind: shell, cmds: ['exit 3']}
    case:
      - {when: "{{ error is defined and attempt > 7 }}", then: {retry: {max_attempts: 2, initial_delay: 0}}}
      - {when: "{{ error is defined and attempt < 2 }}", then: {retry: {max_attempts: 9, initial_delay: 0}}}
"""
CHILDREN = """
version: "1"
workflows:
  kid:
    outputs: [{name: size, value_js: "21"}]
    steps: {inner: {type: command, exec: "true"}}
  broken:
    steps: {inner: {type: command, exec: exit 7}}
steps:
  big: {type: workflow, workflow: kid, fail_if: output.size > 5}
  bad: {type: workflow, workflow: broken}
"""
NESTED = """
resile: 1
name: nest
steps:
  outer:
    map:
      input: [[1], [2, 3], [4]]
      steps:
        inner: {map: {input: "echo '${item}'", steps: [{id: go, shell: exit 1}],
                      error_policy: {continue_on_failure: true}}}
"""


def explained(flows: ExplainFlows, text: str, code: int) -> list[str]:
    """Run a file of any dialect, which must exit with this code; what is said of it."""
    flows.program.write(text.lstrip())
    flows.program.call("run", "flow.yaml", "--max-parallel", "1", code=code)
    return flows.explain().splitlines()


def test_a_case_is_told_by_its_text(flows: ExplainFlows) -> None:
    """Not by its number, which the file does not have."""
    said = [line.partition("not met: ")[2] for line in explained(flows, CASES, 1) if "said no" in line]
    never, late = "{{ error is defined and attempt > 7 }}", "{{ error is defined and attempt < 2 }}"
    assert said == [never, never, late]


def test_conditions_besides_are_told_too() -> None:
    """All of several, or none of them."""
    step = Step(name="a", action=Noop(), cases=(Case("x > 1"), Case("y > 2")))
    first, second = Condition("0", "case"), Condition("1", "case")
    assert condition_text(step, Condition("", "none", besides=(first, second))) == "none of x > 1, y > 2"
    assert condition_text(step, Condition("z", "jinja", besides=(second,))) == "z and y > 2"


def test_rules_above_a_failed_repair_count_as_spent(flows: ExplainFlows) -> None:
    """Every rule for the failure was used up, so it is not said that there was none."""
    handler = "{retry: {max: 1}, commands: ['false'], fail_workflow: true}"
    text = flows.run_and_explain(f"name: spent\nsteps:\n  a: {{shell: exit 3, on_failure: {handler}}}\n", 1)
    assert text.splitlines()[-1] == "    then      no rule is left, so the failure stands"


def test_a_child_that_completed_is_not_said_to_have_failed(flows: ExplainFlows) -> None:
    """What failed is the judgement of the step that ran it; that of a broken one is reported as before."""
    said = [line.strip() for line in explained(flows, CHILDREN, 1) if line.startswith("  attempt")]
    assert sorted(said) == [
        "attempt 1: failure condition met: output.size > 5",
        "attempt 1: its workflow broken failed: inner failed: exit code 7",
    ]
    found = {step["step"]: step["attempts"][0] for step in flows.program.json("explain", "1")["steps"]}
    assert (found["big"]["child"], found["big"]["verdict"]) == ("kid", "completed")
    assert (found["bad"]["child"], found["bad"]["verdict"]) == ("broken", "failed")


def test_items_with_other_messages_are_no_group(flows: ExplainFlows) -> None:
    """Where no signature says that they are alike, their messages must."""
    said = [line for line in explained(flows, NESTED, 0) if line.startswith("    ") and line[4] != " "]
    assert (
        said
        == lines("""
        |    2 items passed in the end: inner: 1 of 1 items failed
        |    outer[1] passed in the end: inner: 2 of 2 items failed
    """)
        .replace("|", "")
        .splitlines()
    )


def test_a_redrive_is_no_resume(flows: ExplainFlows, tmp_path: Path) -> None:
    """Dead letters that are tried again, with or without success, leave the number of resumes as it is."""
    flows.run_and_explain(NESTED.replace("exit 1", "test -e fixed").lstrip())
    flows.program.call("dlq", "retry", "1", code=1)
    assert flows.program.json("explain", "1")["resumed"] == 0
    (tmp_path / "fixed").touch()
    flows.program.call("dlq", "retry", "1", code=0)
    assert flows.program.json("explain", "1")["resumed"] == 0
