"""Small workflows around the keys that a test is about."""

from __future__ import annotations

import os
import tempfile

import msgspec

from resile.dialects.compile import compile_file, compile_text
from resile.model.codec import decode, encode
from resile.model.rules import Backoff
from resile.model.workflow import Child, Repair, Rule, Step, SuccessActions, Workflow


def compiled(text: str) -> Workflow:
    """The workflow in a text that has no findings but notices and handlers that nothing names."""
    result = compile_text(text, file="flow.yaml", folder="/f")
    found = [one.render() for one in result.diagnostics if one.severity != "notice" and one.code != "unused"]
    assert found == []
    assert (result.dialect, result.why) == ("native", "it has the key `resile`")
    assert result.workflow is not None
    assert decode(encode(result.workflow)) == result.workflow
    return result.workflow


def step_with(keys: str) -> Step:
    """The step `s` with these keys, beside a step `a` and an input `i`."""
    workflow = compiled(f"resile: 1\ninputs: {{i: '1'}}\nsteps:\n  a: {{shell: x}}\n  s: {{{keys}}}\n")
    return workflow.steps[1]


CHILD_TEXT = """resile: 1
name: inner
inputs: {t: x, n: {type: number, default: 1}, b: {type: bool, default: true}, j: {type: json, default: {}}}
steps: [{shell: x, capture: v}]
"""
CHILD = msgspec.structs.replace(compiled(CHILD_TEXT), file="child.yaml", folder="")


def child_with(keys: str) -> Step:
    """A step that calls the workflow above, with these keys; folders are left out, for they are new each time."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (
            ("child.yaml", CHILD_TEXT),
            ("flow.yaml", f"resile: 1\ninputs: {{i: '1'}}\nsteps: [{{workflow: child.yaml, {keys}}}]\n"),
        ):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        result = compile_file(os.path.join(folder, "flow.yaml"))
    assert [finding.render() for finding in result.diagnostics] == []
    assert result.workflow is not None
    step = result.workflow.steps[0]
    action = step.action
    assert isinstance(action, Child)
    assert (action.workflow.folder, action.workflow.file) == (folder, os.path.join(folder, "child.yaml"))
    bare = msgspec.structs.replace(action.workflow, file="child.yaml", folder="")
    return msgspec.structs.replace(step, action=msgspec.structs.replace(action, workflow=bare))


def rule_with(keys: str) -> Rule:
    """The one rule of a step with these keys."""
    (rule,) = step_with(f"shell: x, {keys}").rules
    return rule


def then_of(keys: str) -> list[str]:
    """What the rules of a step with these keys come to, in their order."""
    return [rule.then for rule in step_with(f"shell: x, {keys}").rules]


def handler_with(keys: str) -> Rule:
    """The first rule of a step whose `on_failure` has the command h and these keys."""
    return step_with(f"shell: x, on_failure: {{shell: h, {keys}}}").rules[0]


def repair_with(keys: str) -> Repair:
    """The repair of that rule."""
    repair = handler_with(keys).repair
    assert repair is not None
    return repair


def routed(key: str, keys: str) -> Step:
    """The step `s` after `a` with a remedy `f` beside it, and this key with these keys."""
    steps = f"  a: {{shell: x}}\n  f: {{shell: x}}\n  s: {{shell: x, needs: [a], {key}: {{{keys}}}}}\n"
    return compiled(f"resile: 1\nsteps:\n{steps}").steps[2]


def on_success_with(keys: str) -> SuccessActions:
    """What follows the success of that step."""
    actions = routed("on_success", keys).on_success
    assert actions is not None
    return actions


def default_with(keys: str) -> tuple[Rule, ...]:
    """The rules of a step with nothing but this default."""
    text = f"resile: 1\nrouting: {{defaults: {{on_failure: {{{keys}}}}}}}\nsteps:\n"
    return compiled(text + "  a: {shell: x}\n  f: {shell: x}\n  s: {shell: x, needs: [a]}\n").steps[2].rules


def rule_of(keys: str) -> Rule:
    """The one rule with these keys that a step has from its failure handler."""
    text = f"resile: 1\nfailure_handlers: {{h: {{rules: [{{{keys}}}]}}}}\n"
    (rule,) = compiled(text + "steps: [{shell: x, failure_handler: h}]").steps[0].rules
    return rule


def seconds_of(keys: str) -> float | None:
    """The time of the script of a rule with these keys."""
    repair = rule_of(f"exit_codes: 1, recovery_script: x, {keys}").repair
    return repair.timeout_seconds if repair else None


def on_failure_of(keys: str) -> str:
    """What the failure of the script of a rule with these keys means."""
    repair = rule_of(f"exit_codes: 1, recovery_script: x, {keys}").repair
    return repair.on_failure if repair else ""


def repair_of(on_failure: str) -> Repair:
    """What the handler of a step with this `on_failure` runs."""
    repair = step_with(f"shell: x, on_failure: {on_failure}").rules[0].repair
    assert repair is not None
    return repair


def escalating(keys: str) -> Rule:
    """The rule of a step whose resources escalate so."""
    return rule_with(f"resources: {{memory: 1k, escalate: {{{keys}}}}}")


def agent_with(keys: str) -> Step:
    """A step that asks an agent with these settings."""
    return compiled(f"resile: 1\nagent: {{{keys}}}\nsteps: [{{agent: hi}}]").steps[0]


def wait_with(keys: str) -> Backoff | None:
    """The backoff of a retry with these keys."""
    return rule_with(f"retry: {{max: 1, backoff: {{{keys}}}}}").wait


def workflow_with(keys: str) -> Workflow:
    """A workflow of one step with these keys."""
    return compiled(f"resile: 1\n{keys}\nsteps: [{{shell: x}}]\n")
