"""Silence means the safe thing in native files: what a step, a map and an item do unless the file says otherwise."""

from __future__ import annotations

import pytest

from tests.runs.ladder.flows import Flows

AFTER = "- {id: after, shell: ./step after}\n"


def with_map(steps: str, policy: str = "", items: str = "[1, 2, 3]") -> str:
    """A map of three items whose policy has these keys, and a step after it."""
    kept = f", error_policy: {{{policy}}}" if policy else ""
    return f"steps:\n- id: each\n  map: {{input: {items}, steps: [{steps}]{kept}}}\n{AFTER}"


@pytest.mark.parametrize(
    ("policy", "order", "statuses", "code"),
    [
        ("", ["i1", "i2", "i3"], ["failed", "canceled"], 1),
        ("on_item_failure: dlq", ["i1", "i2", "i3"], ["failed", "canceled"], 1),
        ("error_collection: immediate", ["i1", "i2", "i3"], ["failed", "canceled"], 1),
        ("on_item_failure: retry, retry_config: {max_attempts: 2, backoff: null}", ["i1", "i2", "i3", "i1"],
         ["failed", "canceled"], 1),
        ("continue_on_failure: true", ["i1", "i2", "i3", "after"], ["completed", "completed"], 0),
        ("on_item_failure: skip", ["i1", "i2", "i3", "after"], ["completed", "completed"], 0),
        ("max_failures: 2", ["i1", "i2", "i3", "after"], ["completed", "completed"], 0),
        ("max_failures: 1", ["i1"], ["failed", "canceled"], 1),
        ("failure_threshold: 0.5", ["i1", "i2", "i3", "after"], ["completed", "completed"], 0),
        ("failure_threshold: 0.3", ["i1", "i2", "i3"], ["failed", "canceled"], 1),
        ("failure_threshold: 0.3, failure_threshold_min_items: 1", ["i1"], ["failed", "canceled"], 1),
        ("continue_on_failure: false", ["i1"], ["failed", "canceled"], 1),
    ],
)  # fmt: skip
def test_a_map_fails_for_an_item_that_stays_failed(
    flows: Flows, policy: str, order: list[str], statuses: list[str], code: int
) -> None:
    """The other items go on, the letter is kept, then the map fails and the run with it, unless the policy lets it."""
    ran = flows.run(with_map("{shell: './step i${item} $((8 * (${item} == 1)))'}", policy), code)
    assert ran.order == order
    assert [ran.status["each"], ran.status["after"]] == statuses
    assert ran.document["maps"]["each"]["dead_letters"] == (0 if "skip" in policy else 3 if order == ["i1"] else 1)


@pytest.mark.parametrize(
    "keys", ["on_failure: true", "fail_workflow: false", "on_failure: {shell: exit 1, fail_workflow: false}"]
)
def test_an_item_goes_on_after_a_failure_that_its_step_tolerates(flows: Flows, keys: str) -> None:
    """The next step of the item runs, and the item has succeeded."""
    ran = flows.run(with_map(f"{{shell: './step t${{item}} 9', {keys}}}, {{shell: './step n${{item}}'}}", items="[1]"))
    assert ran.order == ["t1", "n1", "after"]
    assert ran.document["maps"]["each"]["successful"] == 1


def test_a_step_without_a_handler_inside_an_item_fails_it(flows: Flows) -> None:
    """A handler that fails tolerates nothing there either."""
    steps = "{shell: './step t${item} 9', on_failure: exit 1}, {shell: './step n${item}'}"
    ran = flows.run(with_map(steps, items="[1]"), 1)
    assert (ran.order, ran.status["each"]) == (["t1"], "failed")


