"""`metrics`: what fired, what it took, what it brought back."""

from __future__ import annotations

import re

from tests.cli.program import Program
from tests.cli.terminal import Terminal

FLOW = """\
resile: 1
name: rules
steps:
  flaky: {shell: 'test -e again || { touch again; exit 1; }', retry: {max: 3}}
  handled:
    shell: exit 4
    on_failure: echo mended
  hopeless:
    shell: exit 5
    max_attempts: 3
    on_failure: touch tried
    fail_workflow: false
  unmendable: {shell: exit 6, on_failure: exit 7, fail_workflow: false}
  slow: {shell: sleep 30, timeout: 50ms, on_failure: true}
"""


def rules(document: dict[str, object]) -> list[tuple[object, ...]]:
    """What is counted of each rule."""
    found = document["rules"]
    assert isinstance(found, list)
    keys = ("step", "then", "fired", "repairs", "repairs_failed", "recovered")
    return [tuple(rule[key] for key in keys) for rule in found]


def test_rules_and_attempts(program: Program) -> None:
    """Each rule that fired is counted with its repairs and the steps that it brought back."""
    program.call("run", program.write(FLOW), "--max-parallel", "1", code=0)
    document = program.json("metrics", "1")
    assert list(document) == ["version", "run", "workflow", "attempts", "failures", "rules", "maps"]
    assert sorted(rules(document)) == [
        ("flaky", "retry", 1, 0, 0, 1),
        ("handled", "recovered", 1, 1, 0, 1),
        ("hopeless", "retry", 2, 2, 0, 0),
        ("hopeless", "tolerate", 1, 0, 0, 0),
        ("slow", "tolerate", 1, 0, 0, 0),
        ("unmendable", "recovered", 1, 1, 1, 0),
        ("unmendable", "tolerate", 1, 0, 0, 0),
    ]
    assert document["failures"] == {"exit": 7, "timeout": 1}
    assert document["attempts"]["failed"] == 8
    assert all(rule["rule"]["file"] == "flow.yaml" for rule in document["rules"])


def test_metrics_for_people(program: Program) -> None:
    """One line for attempts, one for kinds of failure, and a table of the rules: whole in a pipe, else 80 columns."""
    program.call("run", program.write(FLOW), "--max-parallel", "1", code=0)
    lines = program.call("metrics", "1", code=0).stdout.splitlines()
    assert re.fullmatch(r"run 1 rules: \d+ attempts, \d+ succeeded, 8 failed", lines[0])
    assert lines[1] == "failures: 7 exit, 1 timeout"
    assert lines[3].split() == ["STEP", "RULE", "FIRED", "REPAIRS", "FAILED", "TIME", "RECOVERED"]
    assert len(lines) == 11
    assert [line.split()[:5] for line in lines if "max_attempts" in line] == [
        ["hopeless", "flow.yaml:10:5", "on_failure:", "max_attempts", "3"]
    ]
    with Terminal(program, "metrics", "1") as terminal:
        assert terminal.end() == 0
        shown = terminal.text.splitlines()
    assert shown[3].split() == lines[3].split()
    assert len(shown) == 11
    assert max(map(len, shown)) <= 80


def test_a_run_in_which_nothing_failed(program: Program) -> None:
    """Without failures there is nothing to count but attempts."""
    program.call("run", program.write('resile: 1\nname: fine\nsteps:\n  a: {shell: "true"}\n'), code=0)
    done = program.call("metrics", "1", code=0)
    assert done.stdout == "run 1 fine: 2 attempts, 2 succeeded\n\nno rule has fired\n"


def test_metrics_are_of_the_present_epoch(program: Program) -> None:
    """After `rerun` only what happened since is counted."""
    program.write("resile: 1\nname: twice\nsteps:\n  flaky: {shell: test -e mended, retry: {max: 1}}\n")
    program.call("run", "flow.yaml", code=1)
    assert rules(program.json("metrics", "1")) == [("flaky", "retry", 1, 0, 0, 0)]
    (program.folder / "mended").touch()
    program.call("rerun", "1", code=0)
    document = program.json("metrics", "1")
    assert (rules(document), document["attempts"]["failed"], document["failures"]) == ([], 0, {})


def test_the_counts_of_failures_add_up(program: Program) -> None:
    """The failed attempt of a map has no kind of its own, and is counted too."""
    flow = "resile: 1\nname: x\nsteps:\n- {id: m, map: {input: [1, 2], steps: [{id: s, shell: exit 3}]}}\n"
    program.call("run", program.write(flow), code=1)
    lines = program.call("metrics", "1", code=0).stdout.splitlines()
    assert lines[:2] == ["run 1 x: 4 attempts, 1 succeeded, 3 failed", "failures: 2 exit, 1 because of steps inside"]
