"""Step-level handlers: each line of their design, as files that really fail and recover."""

from __future__ import annotations

import pytest

from tests.cli.program import rule_text
from tests.runs.ladder.flows import Flows

RECOVERY = ["step_started", "attempt_started", "attempt_failed", "repair_started", "repair_finished", "step.exit"]


def test_on_failure_command_executes_on_step_failure(flows: Flows) -> None:
    """A command as `on_failure` runs when the step fails, and not when it passes."""
    ran = flows.run("steps:\n- {id: a, shell: ./step a 1, on_failure: ./step h}\n- {id: b, shell: ./step b}\n")
    assert ran.order == ["a", "h", "b"]
    assert ran.told("a") == [*RECOVERY, "step_recovered"]
    assert ran.told("on_failure-1") == [
        "step_started",
        "attempt_started",
        "attempt_succeeded",
        "step.exit",
        "step_completed",
    ]
    ran = flows.run("steps:\n- {id: a, shell: ./step a, on_failure: ./step h}\n- {id: b, shell: ./step b}\n")
    assert ran.order == ["a", "b"]
    assert "repair_started" not in ran.told("a")


def test_on_failure_list_executes_multiple_commands(flows: Flows) -> None:
    """Commands run in the order of the list; one that fails ends it, unless it may."""
    ran = flows.run("steps: {a: {shell: ./step a 1, on_failure: [./step h1, ./step h2, {shell: ./step h3}]}}")
    assert (ran.order, ran.status["a"]) == (["a", "h1", "h2", "h3"], "recovered")
    ran = flows.run("steps: {a: {shell: ./step a 1, on_failure: [./step h1, ./step h2 1, ./step h3]}}", 1)
    assert (ran.order, ran.status["a"]) == (["a", "h1", "h2"], "failed")
    commands = "[{shell: ./step h1 1, continue_on_error: true}, ./step h2]"
    ran = flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {{commands: {commands}}}}}}}", 1)
    assert (ran.order, ran.status["a"]) == (["a", "h1", "h2"], "failed")


def test_error_message_available_in_handler_commands(flows: Flows) -> None:
    """The message, the output and the rest of the failure reach the handler as values, never as code."""
    flows.run(
        "steps:\n  a:\n    shell: echo out; echo '$(touch pwned) `x` \"' >&2; exit 7\n    on_failure:\n"
        "    - printf '%s|' ${error.message} ${error.stderr} ${error.stdout} ${error.step} ${error.kind} > said\n"
        "    - printf '%s|' \"${error.attempt}\" ${shell.output} >> said\n"
    )
    hostile = '$(touch pwned) `x` "'
    assert (flows.folder / "said").read_text() == (f"exit code 7: {hostile}|{hostile}|out|a|exit|1|out\n{hostile}|")
    assert not (flows.folder / "pwned").exists()


def test_error_exit_code_available_in_handler_commands(flows: Flows) -> None:
    """The exit code is a value and an environment variable under both names."""
    text = "echo ${error.exit_code} $RESILE_RETURN_CODE $TORC_RETURN_CODE $RESILE_JOB_NAME $TORC_ATTEMPT_ID > said"
    flows.run(f"steps: {{a: {{shell: ./step a 1 42, on_failure: '{text}'}}}}")
    assert (flows.folder / "said").read_text() == "42 42 42 a 1\n"


def test_handler_success_marks_step_as_recovered(flows: Flows) -> None:
    """The run completes, dependents run, and the summary counts a recovery."""
    ran = flows.run("steps:\n  a: {shell: ./step a 1, on_failure: ./step h}\n  b: {shell: ./step b, needs: [a]}\n")
    assert (ran.order, ran.status) == (["a", "h", "b"], {"a": "recovered", "b": "completed", "end": "completed"})
    assert (ran.document["status"], ran.document["steps"]["recovered"]) == ("completed", 1)
    assert ran.routes() == [("a", "recovered", None)]


