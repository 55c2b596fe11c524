"""What users of Prodigy found: keys beside `on_failure`, captures, variables of git, redrives, and hints that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resile.dialects.compile import compile_text
from tests.cli.test_redrive import redrives
from tests.dialects.prodigy.folder import Folder

MAP = "{mode: mapreduce, map: {input: [1, 2, 3], agent_template: [{shell: 'exit 3'}]%s}}"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    return Folder(tmp_path)


def findings(text: str, dialect: str = "prodigy") -> list[tuple[str, str]]:
    """Severity and code of everything that compiling a text says."""
    return [(found.severity, found.code) for found in compile_text(text, file="flow.yml", dialect=dialect).diagnostics]


@pytest.mark.parametrize(("fatal", "code"), [("true", 1), ("false", 0)])
def test_handler_failure_fatal_beside_on_failure(folder: Folder, fatal: str, code: int) -> None:
    """The key of the design's `WorkflowStep` works beside `on_failure`: a failed handler fails the workflow."""
    text = f"[{{shell: ./step a 9, on_failure: [./step h 9], handler_failure_fatal: {fatal}}}, {{shell: ./step b}}]"
    assert folder.run(text, code=code) == ["a", "h"] if code else ["a", "h", "b"]


def test_handler_failure_fatal_beside_on_failure_in_a_native_file(folder: Folder) -> None:
    """It means the same in a native file: the handler's failure ends the re-runs."""
    keys = "on_failure: {shell: ./step h 9, max_attempts: 3}"
    text = f"resile: 1\nsteps: [{{id: a, shell: ./step a 9, {keys}, handler_failure_fatal: true}}]\n"
    assert folder.run(text, code=1) == ["a", "h"]
    assert folder.run(text.replace(", handler_failure_fatal: true", ""), code=1) == ["a", "h", "a", "h", "a"]


@pytest.mark.parametrize("key", ["analysis: {force_refresh: true}", "clear_env: true", "context: {file: a}"])
def test_keys_that_prodigy_never_reads(key: str) -> None:
    """A key that is dead in Prodigy itself is accepted with a notice that says so."""
    assert findings(f"[{{shell: a, {key}}}]") == [("notice", "ignored")]


def test_capture_as_shell_output(folder: Folder) -> None:
    """`capture: shell.output` keeps the output as `${shell.output}`, also after later steps."""
    text = "[{shell: echo one, capture: shell.output}, {shell: echo two}, {shell: './step \"${shell.output}\"'}]"
    assert folder.run(text) == ["one"]


CAPTURES = """
setup:
  commands:
    - shell: |
        printf 'a 1\\nb 2\\nc 3\\n'; echo bad >&2
    - shell: |
        echo '{"x": {"list": [{"n": 1}, {"n": 2}], "one": "uno"}}'
  capture_outputs: {v: %s}
map: {input: [1], agent_template: [{shell: 'true'}]}
reduce:
  - shell: echo '${v}' >> trace
"""


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("{command_index: 0, multiline: first_line}", "a 1"),
        ("{command_index: 0, multiline: last_line}", "c 3"),
        ("{command_index: 0, multiline: join}", "a 1 b 2 c 3"),
        ("{command_index: 0, source: both, multiline: join}", "a 1 b 2 c 3 bad"),
        ("{command_index: 1, json_path: $.x.one}", "uno"),
        ("{command_index: 1, json_path: '$.x.list[*].n'}", "[1, 2]"),
        ("{command_index: 1, json_path: $.x.none, default: nothing}", "nothing"),
        ("{command_index: 0, pattern: 'z (.)', default: nothing}", "nothing"),
        ("{command_index: 0, pattern: 'b (.)', max_size: 100}", "2"),
    ],
)
def test_capture_outputs(folder: Folder, said: str, value: str) -> None:
    """Every key of `capture_outputs` cuts its value out of the output of the step."""
    assert folder.run(CAPTURES % said) == [value]


@pytest.mark.parametrize("said", ["{command_index: 1, json_path: $.x.none}", "{command_index: 0, max_size: 3}"])
def test_capture_outputs_that_find_nothing(folder: Folder, said: str) -> None:
    """Without a default a value that is not there, or that is too large, fails the step."""
    assert folder.run(CAPTURES % said, code=1) == []


@pytest.mark.parametrize(("more", "parallel"), [("", 5), (", max_parallel: 10", 10), (", max_parallel: 2", 2)])
def test_how_many_letters_at_a_time(folder: Folder, more: str, parallel: int) -> None:
    """`dlq retry` runs five at a time where the file has no `max_parallel`, else as many as the file says."""
    folder.run(MAP % more)
    folder.program.call("dlq", "retry", "1", code=1)
    assert redrives(folder.program) == [(3, parallel)]


def test_retry_original_beside_a_count(folder: Folder) -> None:
    """`retry_original: false` is deprecated and refuses nothing: the count decides."""
    text = "[{shell: ./step a 9, on_failure: {shell: ./step h, max_retries: 2, retry_original: false}}]"
    assert folder.run(text) == ["a", "h", "a"]


