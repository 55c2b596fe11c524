"""`strategy: fallback`: what the step captures is read from its fallback, and stays so whatever happens next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.conftest import Place, statuses

HEAD = "resile: 1\nsteps:\n"


def seen(place: Place, first: str, command: str) -> tuple[int, dict[str, Any], list[str]]:
    """Run a step and then another that prints what it sees of it: exit code, document, its lines."""
    code, document = place.run(f"{HEAD}  - {first}\n  - {{id: after, shell: '{command}'}}\n")
    path = place.folder / "seen"
    return code, document, path.read_text().splitlines() if path.exists() else []


def test_the_name_of_the_step_holds_what_its_fallback_printed(place: Place) -> None:
    """Not what the failed attempt did; `.output` and `.outputs` say the same."""
    step = '{id: f1, shell: "echo orig; exit 1", capture: x, on_failure: {strategy: fallback, shell: "echo FB"}}'
    code, document, lines = seen(place, step, "echo ${x} ${steps.f1.output} ${steps.f1.outputs.x} > seen")
    assert (code, lines, document["outputs"]) == (0, ["FB FB FB"], {"x": "FB"})
    assert document["jobs"][0]["recovered"]


def test_every_form_is_read_from_the_fallback(place: Place) -> None:
    """Several names, each in its own form; `exit_code` and `stderr` too are those of its last command."""
    step = """{id: f, shell: "echo no; exit 3", capture: {j: json, l: lines, e: stderr, c: exit_code, t: text},
     on_failure: {strategy: fallback, commands: [{shell: "echo first"}, {shell: "echo ''[7]''; echo warned >&2"}]}}"""
    code, document, lines = seen(place, step.replace("''", "'"), 'printf "%s|" ${j[0]} ${l} ${steps.f.output} > seen')
    assert (code, lines) == (0, ['7|["[7]"]|[7]|'])
    assert document["outputs"] == {"j": [7], "l": ["[7]"], "e": "warned", "c": 0, "t": "[7]"}
    assert document["jobs"][0]["exit_code"] == 3


def test_an_output_in_another_form_means_that_the_fallback_failed(place: Place) -> None:
    """The step promised JSON: it stays failed and fails the run, and the reason says so."""
    step = "{id: f, shell: exit 1, capture: {j: json}, on_failure: {strategy: fallback, shell: echo text}}"
    code, document, _ = seen(place, step, "true")
    assert (code, statuses(document)["f"], document["jobs"][0]["tolerated"]) == (1, "failed", False)
    assert statuses(document)["after"] == "canceled"
    messages = [event["data"]["message"] for event in place.events(1) if event["type"] == "attempt_failed"]
    assert messages[1].startswith("the fallback of 'f': capture 'j': the output is not JSON")


def test_a_lost_output_means_that_the_fallback_failed(place: Place) -> None:
    """What the step captures is gone from the disk: it stays failed, and the reason names the command."""
    step = """{id: f, shell: exit 1, capture: x,
     on_failure: {strategy: fallback, shell: "echo FB; rm out/runs/*/launcher/*.o"}}"""
    code, document = place.run(f"{HEAD}  - {step}\n", "--output", "out")
    assert (code, statuses(document)["f"]) == (1, "failed")
    first, second = (event["data"]["message"] for event in place.events(1) if event["type"] == "attempt_failed")
    assert (first, second) == ("exit code 1", "the output of 'on_failure-1' is lost")


def test_a_handler_that_fails_leaves_the_names_alone(place: Place) -> None:
    """A command before the last one failed, so there is no fallback though the last one ran."""
    step = """{id: f, shell: "echo orig; exit 1", capture: x, on_failure: {strategy: fallback, fail_workflow: false,
     commands: [{shell: exit 4, continue_on_error: true}, {shell: echo FB}]}}"""
    code, document, lines = seen(place, step, "echo ${x} ${steps.f.output} > seen")
    assert (code, statuses(document)["f"], lines) == (0, "failed", ["orig orig"])


def test_a_fallback_of_a_fallback_stands_for_both(place: Place) -> None:
    """Each reads the output in its own form."""
    inner = 'on_failure: {strategy: fallback, shell: "echo 41"}'
    step = f"""{{id: f, shell: exit 1, capture: {{n: number}}, on_failure: {{strategy: fallback,
     commands: [{{shell: exit 2, capture: t, {inner}}}]}}}}"""
    code, document, lines = seen(place, step, "echo $((${n} + 1)) ${t} > seen")
    assert (code, lines, document["outputs"]) == (0, ["42 41"], {"n": 41, "t": "41"})


@pytest.mark.parametrize(
    ("action", "captured", "value"),
    [
        ("noop: true", "x", ""),
        ("write_file: {path: made, content: hi}", "x", ""),
        ("python: 'def main(): return {\"a\": [1, 2]}'", "{x: json}", {"a": [1, 2]}),
        ("python: 'def main(): return {\"a\": [1, 2]}'", "{x: value}", {"a": [1, 2]}),
    ],
)
def test_whatever_runs_last_gives_its_output(place: Place, action: str, captured: str, value: Any) -> None:
    """Also a step that prints nothing, and one that returns a value."""
    step = (
        f"{{id: f, shell: exit 1, capture: {captured}, on_failure: {{strategy: fallback, commands: [{{{action}}}]}}}}"
    )
    code, document, _ = seen(place, step, "true")
    assert (code, document["outputs"]) == (0, {"x": value})


def test_what_runs_inside_the_engine_gives_its_value(place: Place) -> None:
    """A script has no output, so the step captures the value of the script."""
    last = "{ir: {script: 'return {a: [1, 2]}'}, capture: {y: value}}"
    step = f"{{id: f, shell: exit 1, capture: {{x: json}}, on_failure: {{strategy: fallback, commands: [{last}]}}}}"
    code, document, _ = seen(place, step, "true")
    assert (code, document["outputs"]) == (0, {"x": {"a": [1, 2]}, "y": {"a": [1, 2]}})


def test_in_an_item_the_names_are_the_items_own(place: Place) -> None:
    """Each item has its fallback's value."""
    code, _ = place.run(f"""{HEAD}  - id: m
    map:
      input: [1, 2]
      max_parallel: 1
      steps:
      - {{shell: "echo orig; exit 1", capture: x, on_failure: {{strategy: fallback, shell: "echo FB${{item}}"}}}}
      - {{shell: "echo ${{x}} >> seen"}}
""")
    assert (code, place.text("seen").splitlines()) == (0, ["FB1", "FB2"])