@pytest.mark.parametrize(
    ("more", "status", "order", "code"),
    [
        ("", "failed", ["a", "h"], 1),
        ("fail_workflow: true", "failed", ["a", "h"], 1),
        ("handler_failure_fatal: true", "failed", ["a", "h"], 1),
        ("fail_workflow: false", "tolerated", ["a", "h", "b"], 0),
        ("fail_workflow: false, handler_failure_fatal: true", "failed", ["a", "h"], 1),
    ],
)
def test_handler_failure_marks_step_as_failed(
    flows: Flows, more: str, status: str, order: list[str], code: int
) -> None:
    """The step is failed; whether the run fails for it is what the file says."""
    steps = f"a: {{shell: ./step a 9, on_failure: {{shell: ./step h 9, {more}}}}}, b: {{shell: ./step b, needs: [a]}}"
    ran = flows.run(f"steps: {{{steps}}}", code)
    assert (ran.order, ran.status["a"]) == (order, status)
    assert ran.told("a")[-1] == "step_failed"
    assert ran.of("repair_finished")[0]["data"]["ok"] is False


def test_nested_handlers_work_correctly(flows: Flows) -> None:
    """A command of a handler is repaired by a handler of its own; one that stays failed fails the outer one."""
    nested = "{commands: [{shell: ./step h 1, on_failure: {shell: ./step hh, max_attempts: 2}}]}"
    ran = flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {nested}}}}}")
    assert (ran.order, ran.status["a"]) == (["a", "h", "hh", "h"], "recovered")
    assert sorted({event["scope"] for event in ran.events if event["step"]}) == [
        "a.on_failure",
        "a.on_failure/on_failure-1.on_failure",
        "root",
    ]
    nested = "{commands: [{shell: ./step h 9, on_failure: ./step hh 9}]}"
    ran = flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {nested}}}}}", 1)
    assert (ran.order, ran.status["a"]) == (["a", "h", "hh"], "failed")
    nested = "[{shell: ./step h 9, on_failure: ./step hh 9}, ./step h2]"
    ran = flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {nested}}}}}", 1)
    assert (ran.order, ran.status["a"]) == (["a", "h", "hh"], "failed")


def test_clear_logs_show_handler_execution(flows: Flows) -> None:
    """Events name the rule with its place, the commands have logs of their own, the summary shows the route."""
    ran = flows.run("steps:\n  a:\n    shell: ./step a 1\n    on_failure: echo mended; ./step h\n")
    (started,) = ran.of("repair_started")
    assert started["data"]["rule"] == "flow.yaml:5:5 on_failure: recovery"
    (route,) = ran.document["routes"]
    assert (route["step"], route["attempt"], route["trigger"], rule_text(route["rule"])) == (
        "a",
        1,
        "on_failure",
        "flow.yaml:5:5 on_failure: recovery",
    )
    assert "mended" in flows.program.call("logs", str(ran.document["run"])).stdout