@pytest.mark.parametrize(
    ("on_failure", "order", "code"),
    [
        ("./step h 9", ["a", "h"], 1),
        ("{shell: ./step h 9, max_attempts: 2}", ["a", "h", "a"], 1),
        ("{shell: ./step h, strategy: cleanup}", ["a", "h"], 1),
        ("{shell: ./step h 9, fail_workflow: false}", ["a", "h", "b"], 0),
        ("true", ["a", "b"], 0),
    ],
)
def test_a_step_that_stays_failed_fails_the_run(flows: Flows, on_failure: str, order: list[str], code: int) -> None:
    """Its dependents are canceled, unless the file says that it may fail."""
    ran = flows.run(
        f"steps:\n- {{id: a, shell: ./step a 9, on_failure: {on_failure}}}\n- {{id: b, shell: ./step b}}\n", code
    )
    assert ran.order == order
    assert (ran.document["status"], ran.status["b"]) == (("failed", "canceled") if code else ("completed", "completed"))


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("outputs.aa.y > 3", "TypeError: cannot read property 'y' of undefined (line 1, column 1); "
                             "did you mean `outputs.a`?"),
        ("ouputs.a == 1", "ReferenceError: ouputs is not defined (line 1, column 1); did you mean `outputs`?"),
        ("inputs.targt.length > 1", "TypeError: cannot read property 'length' of undefined (line 1, column 1); "
                                    "did you mean `inputs.target`?"),
        ("outputs.never.y", "TypeError: cannot read property 'y' of undefined (line 1, column 1)"),
    ],
)  # fmt: skip
def test_a_condition_that_throws_fails_its_step(flows: Flows, when: str, message: str) -> None:
    """The step fails with kind `contract`, the expression, its place and the nearest name, and can be answered."""
    steps = (
        "inputs: {target: x}\nsteps:\n- {id: a, shell: echo 1}\n- {id: never, shell: exit 1, when: false}\n"
        f"- id: b\n  shell: ./step b\n  when: {when}\n- {{id: c, shell: ./step c}}\n"
    )
    ran = flows.run(steps, 1)
    assert (ran.order, ran.status["b"], ran.status["c"]) == ([], "failed", "canceled")
    assert ran.failed == f"`when: {when}` at flow.yaml:8:9: {message}"
    assert ran.document["first_failure"]["kind"] == "contract"
    ran = flows.run(steps.replace("shell: ./step b\n", "shell: ./step b\n  on_failure: true\n"))
    assert (ran.order, ran.status["b"]) == (["c"], "tolerated")


def test_optional_chaining_asks_for_the_other(flows: Flows) -> None:
    """`outputs.x?.y` is false where there is no such output, and the step is skipped."""
    ran = flows.run("steps:\n- {id: a, shell: ./step a}\n- {id: b, shell: ./step b, when: outputs.x?.y > 3}\n")
    assert (ran.order, ran.status["b"]) == (["a"], "skipped")


def test_an_arc_whose_condition_throws_fails_the_step_that_owns_it(flows: Flows) -> None:
    """None of its arcs is taken, not even those without a condition."""
    ran = flows.run(
        "steps:\n  a:\n    shell: ./step a\n    next: [{step: b, when: outputs.zz.q > 1}, {step: c}]\n"
        "  b: {shell: ./step b}\n  c: {shell: ./step c}\n",
        1,
    )
    assert (ran.order, ran.status["a"]) == (["a"], "failed")
    assert ran.failed.startswith("`when: outputs.zz.q > 1` at flow.yaml:5:28: TypeError: cannot read property 'q'")


def test_a_filter_that_throws_fails_its_map(flows: Flows) -> None:
    """No item is left out because an expression about it has a typo."""
    ran = flows.run("steps:\n- id: m\n  map: {input: [{n: 1}], filter: item.m.z > 0, steps: [{shell: ./step i}]}\n", 1)
    assert (ran.order, ran.status["m"]) == ([], "failed")
    assert ran.failed == "filter at item 0: TypeError: cannot read property 'z' of undefined"


def test_check_warns_of_a_filter_that_names_more_than_the_item(flows: Flows) -> None:
    """A filter sees `item` alone, so what other expressions see would throw there."""
    flows.program.write(
        "resile: 1\ninputs: {least: 1}\nsteps:\n- {id: a, shell: echo 1}\n- id: m\n  map:\n    input: [1]\n"
        "    filter: item > inputs.least && item > outputs.a\n    steps: [{shell: x}]\n"
        "    error_policy: {on_item_failure: stop}\n"
    )
    (checked,) = flows.program.json("check", "flow.yaml")["files"]
    assert [found["message"] for found in checked["diagnostics"]] == [
        "`filter` names `inputs`, which nothing provides",
        "`filter` names `outputs`, which nothing provides",
    ]


