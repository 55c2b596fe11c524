"""What `check` says at each place of a native file that means something else since 0.2."""

from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text

MAP_FAILS = "since 0.2 a map fails if one of its items stays failed"
JUDGED = "since 0.2 the share of failed items is also judged when the map ends, however few items it has"
GOES_ON = "since 0.2 an item goes on after a failure that its step tolerates"
STAYS_FAILED = "since 0.2 a step that stays failed after its handler fails the run"


def changes(text: str) -> list[tuple[int, int, str]]:
    """The places in a file that mean something else since 0.2, with what they mean."""
    found = compile_text(f"resile: 1\n{text}").diagnostics
    assert {finding.severity for finding in found if finding.code == "since-0.2"} <= {"notice"}
    return [(finding.line, finding.column, finding.message) for finding in found if finding.code == "since-0.2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps:\n- shell: x\n  on_failure: h\n", [(4, 3, STAYS_FAILED)]),
        ("steps:\n- shell: x\n  on_failure: {shell: h, max_attempts: 2}\n", [(4, 3, STAYS_FAILED)]),
        ("steps:\n- shell: x\n  on_failure: {shell: h, strategy: cleanup}\n", [(4, 3, STAYS_FAILED)]),
        ("steps:\n- shell: x\n  on_failure: {shell: h, fail_workflow: true}\n", []),
        ("steps:\n- shell: x\n  on_failure: {shell: h, fail_workflow: false}\n", []),
        ("steps:\n- shell: x\n  on_failure: {shell: h, accept: true}\n", []),
        ("steps:\n- {shell: x, on_failure: h, park: true}\n", []),
        ("steps:\n- {shell: x, on_failure: true}\n", []),
        ("steps:\n- {shell: x, retry: 2}\n", []),
        ("steps:\n- shell: x\n  on_failure: {shell: h, max_retries: 2, fail_workflow: true}\n",
         [(4, 39, "since 0.2 `max_retries: 2` means 2 further executions, 3 in all")]),
        ("steps:\n- map: {input: [1], steps: [{shell: x}]}\n", [(3, 8, MAP_FAILS)]),
        ("steps:\n- map: {input: [1], steps: [{shell: x, on_failure: h}], error_policy: {on_item_failure: dlq}}\n",
         [(3, 71, MAP_FAILS)]),
        ("error_policy: {on_item_failure: retry}\nsteps:\n- map: {input: [1], steps: [{shell: x}]}\n",
         [(2, 15, MAP_FAILS)]),
        *((f"steps:\n- map: {{input: [1], steps: [{{shell: x}}], error_policy: {{{keys}}}}}\n", [])
          for keys in ("continue_on_failure: true", "continue_on_failure: false", "max_failures: 2",
                       "on_item_failure: stop",
                       "on_item_failure: skip", "on_item_failure: fail", "failure_threshold: 1")),
        ("steps:\n- map: {input: [1], steps: [{shell: x}], error_policy: {failure_threshold: 0.5}}\n",
         [(3, 57, JUDGED)]),
        ("steps:\n- map: {input: [1], steps: [{shell: x, on_failure: true}], error_policy: {max_failures: 2}}\n",
         [(3, 40, GOES_ON)]),
    ],
)  # fmt: skip
def test_each_place_whose_meaning_changed_is_named(text: str, expected: list[tuple[int, int, str]]) -> None:
    """A notice stands where the file relies on an old default, and nowhere else."""
    assert changes(text) == expected


_OF_OTHERS = {
    "prodigy": "- shell: COMMAND\n",
    "torc": "name: t\njobs:\n- {name: a, command: COMMAND}\n",
    "noetl": "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t}\n"
    "workflow:\n- {step: start, tool: {kind: shell, cmds: [COMMAND]}}\n",
    "visor": 'version: "1.0"\nchecks:\n  a: {type: command, exec: COMMAND}\n',
}


@pytest.mark.parametrize("dialect", _OF_OTHERS)
@pytest.mark.parametrize(
    ("command", "goes_on"),
    [
        ("a\\nb", True),
        ("# why\\na\\n\\nb # it's b", True),
        ("cat <<E\\nx\\nE\\nb", True),
        ("a", False),
        ("set -e\\na\\nb", False),
        ("set -u -o pipefail -e\\na\\nb", False),
        ("set -o errexit\\na\\nb", False),
        ("a \\\\\\n  -b", False),
        ("a &&\\nb ||\\nc", False),
        ("echo 'a\\nb'", False),
        ('echo \\"it\'s\\nb\\"', False),
        ("cat <<'E'\\nx\\ny\\nE", False),
    ],
)
def test_check_says_where_a_command_goes_on_after_a_line_that_fails(dialect: str, command: str, goes_on: bool) -> None:
    """Files of other systems keep that meaning, with a notice; one command over several lines has none."""
    found = compile_text(_OF_OTHERS[dialect].replace("COMMAND", f'"{command}"'))
    assert (found.dialect, found.workflow is not None) == (dialect, True)
    message = "a command of several lines goes on after a line that fails, and the last one decides"
    assert [finding.message for finding in found.diagnostics if "several lines" in finding.message] == (
        [message] if goes_on else []
    )


def test_check_says_it_once_for_the_jobs_that_parameters_make() -> None:
    """They have one command in the file."""
    text = 'name: t\njobs:\n- {name: "a{i}", command: "a\\nb {i}", parameters: {i: "1:5"}}\n'
    codes = [finding.code for finding in compile_text(text).diagnostics]
    assert codes.count("tolerated") == 1
