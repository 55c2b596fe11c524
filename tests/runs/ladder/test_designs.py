"""The configurations of the designs that the ladder comes from, in our words: each compiles to the rules it means."""

from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text
from resile.model.workflow import Agent, Step

TASKS = """
- name: Build project
  shell: npm run build
  on_failure:
  - shell: npm cache clean --force
  - shell: npm install
  - shell: npm run build
- name: Type checking
  shell: tsc --noEmit
  on_failure:
    strategy: recovery
    commands:
    - claude: /fix-typescript-errors
    - shell: tsc --noEmit
- name: Deploy
  shell: ./deploy.sh production
  on_failure:
    strategy: fallback
    commands:
    - shell: ./deploy.sh staging
    - shell: notify-team 'Production deploy failed, staged to staging'
"""
SIMPLE = """
- shell: optional-cleanup.sh
  on_failure: true
- shell: npm install
  on_failure: npm cache clean --force
- shell: cargo clippy
  on_failure: /fix-warnings
- shell: build-project
  on_failure:
  - cleanup-artifacts
  - /diagnose-build-errors
  - retry-build
"""
ADVANCED = """
- shell: cargo clippy
  on_failure:
    claude: /fix-warnings ${shell.output}
    fail_workflow: false
    max_attempts: 3
"""
DETAILED = """
- shell: deploy-production
  on_failure:
    strategy: recovery
    timeout: 300
    handler_failure_fatal: true
    fail_workflow: false
    capture:
      error_log: handler_output
      rollback_status: rollback_result
    commands:
    - shell: rollback-deployment
      continue_on_error: true
    - claude: /analyze-deployment-failure
    - shell: notify-team
"""
SUCCESS = """
- shell: deploy-staging
  on_success:
    shell: notify-success
    claude: /update-deployment-docs
- shell: build-production
  on_success:
    claude: /update-build-metrics
    timeout: 60
    capture: metrics
    working_dir: dist
    when: ${build.target} == 'release'
- claude: /implement-feature
  commit_required: true
"""
PATTERNS = """
- shell: risky-command
  on_failure:
    claude: /analyze-error ${shell.output}
- shell: npm install
  on_failure: [npm cache clean --force, rm -rf node_modules, npm install]
- shell: cargo test
  on_failure:
    claude: /fix-failing-tests
  max_attempts: 3
  fail_workflow: false
- shell: deploy-production
  on_failure:
    commands:
    - shell: rollback-deployment
    - shell: notify-team 'Deployment failed'
    fail_workflow: true
"""
DANGLING = """
- claude: /add-type-hints ${inputs.item}
- shell: mypy --strict ${inputs.item}
- on_failure:
    claude: /fix-type-errors ${inputs.item}
- claude: /optimize ${inputs.item}
- validate: test-performance ${inputs.item}
- on_failure:
    claude: /rollback-optimization ${inputs.item}
"""
ROUTED = """
  setup-env: {shell: npm ci}
  unit-tests:
    shell: npm test
    needs: [setup-env]
    on_fail:
      retry: {max: 1, backoff: {mode: fixed, delay_ms: 3000}}
      goto: setup-env
      goto_js: |
        if (error.message?.includes('module not found')) return 'setup-env';
        return null;
      run_js: |
        const fixes = [];
        if (error.stderr?.includes('lint')) fixes.push('lint-fix');
        return fixes;
  lint-fix: {shell: "npm run lint:fix"}
  build:
    shell: npm run build
    needs: [unit-tests]
    on_fail:
      run: [lint-fix]
      retry: {max: 1}
  summary:
    shell: node scripts/summarize.js
    needs: [build]
    on_success:
      run: [notify]
      goto: unit-tests
      goto_js: |
        if (/retest/i.test(outputs?.overview ?? '')) return 'unit-tests';
        return null;
  notify: {shell: echo notify}
"""


def steps_of(steps: str, head: str = "") -> tuple[Step, ...]:
    """The steps of a workflow without errors, and without warnings but one."""
    result = compile_text(f"resile: 1\ninputs: {{item: x}}\n{head}steps:{steps}")
    # One design asks for a value that it never gives: a warning, and the file runs.
    found = [finding.message for finding in result.diagnostics if finding.severity != "notice"]
    assert found == (["`${build.target}`: `build` is not known"] if "${build.target}" in steps else [])
    assert result.workflow is not None
    return result.workflow.steps