@pytest.mark.parametrize(
    ("on_failure", "times", "order", "status", "code"),
    [
        ("{shell: ./step h, max_attempts: 3}", 1, "a h a b", "recovered", 0),
        ("{shell: ./step h, max_attempts: 3}", 2, "a h a h a b", "recovered", 0),
        ("{shell: ./step h, max_attempts: 3}", 9, "a h a h a", "failed", 1),
        ("{shell: ./step h, max_retries: 2}", 9, "a h a h a", "failed", 1),
        ("{shell: ./step h, max_attempts: 3, fail_workflow: true}", 2, "a h a h a b", "recovered", 0),
        ("{shell: ./step h, max_attempts: 3, fail_workflow: true}", 9, "a h a h a", "failed", 1),
        ("{shell: ./step h, max_attempts: 1}", 9, "a h b", "recovered", 0),
        ("{shell: ./step h, fail_workflow: true}", 9, "a h", "failed", 1),
        ("{shell: ./step h 9, max_attempts: 3}", 9, "a h a h a", "failed", 1),
        ("{shell: ./step h 9, max_attempts: 3}", 2, "a h a h a b", "recovered", 0),
        ("{shell: ./step h 9, max_attempts: 3, handler_failure_fatal: true}", 2, "a h", "failed", 1),
        ("{shell: ./step h, retry: 2}", 2, "a a a b", "completed", 0),
        ("{shell: ./step h, retry: 2}", 3, "a a a h b", "recovered", 0),
        ("{shell: ./step h, retry: 1, max_attempts: 2}", 9, "a a h a", "failed", 1),
        ("{max_attempts: 3}", 9, "a a a", "failed", 1),
        ("{max_attempts: 2, fail_workflow: false}", 9, "a a b", "tolerated", 0),
        ("true, max_attempts: 2", 9, "a a b", "tolerated", 0),
        ("./step h, max_attempts: 2, fail_workflow: true", 9, "a h a", "failed", 1),
        ("{shell: ./step h, max_retries: 1, retry_original: true}", 1, "a h a b", "recovered", 0),
    ],
)
def test_integration_with_retry_logic(
    flows: Flows, on_failure: str, times: int, order: str, status: str, code: int
) -> None:
    """`max_attempts` counts executions of the original, the handler runs before each further one, never in vain."""
    steps = f"a: {{shell: ./step a {times}, on_failure: {on_failure}}}, b: {{shell: ./step b, needs: [a]}}"
    ran = flows.run(f"steps: {{{steps}}}", code)
    assert (" ".join(ran.order), ran.status["a"]) == (order, status)


@pytest.mark.parametrize(
    ("more", "order", "status", "output", "code"),
    [
        ("strategy: recovery", "a h b", "recovered", "broken", 0),
        ("strategy: custom", "a h b", "recovered", "broken", 0),
        ("strategy: fallback", "a h b", "recovered", "spare", 0),
        ("strategy: fallback, fail_workflow: true", "a h", "failed", "", 1),
        ("strategy: fallback, fail_workflow: true, max_attempts: 2", "a h a", "failed", "", 1),
        ("strategy: cleanup", "a h", "failed", "", 1),
        ("strategy: cleanup, fail_workflow: false", "a h b", "tolerated", "broken", 0),
        ("strategy: cleanup, fail_workflow: true", "a h", "failed", "", 1),
        ("strategy: cleanup, max_attempts: 2", "a h a h", "failed", "", 1),
        ("strategy: cleanup, retry: 1", "a a h", "failed", "", 1),
    ],
)
def test_strategies(flows: Flows, more: str, order: str, status: str, output: str, code: int) -> None:
    """What a handler that passed means for its step, and whose output the step has."""
    ran = flows.run(
        "steps:\n  a:\n    shell: echo broken; ./step a 9\n"
        f"    on_failure: {{commands: [./step h; echo spare], {more}}}\n"
        "  b: {shell: 'echo ${steps.a.output} > said; ./step b', needs: [a]}\n",
        code,
    )
    assert (" ".join(ran.order), ran.status["a"]) == (order, status)
    if output:
        assert (flows.folder / "said").read_text() == f"{output}\n"


def test_shell_and_claude_run_in_sequence(flows: Flows) -> None:
    """A command and a prompt in one mapping: the command first."""
    ran = flows.run(
        "agent: ./agent\nsteps:\n  a:\n    shell: ./step a 1\n"
        "    on_failure: {claude: '/fix ${error.exit_code}', shell: ./step h, max_attempts: 2}\n"
    )
    assert ran.order == ["a", "h", "agent: /fix 1", "a"]


def test_a_dangling_entry_handles_the_step_before_it(flows: Flows) -> None:
    """Both designs write it so, and mean the step above."""
    ran = flows.run(
        "agent: ./agent\nsteps:\n- shell: ./step a 1\n- on_failure:\n    claude: /rollback\n- shell: ./step b\n"
    )
    assert ran.order == ["a", "agent: /rollback", "b"]