def test_events_by_job_id(folder: Folder) -> None:
    """`events ls --job-id RUN`, as Prodigy writes it, lists the events of the run."""
    folder.run("[{shell: ./step a}]")
    expected = folder.program.call("events", "list", "1", "--json", code=0).stdout
    assert folder.program.call("events", "ls", "--job-id", "1", "--json", code=0).stdout == expected
    assert folder.program.call("events", "ls", "--job-id=1", "--json", code=0).stdout == expected


def test_a_handler_by_name(folder: Folder) -> None:
    """`custom:NAME` runs the steps under `handlers`, and a name that is not there is answered with that key."""
    text = (
        "{mode: mapreduce, map: {input: [x], agent_template: [{shell: './step a 9'}]}, "
        "error_policy: {on_item_failure: 'custom:mend'}, handlers: {mend: [{shell: './step ${item}'}]}}"
    )
    assert folder.run(text) == ["a", "x"]
    assert ("error", "unknown-handler") in findings(text.replace("custom:mend", "custom:other"))


def test_a_worktree_that_the_file_does_not_name(folder: Folder) -> None:
    """Without a git repository the hint does not speak of `isolation`, which no Prodigy file has."""
    text = "{mode: mapreduce, map: {input: [1], agent_template: [{shell: 'git commit -m x', commit_required: true}]}}"
    folder.program.write(text, "flow.yml")
    said = folder.program.call("run", "flow.yml", code=2).stderr
    assert "git init" in said
    assert "isolation" not in said


GIT: list[tuple[str, Any]] = [
    ("${step.files_added}", "b.txt specs/a.md"),
    ("${step.files_added:specs/*.md}", "specs/a.md"),
    ("${step.files_added:lines}", "b.txt\nspecs/a.md"),
    ("${step.files_added:json}", '["b.txt","specs/a.md"]'),
    ("${step.files_modified}", "old.txt"),
    ("${step.files_changed:csv}", "b.txt,old.txt,specs/a.md"),
    ("${step.commit_count}", "1"),
    ("${step.insertions}", "2"),
    ("${workflow.files_added}", ".gitignore b.txt first.txt old.txt specs/a.md"),
    ("${workflow.commit_count}", "2"),
]


@pytest.mark.parametrize(("name", "value"), GIT)
def test_what_steps_changed_in_git(folder: Folder, name: str, value: str) -> None:
    """`step` is the step before, `workflow` is everything since the run began; files that git does not know count."""
    folder.repository()
    (folder.path / ".gitignore").write_text("trace\nout\nflow.yml\nbin\nstep\n.resile\noutput\n*.db*\n")
    (folder.path / "old.txt").write_text("")
    text = f"""
- shell: touch first.txt; git add .gitignore old.txt first.txt; git commit -qm one
- shell: mkdir specs; echo a > specs/a.md; echo b >> old.txt; git add specs old.txt; git commit -qm two; touch b.txt
- write_file: {{path: out, content: "{name}"}}
"""
    folder.run(text)
    assert (folder.path / "out").read_text() == value


def test_variables_that_prodigy_provides(folder: Folder) -> None:
    """Names of the workflow, of the last step, of a step by its id, and defaults of what a map does not have."""
    text = """
name: nightly run
mode: mapreduce
setup:
  - {shell: 'echo built', id: build}
  - {shell: 'echo "${last.output} ${build.output} ${build.success}" >> trace', when: '${build.success}'}
  - {shell: 'echo "${workflow.name} ${merge.session_id} ${workflow.id}" >> trace'}
map: {input: [1], agent_template: [{shell: 'true'}]}
reduce:
  - {shell: 'echo "${map.duration|default:unknown} ${map.successful}" >> trace'}
"""
    assert folder.run(text) == ["built built true", "nightly run 1 1", "unknown 1"]


def test_no_news_of_native_files() -> None:
    """A nested handler of a Prodigy file has no notice about what changed in native files."""
    text = "[{shell: a, on_failure: {shell: h, on_failure: i}}]"
    assert ("notice", "since-0.2") not in findings(text)


@pytest.mark.parametrize(("items", "trace"), [("[]", ["merged"]), ("[1]", ["item", "one", "three", "merged"])])
def test_reduce_is_skipped_without_items(folder: Folder, items: str, trace: list[str]) -> None:
    """With no items no step of `reduce` runs, whatever its `when` says; `check` and `explain` say so, `merge` runs."""
    text = f"""
mode: mapreduce
map: {{input: "echo '{items}'", agent_template: [{{shell: ./step item}}]}}
reduce:
  - shell: ./step one
  - {{shell: ./step two, when: "${{map.total}} > 1"}}
  - {{shell: ./step three, when: "${{map.total}} < 2"}}
merge: [{{shell: ./step merged}}]
"""
    assert folder.run(text) == trace
    first = "skipped" if items == "[]" else "completed"
    assert folder.status == {
        "map": "completed", "reduce-1": first, "reduce-2": "skipped", "reduce-3": first, "merge-1": "completed",
    }  # fmt: skip
    assert ("notice", "no-items") in findings(text)
    said = folder.program.call("explain", "1").stdout
    assert ("reduce-1 (flow.yml:5:5) was skipped: `when` is false: ${map.total} > 0" in said) == (items == "[]")