def test_a_condition_that_names_a_step_as_texts_do(flows: Flows) -> None:
    """`steps.NAME.output` stands in texts only: a condition that has it fails its step, and is told the other name."""
    text = "steps:\n- {id: a, shell: ./step a}\n- {id: b, shell: ./step b, when: steps.a.output == 1}\n"
    ran = flows.run(text, 1)
    assert (ran.order, ran.status["b"]) == (["a"], "failed")
    assert ran.failed == (
        "`when: steps.a.output == 1` at flow.yaml:4:34: ReferenceError: steps is not defined (line 1, column 1); "
        "a step's output is `outputs.NAME`"
    )
    (checked,) = flows.program.json("check", "flow.yaml")["files"]
    assert [(found["message"], found["hint"]) for found in checked["diagnostics"]] == [
        ("`when` names `steps`, which nothing provides",
         "`outputs.NAME` is the output of the step NAME, as is `${steps.NAME.output}`"),
    ]  # fmt: skip


def test_a_transition_that_throws_is_false_and_recorded(flows: Flows) -> None:
    """The next one decides."""
    ran = flows.run(
        "steps:\n- {id: a, shell: ./step a}\n- id: b\n  shell: ./step b 1\n"
        "  on_failure: {transitions: [{when: outputs.q.z, to: a}, {when: 'true', to: a}]}\n"
    )
    assert ran.order == ["a", "b", "a", "b"]
    assert [event["data"]["problem"] for event in ran.of("expression_rejected")] == [
        "transition: TypeError: cannot read property 'z' of undefined (line 1, column 1)"
    ]


def test_check_warns_of_names_that_nothing_provides(flows: Flows) -> None:
    """Steps and variables that a condition can't have are warnings, with the nearest name; patterns are none."""
    flows.program.write(
        "resile: 1\nsteps:\n- {id: a, shell: echo 1}\n- {id: b, shell: echo, when: 'outputs.aa == ${steps.a.output}'}\n"
        "- {id: c, shell: echo, when: itm.x}\n"
        "- {id: d, shell: echo, when: '/^(no|names)+$/.test(outputs.a)'}\n"
        "- {id: m, map: {input: [1], filter: itm > 1, steps: [{shell: x}], error_policy: {on_item_failure: stop}}}\n"
    )
    (checked,) = flows.program.json("check", "flow.yaml")["files"]
    assert [(found["line"], found["message"], found["hint"]) for found in checked["diagnostics"]] == [
        (4, "`when` names `outputs.aa`, which nothing provides", "did you mean `a`?"),
        (5, "`when` names `itm`, which nothing provides", "did you mean `item`?"),
        (7, "`filter` names `itm`, which nothing provides", "did you mean `item`?"),
    ]


def test_a_condition_that_throws_in_end_does_not_fail_it(flows: Flows) -> None:
    """What never ran has no value there: the step of `end` that asks for it is skipped."""
    ran = flows.run(
        "steps:\n- {id: a, shell: ./step a 9}\n- {id: b, shell: ./step b}\n- id: end\n  shell: ./step end\n"
        "  on_success: [{shell: ./step never, when: outputs.b.x.y}, {shell: './step last${steps.b.output}'}]\n",
        1,
    )
    assert (ran.order, ran.status["end"]) == (["a", "end", "last"], "completed")


@pytest.mark.parametrize(("key", "value", "message"), [
    ("when", "outputs.b.x.y", "`end` takes no `when`: `end` runs in every case"),
    ("until", "outputs.b.x.y", "a step has no key `until`"),
])  # fmt: skip
def test_no_expression_decides_whether_end_runs(flows: Flows, key: str, value: str, message: str) -> None:
    """What could keep `end` from running is refused when the file is loaded."""
    assert flows.refused(f"steps: [{{id: a, shell: x}}, {{id: end, shell: x, {key}: {value}}}]") == [message]


