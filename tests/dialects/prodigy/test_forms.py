"""Forms that files of Prodigy have, run for real: what came of items, of captured steps, of files and their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.dialects.compile import compile_text
from resile.languages.liquid.templates import problem, render, render_command
from tests.dialects.prodigy.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    return Folder(tmp_path)


def results(folder: Folder) -> list[dict[str, Any]]:
    """What a step wrote to `results.json`, each without its duration, which must be there."""
    found: list[dict[str, Any]] = msgspec.json.decode((folder.path / "results.json").read_bytes())
    assert all(one.pop("duration") >= 0 for one in found)
    return found


def test_the_results_of_a_map_are_what_came_of_every_item(folder: Folder) -> None:
    """With what all its steps printed, also where the last one is silent, and why it failed where it did."""
    text = """
mode: mapreduce
map:
  input: [1, 2, 3]
  max_parallel: 1
  agent_template:
    - shell: echo "out ${item}"; printf 'a\\\\\\tb'
    - shell: test ${item} != 2 || { echo bad >&2; exit 7; }
reduce:
  - write_file: {path: results.json, content: "${map.results}", format: json}
  - shell: echo '${map.results}' | jq -r '.[] | [.item_id, .status, .error] | @csv' >> trace
  - shell: ./step "${map.results[1].status} ${map.successful}"
"""
    assert folder.run(text) == [
        '"map[0]","success",',
        '"map[1]","failed","exit code 7: bad"',
        '"map[2]","success",',
        "failed 2",
    ]
    assert results(folder) == [
        {"item_id": "map[0]", "status": "success", "output": "out 1\na\\\tb", "error": None},
        {"item_id": "map[1]", "status": "failed", "output": "out 2\na\\\tb", "error": "exit code 7: bad"},
        {"item_id": "map[2]", "status": "success", "output": "out 3\na\\\tb", "error": None},
    ]


def test_results_of_items_that_were_tried_again_dropped_or_never_begun(folder: Folder) -> None:
    """The last execution counts; an item that is dropped was skipped; one that was stopped has not begun."""
    text = """
mode: mapreduce
map:
  input: [1, 2, 3]
  max_parallel: 1
  agent_template: [{shell: './step ${item} $((${item} == 2 ? %s : 0))'}]
error_policy: {%s}
reduce: [{write_file: {path: results.json, content: "${map.results}", format: json}}]
"""
    folder.run(
        text % (1, "on_item_failure: retry, retry_config: {max_attempts: 2, backoff: {type: fixed, initial: 1ms}}")
    )
    assert [one["status"] for one in results(folder)] == ["success"] * 3
    folder.run(text % (9, "on_item_failure: skip"))
    assert [(one["status"], one["error"]) for one in results(folder)] == [
        ("success", None),
        ("skipped", "exit code 1: 2 is broken"),
        ("success", None),
    ]


def test_a_captured_step_tells_whether_it_succeeded(folder: Folder) -> None:
    """Also after a failure, from its exit code; and how long it took."""
    text = """
- shell: exit %s
  capture: r
  capture_streams: {exit_code: true, success: true, duration: true}
  on_failure: true
- {shell: ./step bad, when: "${r.success} == false"}
- {shell: ./step worse, when: "!${r.success}"}
- {shell: ./step good, when: "${r.success}"}
- shell: test $(echo "${r.duration} < 60" | bc) = 1 && ./step "${r.success}"
"""
    text = text.replace('test $(echo "${r.duration} < 60" | bc) = 1', "awk 'BEGIN {exit !(${r.duration} < 60)}'")
    assert folder.run(text % 3) == ["bad", "worse", "false"]
    assert folder.run(text % 0) == ["good", "true"]


def test_times_for_kinds_that_no_command_is_of() -> None:
    """Plain words may say more than is there, which is told; a number or an unknown word may not."""
    text = (
        "map: {input: [1], agent_template: [{shell: a}], timeout_config: {command_timeouts: {claude: 300, shell: 60}}}"
    )
    compiled = compile_text(text, file="flow.yml")
    assert compiled.workflow is not None
    notices = [finding for finding in compiled.diagnostics if finding.code == "command-timeout"]
    assert [(one.severity, one.message) for one in notices] == [
        ("notice", "no command of the items is of the kind `claude`")
    ]
    (step,) = compiled.workflow.steps[0].action.steps  # type: ignore[union-attr]
    assert step.timeout_seconds == 60.0


def test_yaml_is_written_as_it_stands(folder: Folder) -> None:
    """Text must be YAML and keeps its comments; data is laid out; anything else is a failure and no file."""
    text = """
- shell: echo '{"b":[1,"x"],"a":{}}'
  capture: data
  capture_format: json
- write_file: {path: out/a.yml, content: "# kept\\na: ${data.b[0]}\\n", format: yaml, mode: "0600"}
- write_file: {path: out/b.yml, content: "${data}", format: yaml}
- write_file: {path: out/c.yml, content: "a: [", format: yaml}
"""
    folder.run(text, code=1)
    out = folder.path / "out"
    assert (out / "a.yml").read_text() == "# kept\na: 1\n"
    assert (out / "a.yml").stat().st_mode & 0o777 == 0o600
    assert (out / "b.yml").read_text() == "b:\n- 1\n- x\na: {}\n"
    assert sorted(file.name for file in out.iterdir()) == ["a.yml", "b.yml"]


def test_a_pattern_cuts_out_what_is_captured(folder: Folder) -> None:
    """The first group, or the match; every one of them for a list; what does not match is a failure."""
    text = """
