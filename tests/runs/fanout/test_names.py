"""Step names with the marks of a path, `/` and `[`: no two things become one."""

from __future__ import annotations

from resile.model.nested import in_item, path_part, step_name
from tests.runs.fanout.runs import counts, letters
from tests.runs.ladder.flows import Flows

# The inner map of an item, a map of the workflow and a map in a child: without escapes all would be `a[0]/b`.
ALIKE = """\
name: alike
steps:
- id: a
  fail_workflow: false
  map:
    input: [0]
    steps: [{id: b, map: {input: [inner], steps: [{id: c, shell: 'echo ${item_id} >> seen; test -e fixed'}]}}]
- id: 'a[0]/b'
  fail_workflow: false
  map: {input: [outer], steps: [{id: c, shell: 'echo ${item_id} >> seen; test -e fixed'}]}
- id: 'a[0]'
  fail_workflow: false
  workflow:
    name: child
    steps: [{id: b, map: {input: [child], steps: [{id: c, shell: 'echo ${item_id} >> seen; test -e fixed'}]}}]
- {id: after, shell: exit 1}
"""
SLASHED = """\
name: slashed
steps:
- id: x/y
  map: {input: [0, 1], steps: [{id: in/ner, map: {input: [1, 2], steps: [{shell: 'true'}]}}]}
- {id: x, map: {input: [0], steps: [{id: inner, map: {input: [1], steps: [{shell: test -e fixed}]}}]}}
"""


def test_no_two_maps_share_a_letter(flows: Flows) -> None:
    """Each letter has a name of its own, and each can be tried again alone."""
    flows.run(ALIKE, 1)
    own = {"a[0]", "a[0]/b[0]", "a\\[0]\\/b[0]", "a\\[0]/b[0]"}
    assert {name for name, _, _ in letters(flows)} == own
    assert sorted((flows.folder / "seen").read_text().split()) == sorted(own - {"a[0]"})
    (flows.folder / "fixed").touch()
    for path in ("a/b", "a[0]/b", "a\\[0]/b"):
        # A map is found by its path, and one of the workflow itself by its name too.
        assert flows.program.json("dlq", "retry", "1", "--step", path)["succeeded"] == 1
    assert {name for name, _, _ in letters(flows)} == {"a[0]"}


def test_a_rerun_keeps_the_counts_of_a_map_with_a_slash(flows: Flows) -> None:
    """The counts of what completed stay, under one name each."""
    flows.run(SLASHED, 1)
    (flows.folder / "fixed").touch()
    ran = flows.drive("rerun", "1", "--failed-only")
    assert list(ran.document["maps"]) == ["x/y", "x", "x\\/y/in\\/ner", "x/inner"]
    assert counts(ran, "x\\/y/in\\/ner") == (4, 4, 0, 0, 0)
    assert counts(ran, "x/inner") == (1, 1, 0, 0, 0)


def test_status_explain_and_logs_tell_them_apart(flows: Flows) -> None:
    """A child that is called like an item is no item."""
    text = (
        "name: odd\nsteps:\n"
        "- id: 'p[3]'\n  fail_workflow: false\n  workflow: {name: c, steps: [{id: x, shell: 'echo child; exit 3'}]}\n"
        "- id: p\n  fail_workflow: false\n"
        "  map: {input: [0, 1, 2, 3], steps: [{id: x, shell: 'echo item; test ${item} != 3'}]}\n"
        "- {id: p/x, shell: 'echo odd; exit 1'}\n"
    )
    flows.run(text, 1)
    status = flows.program.call("status", "1", code=0).stdout.splitlines()
    starts = [line.split()[0] for line in status if line.startswith("p")]
    assert starts == ["p[3]", "p", "p/x", "p\\[3]/x", "p:", "p[3]/x"]
    explained = flows.program.call("explain", "1", code=0).stdout
    assert "p\\[3]/x" in explained
    assert "p[3]/x" in explained
    assert flows.program.call("logs", "1", "p\\[3]/x", "--attempt", "1", "--stdout", code=0).stdout == "child\n"
    assert flows.program.call("logs", "1", "p[3]/x", "--attempt", "1", "--stdout", code=0).stdout == "item\n"
    flows.program.call("logs", "1", "--export", "files", code=0)
    exported = [file.read_text() for file in (flows.folder / "files").iterdir() if not file.name.startswith("job_")]
    assert sorted(text for text in exported if text) == sorted(["child\n", "odd\n", *["item\n"] * 4])


def test_a_newline_in_a_name_is_refused(flows: Flows) -> None:
    """It would break the lines of every list."""
    refused = flows.refused('name: odd\nsteps:\n- {id: "two\\nlines", shell: "true"}\n')
    assert refused == ["the step name `two lines` holds a control character"]


def test_a_path_says_where_its_parts_end() -> None:
    """Marks in a name are escaped, everything else stays as it is."""
    assert [path_part(name) for name in ("build", "a/b", "x[1]", "back\\slash", "é\n")] == [
        "build",
        "a\\/b",
        "x\\[1]",
        "back\\\\slash",
        "é\n",
    ]
    assert step_name("outer[3]", "a/b") == "outer[3]/a\\/b"
    assert [in_item(name) for name in ("p[3]", "p\\[3]", "p\\\\[3]", "p\\[3]/q[0]")] == [True, False, True, True]