def test_code_in_the_routes_of_end_that_throws_is_recorded(flows: Flows) -> None:
    """It names what never ran: `end` has run all the same, and the run fails by the step that failed."""
    ran = flows.run(
        "steps:\n- {id: a, shell: ./step a 9}\n- {id: b, shell: ./step b}\n"
        "- {id: end, shell: ./step end, on_success: {run_js: 'return outputs.b.x.y'}}\n",
        1,
    )
    assert (ran.order, ran.status["end"], ran.document["first_failure"]["step"]) == (["a", "end"], "completed", "a")
    assert "cannot read property" in ran.of("expression_rejected")[0]["data"]["problem"]


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ("on_failure: {shell: ./step h, max_retries: 2}", "ahaha"),
        ("on_failure: {shell: ./step h, max_attempts: 2}", "aha"),
        ("on_failure: ./step h, max_retries: 2", "ahaha"),
        ("on_failure: ./step h, max_attempts: 2", "aha"),
        ("retry: {max: 2}", "aaa"),
        ("failure_handler: twice", "aaa"),
        ("ir: {rules: [twice]}", "aaa"),
        ("ir: {rules: [{exit_codes: 1, then: retry, limit: 2}]}", "aaa"),
    ],
)
def test_retries_and_attempts_mean_the_same_wherever_they_stand(flows: Flows, keys: str, order: str) -> None:
    """N retries are N executions after the first, N attempts are N executions in all."""
    handlers = "failure_handlers: {twice: {rules: [{exit_codes: 1, max_retries: 2}]}}\n" if "twice" in keys else ""
    ran = flows.run(f"{handlers}steps: [{{id: a, shell: ./step a 9, {keys}}}]\n", 1)
    assert "".join(ran.order) == order
    (job,) = [job for job in ran.document["jobs"] if job["step"] == "a"]
    assert job["attempts"] == order.count("a")


def test_attempts_of_items_count_executions(flows: Flows) -> None:
    """`retry_config` has `max_attempts` alone; the other word is answered with it."""
    config = "{input: [1], steps: [{shell: ./step a 9}], error_policy: {retry_config: {WORD: 2, backoff: null}}}"
    ran = flows.run(f"steps: [{{id: m, map: {config.replace('WORD', 'max_attempts')}}}]\n", 1)
    assert ran.order == ["a", "a"]
    refused = flows.refused(f"steps: [{{id: m, map: {config.replace('WORD', 'max_retries')}}}]")
    assert refused == ["retry_config has no key `max_retries`"]


def test_a_step_recovers_by_its_own_exit_code_after_a_handler_that_failed(flows: Flows) -> None:
    """The further execution is the judge; `handler_failure_fatal: true` does without it."""
    steps = "steps: [{id: a, shell: ./step a 1, on_failure: {shell: ./step h 9, max_attempts: 2KEYS}}]\n"
    ran = flows.run(steps.replace("KEYS", ""))
    assert (ran.order, ran.status["a"]) == (["a", "h", "a"], "recovered")
    ran = flows.run(steps.replace("KEYS", ", handler_failure_fatal: true"), 1)
    assert (ran.order, ran.status["a"]) == (["a", "h"], "failed")


def test_a_breaker_with_nothing_left_to_start_ends_its_map(flows: Flows) -> None:
    """The last item opens it for an hour, and the map has ended before."""
    policy = "continue_on_failure: true, circuit_breaker: {failure_threshold: 2, timeout: 1h}"
    ran = flows.run(with_map("{shell: './step i${item} 9'}", policy, items="[1, 2]"))
    assert (ran.order, ran.status["each"]) == (["i1", "i2", "after"], "completed")
    assert [event["type"] for event in ran.events if event["type"].startswith("circuit")] == ["circuit_opened"]


@pytest.mark.parametrize(
    ("shell", "meaning"),
    [
        ("'cat: f: Permission denied', 'open f: EACCES', 'PermissionError: f'", "permission"),
        ("'connect: Connection refused', 'ECONNRESET', 'HTTP 503'", "network"),
        ("'429 Too Many Requests', 'ThrottlingException', 'rate limit reached'", "rate_limit"),
    ],
)
def test_types_of_errors_go_by_meaning(flows: Flows, shell: str, meaning: str) -> None:
    """Three items that fail in other words are one type in the numbers of their map."""
    ran = flows.run(with_map("{shell: 'echo ${item} >&2; exit 1'}", items=f"[{shell}]"), 1)
    assert ran.document["maps"]["each"]["error_types"] == {meaning: 3}


@pytest.mark.parametrize(
    ("keys", "order", "code"),
    [("", [], 1), ("errexit: false", ["i1"], 0), ("shell_program: bash", [], 1)],
)
@pytest.mark.parametrize("form", ["input: COMMAND", "input: {command: COMMAND}"])
def test_a_command_of_several_lines_that_lists_items_stops_at_the_first_that_fails(
    flows: Flows, form: str, keys: str, order: list[str], code: int
) -> None:
    """No item is made of what a broken command printed."""
    lines = '"false | cat\\necho 1"' if "bash" in keys else '"echo 1\\nfalse\\ntrue"'
    command = form.replace("COMMAND", lines)
    ran = flows.run(f"{keys}\nsteps: [{{id: m, map: {{{command}, steps: [{{shell: './step i${{item}}'}}]}}}}]\n", code)
    assert (ran.order, ran.status["m"]) == (order, "failed" if code else "completed")