setup:
  commands:
    - {shell: "echo version v1.2 and v3; echo 'took 5s' >&2"}
  capture_outputs:
    MAJOR: {command_index: 0, pattern: 'v(\\d+)'}
    WHOLE: {command_index: 0, pattern: 'v[\\d.]+'}
    TOOK: {command_index: 0, source: stderr, pattern: '\\d+'}
    ALL: {command_index: 0, multiline: array, pattern: 'v(\\d+)'}
map:
  input: [x]
  agent_template: [{shell: './step "${MAJOR} ${WHOLE} ${TOOK} ${ALL}"'}]
"""
    assert folder.run(text) == ['1 v1.2 5 ["1","3"]']
    assert folder.run(text.replace("v(", "w("), code=1) == []
    assert folder.document["first_failure"]["message"].endswith("MAJOR: nothing matches w(\\d+)")


def test_what_may_stand_beside_a_foreach(folder: Folder) -> None:
    """`parallel`, `max_items` and `continue_on_error` mean the same there as inside."""
    text = "- foreach: 'echo a; echo b; echo c'\n  do: [{shell: './step ${item} $(test ${item} = a && echo 9)'}]\n"
    assert folder.run(text, code=1) == ["a"]
    assert folder.run(f"{text}  parallel: 1\n  continue_on_error: true\n  max_items: 2\n") == ["a", "b"]
    assert folder.status == {"step-1": "completed"}


def test_a_line_is_its_own_item(folder: Folder) -> None:
    """What Prodigy calls the `item` of a line that a command printed is that line."""
    text = """
mode: mapreduce
map: {input: "printf 'a b\\\\nc\\\\n'", max_parallel: 1, agent_template: [{shell: './step "${item.item} ${item}"'}]}
"""
    assert folder.run(text) == ["a b a b", "c c"]


def test_what_a_step_has_made_is_meant_before_what_was_there(tmp_path: Path) -> None:
    """An old file beside the workflow file does not hide the one that `setup` makes where the run is."""
    folder = Folder(tmp_path)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "items.json").write_text('["old"]')
    text = "mode: mapreduce\n%smap: {input: items.json, agent_template: [{shell: './step ${item}'}]}\n"
    folder.program.write(text % "setup: [{shell: 'echo [1] > items.json'}]\n", "flows/made.yml")
    folder.program.write(text % "", "flows/kept.yml")
    folder.program.json("run", "flows/made.yml", code=0)
    assert (tmp_path / "trace").read_text() == "1\n"
    import os

    os.utime(tmp_path / "items.json", (1_000_000_000, 1_000_000_000))
    folder.program.json("run", "flows/kept.yml", code=0)
    assert (tmp_path / "trace").read_text() == "1\nold\n"


def test_liquid_takes_turns_and_makes_rows() -> None:
    """`cycle` and `tablerow`; in a command the values that they write are quoted like all others."""
    values = {"list": ["a", "b", "c"], "evil": "x; touch y"}
    turns = "{% for i in list %}{{ i }}{% cycle '-', evil %}{% endfor %}"
    assert problem(turns) == ""
    assert render(turns, values) == "a-bx; touch yc-"
    assert render_command("echo {% cycle evil %}", values) == "echo 'x; touch y'"
    rows = "{% tablerow i in list cols: 2 %}{{ i }}{% endtablerow %}"
    assert problem(rows) == ""
    assert render(rows, values).count("<tr") == 2
    assert render_command("echo '{% tablerow i in list %}{{ evil }}{% endtablerow %}'", values).count("x; touch y") == 3


TAGGED = """
mode: mapreduce
map:
  input: [1]
  agent_template: [{shell: "echo ${item}"}]
error_policy:
  on_item_failure: retry
  error_collection: !batched {size: 10}
  retry_config:
    max_attempts: 2
    backoff: !exponential {initial: {secs: 1, nanos: 500000000}, multiplier: 3}
"""


def test_values_may_be_spelled_as_prodigy_itself_reads_them() -> None:
    """A tag is the name of a form, and a duration two numbers; elsewhere tags stay refused."""
    workflow = compile_text(TAGGED, file="f.yml", folder=".").workflow
    assert workflow is not None
    policy = workflow.steps[0].action.policy  # type: ignore[union-attr]
    assert (policy.collection, policy.batch_size, policy.attempts_max) == ("batched", 10, 2)
    assert (policy.backoff.kind, policy.backoff.initial_seconds, policy.backoff.multiplier) == ("exponential", 1.5, 3.0)
    unknown = compile_text(
        TAGGED.replace("on_item_failure: retry", "on_item_failure: !custom foo"), file="f", folder="."
    )
    errors = [found for found in unknown.diagnostics if found.severity == "error"]
    assert [(found.message, found.line) for found in errors] == [("there is no handler `foo`", 7)]
    native = compile_text("resile: 1\nsteps: [{shell: !fast x}]\n", file="f", folder=".")
    assert [(found.message, found.column) for found in native.diagnostics] == [
        ("the tag `!fast` is not known here", 17)
    ]


def test_a_field_that_an_item_lacks_is_nothing_in_a_prompt(folder: Folder) -> None:
    """An agent is asked all the same; a command that can't be written does not run."""
    folder.repository()
    text = """
mode: mapreduce
map:
  input: [{id: a, note: n}, {id: b}]
  max_parallel: 1
  agent_template:
    - claude: "/fix ${item.id} [${item.note}]"
"""
    assert folder.run(text) == ["agent: /fix a [n]", "agent: /fix b []"]
