"""Torc files as native trees: what their own words allow is not measured by the rules of native files."""

from __future__ import annotations

import msgspec

from resile.dialects.torc.rules import NO_CODE
from resile.model.codec import encode
from resile.model.rules import Match
from tests.dialects.torc.runs import command, compiled, findings, steps_of
from tests.dialects.torc.test_formats import without_places


def test_an_expansion_is_what_it_would_be_written_out() -> None:
    """Jobs of one entry have their own commands, outputs and edges, and share the rest."""
    head = (
        "name: n\nuse_pending_failed: true\nresource_requirements: [{name: r, num_cpus: 2, memory: 1g}]\n"
        "failure_handlers: [{name: h, rules: [{exit_codes: 7, recovery_script: ./fix}]}]\n"
        "files: [{name: f1, path: p1}, {name: f2, path: p2}]\njobs:\n  - {name: a, command: x}\n"
    )
    rest = "resource_requirements: r, failure_handler: h, depends_on: a"
    written = "".join(f"  - {{name: j{i}, command: 'make {i}', output_files: f{i}, {rest}}}\n" for i in (1, 2))
    expanded = "  - {name: 'j{i}', command: 'make {i}', output_files: 'f{i}', parameters: {i: '1:2'}, " + rest + "}\n"
    one, two = (without_places(msgspec.json.decode(encode(compiled(head + jobs)))) for jobs in (written, expanded))
    assert one == two
    assert [(step["name"], step["outputs"]) for step in two["steps"][1:]] == [("j1", ["p1"]), ("j2", ["p2"])]


def test_text_for_bash_is_not_checked_as_ours() -> None:
    """What looks like a reference and is none of Torc belongs to bash, and nothing is said about it."""
    text = "name: n\njobs: [{name: j, command: 'echo ${a.b} ${ c } ${x[1]}'}]\n"
    assert findings(text) == []
    assert command(steps_of(text)["j"]) == "echo ${a.b} ${ c } ${x[1]}"


def test_handlers_have_names_that_steps_can_not_have() -> None:
    """The name of a failure handler is any text, and one whose rules answer nothing keeps one that never matches."""
    text = (
        "name: n\njobs: [{name: j, command: x, failure_handler: 'a|b'}, {name: k, command: x, failure_handler: End}]\n"
        "failure_handlers: [{name: 'a|b', rules: [{exit_codes: 7}]}, {name: End, rules: [{}]}]\n"
    )
    workflow = compiled(text)
    assert {name: [rule.match for rule in rules] for name, rules in workflow.failure_handlers.items()} == {
        "a|b": [Match(codes=(7,))],
        "End": [Match(codes=(NO_CODE,))],
    }
    assert [len(step.rules) for step in workflow.steps] == [1, 1]


def test_a_file_without_jobs() -> None:
    """A workflow may have no jobs: its end stands at the start of the file."""
    workflow = compiled("\n# nothing yet\nname: n\njobs: []\n")
    assert (workflow.steps, workflow.end.origin.line, workflow.end.origin.column) == ((), 1, 1)