@pytest.mark.parametrize("action", ["noop: true", "write_file: {path: made, content: x}", "ir: {script: return 1}"])
def test_a_file_that_a_step_promised_must_exist_whatever_the_step_does(flows: Flows, action: str) -> None:
    """A step that runs inside the engine keeps its promise as a program does, or fails."""
    ran = flows.run(f"steps:\n- {{id: a, {action}, outputs: [made, absent]}}\n- {{id: b, shell: ./step b}}\n", 1)
    assert (ran.status, ran.order) == ({"a": "failed", "b": "canceled", "end": "completed"}, [])
    assert "'absent'" in ran.failed
    (flows.folder / "made").write_text("")
    assert flows.run(f"steps:\n- {{id: a, {action}, outputs: [made]}}\n").status["a"] == "completed"


@pytest.mark.parametrize("action", ["noop: true", "write_file: {path: made, content: x}"])
def test_a_step_without_output_captures_nothing(flows: Flows, action: str) -> None:
    """A name that would never have a value is refused."""
    word = action.partition(":")[0]
    assert flows.refused(f"steps: [{{id: a, {action}, capture: x}}]") == [
        f"`capture` has no meaning for `{word}`, which prints nothing"
    ]


@pytest.mark.parametrize(
    ("on_failure", "order", "code"),
    [
        ("[{shell: ./step h, when: 'false'}]", ["a"], 1),
        ("[{shell: ./step h, when: 'false'}, {shell: ./step g, when: 'false'}]", ["a"], 1),
        ("{strategy: fallback, commands: [{shell: ./step h, when: 'false'}]}", ["a"], 1),
        ("{strategy: fallback, commands: [{shell: ./step g}, {shell: ./step h, when: 'false'}]}", ["a", "g"], 1),
        ("{strategy: fallback, commands: [{shell: ./step h, when: 'false'}, {shell: ./step g}]}", ["a", "g", "b"], 0),
        ("[{shell: ./step h, when: 'false'}, {shell: ./step g}]", ["a", "g", "b"], 0),
        ("{max_attempts: 2, commands: [{shell: ./step h, when: 'false'}]}", ["a", "a"], 1),
    ],
)
def test_a_handler_of_which_nothing_ran_recovers_nothing(
    flows: Flows, on_failure: str, order: list[str], code: int
) -> None:
    """The failure stands where conditions left every command out."""
    ran = flows.run(
        f"steps:\n- {{id: a, shell: ./step a 9, on_failure: {on_failure}}}\n- {{id: b, shell: ./step b}}\n", code
    )
    assert (ran.order, ran.status["a"]) == (order, "failed" if code else "recovered")


REVISITED = """steps:
  s: {shell: ./step s, next: [x, y]}
  x: {shell: ./step x, next: [j]}
  y: {shell: ./step y, next: [j]}
  j: {shell: ./step j 1KEYS}
  k: {shell: ./step k, needs: [j]}
"""


@pytest.mark.parametrize(
    ("keys", "order", "status", "code"),
    [
        ("", ["s", "x", "y", "j", "j"], "failed", 1),
        (", retry: 1", ["s", "x", "y", "j", "j", "k", "j"], "completed", 0),
        (", on_failure: true", ["s", "x", "y", "j", "k", "j"], "completed", 0),
    ],
)
def test_a_visit_that_failed_fails_the_run_although_a_later_one_passes(
    flows: Flows, keys: str, order: list[str], status: str, code: int
) -> None:
    """Two arcs lead to one step: it runs for each of them, and a pass of one does not hide the failure of the other."""
    ran = flows.run(REVISITED.replace("KEYS", keys), code)
    assert (ran.order, ran.status["j"]) == (order, status)
    if code:
        assert (ran.status["k"], ran.document["first_failure"]["step"]) == ("canceled", "j")
        assert ran.failed == "an earlier visit failed: exit code 1: j is broken"


def test_a_critical_step_that_fails_stops_its_own_visits_too(flows: Flows) -> None:
    """A visit that waits is left out, and the step stays failed."""
    ran = flows.run(REVISITED.replace("KEYS", ", critical: true"), 1)
    assert (ran.order, ran.status["j"], ran.status["k"]) == (["s", "x", "y", "j"], "failed", "canceled")