def shape(step: Step) -> list[tuple[str, int, int]]:
    """Each rule of a step: what it comes to, how often, and how many commands its repair has."""
    return [(r.then, r.limit, len(r.repair.steps) if r.repair else 0) for r in step.rules]


@pytest.mark.parametrize(
    ("steps", "shapes"),
    [
        (TASKS, [[("recovered", 1, 3)], [("recovered", 1, 2)],
                 [("fallback", 1, 2)]]),
        (SIMPLE, [[("tolerate", 1, 0)], [("recovered", 1, 1)],
                  [("recovered", 1, 1)], [("recovered", 1, 3)]]),
        (ADVANCED, [[("retry", 2, 1), ("tolerate", 1, 0)]]),
        (DETAILED, [[("recovered", 1, 3), ("tolerate", 1, 0)]]),
        (SUCCESS, [[], [], []]),
        (PATTERNS, [[("recovered", 1, 1)], [("recovered", 1, 3)],
                    [("retry", 2, 1), ("tolerate", 1, 0)], [("fail", 1, 2)]]),
        (DANGLING, [[], [("recovered", 1, 1)], [], [("recovered", 1, 1)]]),
    ],
)  # fmt: skip
def test_the_handlers_of_the_design(steps: str, shapes: list[list[tuple[str, int, int]]]) -> None:
    """Every form of a handler becomes the rules that it stands for."""
    assert [shape(step) for step in steps_of(steps)] == shapes


def test_texts_that_begin_with_a_slash_are_prompts() -> None:
    """In a list they are told from commands by that."""
    repair = steps_of(SIMPLE)[3].rules[0].repair
    assert repair is not None
    assert [isinstance(step.action, Agent) for step in repair.steps] == [False, True, False]


def test_the_detailed_form_keeps_all_it_says() -> None:
    """Time, fatality and captures are where they belong."""
    repair = steps_of(DETAILED)[0].rules[0].repair
    assert repair is not None
    assert (repair.timeout_seconds, repair.on_failure) == (300.0, "fail")
    assert {capture.name for step in repair.steps for capture in step.capture} == {"error_log", "rollback_status"}
    assert [[rule.text for rule in step.rules] for step in repair.steps] == [["continue_on_error"], [], []]


def test_what_follows_a_success_is_a_full_step() -> None:
    """A command and a prompt are two; time, capture, folder and condition hold for theirs."""
    staging, production, feature = steps_of(SUCCESS)
    assert staging.on_success is not None
    assert production.on_success is not None
    assert [type(step.action).__name__ for step in staging.on_success.steps] == ["Shell", "Agent"]
    (metrics,) = production.on_success.steps
    assert metrics.when is not None
    assert (metrics.timeout_seconds, metrics.working_dir, metrics.when.language) == (60.0, "dist", "js")
    assert [capture.name for capture in metrics.capture] == ["metrics"]
    assert feature.commit_required


def test_the_routing_of_the_design() -> None:
    """Retry, remedies by code and by name, and jumps with both keys; remedies run only when called for."""
    head = "routing: {max_loops: 10, defaults: {on_fail: {retry: {max: 0, backoff: {mode: fixed, delay_ms: 2000}}}}}\n"
    steps = {step.name: step for step in steps_of(ROUTED, head)}
    assert [name for name, step in steps.items() if step.called_only] == ["lint-fix", "notify"]
    retry, goto = steps["unit-tests"].rules
    assert (retry.then, retry.limit, retry.cost, retry.retries_anyway) == ("retry", 1, 1, True)
    assert retry.wait is not None
    assert retry.wait.initial_seconds == 3.0
    assert (goto.then, goto.target, bool(goto.target_js)) == ("goto", "setup-env", True)
    (build,) = steps["build"].rules
    assert build.repair is not None
    assert (build.limit, build.repair.calls) == (1, ("lint-fix",))
    summary = steps["summary"].on_success
    assert summary is not None
    assert (summary.calls, summary.target, summary.cost) == (("notify",), "unit-tests", 1)
    assert steps["setup-env"].rules == ()