def test_the_handlers_output_can_be_captured(flows: Flows) -> None:
    """Every name gets what all commands that ran wrote, also when one failed; another form is the last one's."""
    steps = "b: {shell: 'echo ${log} ${copy} > said', needs: [a]}"
    handler = "{capture: {log: handler_output, copy: text}, commands: [echo one, echo two]}"
    flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {handler}}}, {steps}}}")
    assert (flows.folder / "said").read_text() == "one\ntwo one\ntwo\n"
    handler = (
        "{capture: {log: handler_output, copy: text}, commands: [echo one; exit 3, echo two], fail_workflow: false}"
    )
    flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {handler}}}, {steps}}}")
    assert (flows.folder / "said").read_text() == "one one\n"
    handler = "{capture: {log: lines, copy: json}, commands: ['echo 1', 'echo [2]']}"
    flows.run(f"steps: {{a: {{shell: ./step a 1, on_failure: {handler}}}, {steps}}}")
    assert (flows.folder / "said").read_text() == '["[2]"] [2]\n'


def test_the_timeout_is_for_the_whole_handler(flows: Flows) -> None:
    """It kills the group of what the handler runs; nothing more of the handler starts."""
    handler = "{timeout: 300ms, commands: [./step h; sleep 60 & wait, ./step h2]}"
    ran = flows.run(f"grace: 0\nsteps: {{a: {{shell: ./step a 1, on_failure: {handler}}}}}", 1)
    assert (ran.order, ran.status["a"]) == (["a", "h"], "failed")
    assert ran.of("repair_finished")[0]["data"]["problem"] == "a.on_failure ran out of time"


def test_a_handler_takes_over_folder_and_environment(flows: Flows) -> None:
    """`working_dir` and `env` of the step hold for its handler, its own come on top, the timeout does not."""
    (flows.folder / "sub").mkdir()
    flows.run(
        "steps:\n  a:\n    shell: exit 1\n    working_dir: sub\n    env: {A: step, B: step}\n    timeout: 5s\n"
        "    on_failure: [{shell: 'echo \"$A $B\" > said', env: {B: own}}]\n"
    )
    assert (flows.folder / "sub" / "said").read_text() == "step own\n"


@pytest.mark.parametrize(
    ("on_success", "times", "order", "status", "code"),
    [
        ("./step n", 0, "a n b", "completed", 0),
        ("./step n", 1, "a", "failed", 1),
        ("[./step n, {shell: ./step m}]", 0, "a n m b", "completed", 0),
        ("{shell: ./step n 1}", 0, "a n", "failed", 1),
        ("{shell: ./step n 1, on_failure: {shell: ./step h, max_attempts: 2}}", 0, "a n h n b", "completed", 0),
        ("{shell: ./step n, when: false}", 0, "a b", "completed", 0),
        ("{shell: ./step n, claude: /doc}", 0, "a n agent:_/doc b", "completed", 0),
        ("{shell: ./step n, run: [f]}", 0, "a n f b", "completed", 0),
        ("{run: [f]}", 0, "a f b", "completed", 0),
    ],
)
def test_on_success(flows: Flows, on_success: str, times: int, order: str, status: str, code: int) -> None:
    """It runs after a success and before dependents; one that stays failed fails its step."""
    ran = flows.run(
        f"agent: ./agent\nsteps:\n  a: {{shell: ./step a {times}, on_success: {on_success}}}\n"
        "  b: {shell: ./step b, needs: [a]}\n" + ("  f: {shell: ./step f}\n" if "run" in on_success else ""),
        code,
    )
    assert (" ".join(line.replace(" ", "_") for line in ran.order), ran.status["a"]) == (order, status)


def test_end_has_a_ladder_too(flows: Flows) -> None:
    """A handler on `end` recovers it like any step."""
    ran = flows.run(
        "steps: {a: {shell: ./step a}, end: {shell: ./step end 1, on_failure: {shell: ./step h, max_attempts: 2}}}"
    )
    assert (ran.order, ran.status["end"]) == (["a", "end", "h", "end"], "recovered")