def test_what_was_captured_is_in_the_log(place: Place) -> None:
    """A later engine folds the same values: the step after it failed and runs again."""
    text = f"""{HEAD}  - {{id: f, shell: exit 1, capture: x, on_failure: {{strategy: fallback, shell: echo FB}}}}
  - {{id: after, shell: "echo ${{x}} >> seen; test -e ok"}}
"""
    assert place.run(text)[0] == 1
    (place.folder / "ok").write_text("")
    code, document = place.call("rerun", "1", "--failed-only")
    assert (code, place.text("seen").splitlines(), document["outputs"]) == (0, ["FB", "FB"], {"x": "FB"})


def test_secrets_stay_hidden_in_what_a_fallback_gives(place: Place) -> None:
    """The value is stored, so it is cleaned like any other."""
    text = """resile: 1
secrets: [TOKEN]
steps:
  - {id: f, shell: exit 1, capture: {x: json},
     on_failure: {strategy: fallback, shell: 'echo "[\\"$TOKEN\\"]"'}}
"""
    code, document = place.run(text, env={"TOKEN": "s3cret-value"})
    assert (code, json.dumps(document["outputs"])) == (0, '{"x": ["***"]}')


def test_a_fallback_that_runs_other_steps_has_no_output_to_capture(place: Place) -> None:
    """A map or a child workflow as its last command is refused beside `capture`, by name and place."""
    handler = "{strategy: fallback, commands: [{map: {input: [1], steps: [{shell: 'true'}]}}]}"
    code, answer = place.run(f"{HEAD}  - {{id: f, shell: exit 1, capture: x, on_failure: {handler}}}\n")
    assert (code, answer["diagnostics"][0]["code"]) == (2, "conflict")
    assert "`capture`" in answer["diagnostics"][0]["message"]
