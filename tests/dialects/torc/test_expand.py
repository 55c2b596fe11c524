"""Parameters, expansion, and the edges that names, patterns, files and data make."""

from __future__ import annotations

from typing import Any

import pytest

from resile.dialects.torc.parameters import format_value, values_of
from resile.model.rules import Match
from tests.dialects.torc.runs import command, compiled, findings, needs, steps_of, told


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1:5", [1, 2, 3, 4, 5]),
        ("0:10:5", [0, 5, 10]),
        ("0:9:5", [0, 5]),
        ("3:1:-1", [3, 2, 1]),
        ("-2:0", [-2, -1, 0]),
        ("{1:2}", [1, 2]),
        ("0.0:0.3:0.1", [0.0, 0.1, 0.2, 0.3]),
        ("1:2.5:0.5", [1.0, 1.5, 2.0, 2.5]),
        ("[1,5,10]", [1, 5, 10]),
        ("[1, 0.5, 'x', \"y z\", z, '7']", [1, 0.5, "x", "y z", "z", "7"]),
        ("7", [7]),
        ("1e-3", [0.001]),
        ("adam", ["adam"]),
    ],
)
def test_values(text: str, values: list[Any]) -> None:
    """Ranges include both ends, lists keep numbers and texts apart."""
    assert [(type(value), value) for value in values_of(text)] == [(type(value), value) for value in values]


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (5, "", "5"), (5, "03d", "005"), (-5, "03d", "-05"), (5, ".2f", "5"), (0.5, ".2f", "0.50"), (0.5, "03d", "0.5"),
        (1.0, "", "1"), (1e-7, "", "0.0000001"), (1e21, "", "1000000000000000000000"), ("x", "03d", "x"),
        (0.0001, ".4f", "0.0001"), (5, "x", "5"),
    ],
)  # fmt: skip
def test_formats(value: Any, form: str, text: str) -> None:
    """Formats are for one kind of number each; everything else is printed plainly, without exponents."""
    assert format_value(value, form) == text


def jobs(keys: str, more: str = "") -> str:
    """A workflow whose one job has these keys."""
    return f"name: n\n{more}jobs:\n  - {{command: x, {keys}}}\n"


def test_product_is_in_the_order_of_the_file() -> None:
    """Every combination, the last parameter fastest."""
    text = jobs("name: '{b}-{a}', parameters: {b: '[x,y]', a: '1:2'}")
    assert list(steps_of(text)) == ["x-1", "x-2", "y-1", "y-2"]


def test_zip_takes_values_together() -> None:
    """The n-th values of all parameters."""
    text = jobs("name: '{b}-{a}', parameters: {b: '[x,y]', a: '1:2'}, parameter_mode: zip")
    assert list(steps_of(text)) == ["x-1", "y-2"]


def test_several_formats_in_one_text() -> None:
    """Plain and formatted values stand side by side, and `${i}` is left to the shell."""
    text = jobs("name: 'a{i:03d}', parameters: {i: '7', x: '0.25'}").replace(
        "command: x", "command: 'r {i} {i:02d} {i:04d} {x} {x:.1f} ${i} {y} {i:q}'"
    )
    assert command(steps_of(text)["a007"]) == "r 7 07 0007 0.25 0.2 ${i} {y} 7"
    assert [(found.severity, found.code) for found in findings(text)] == [("warning", "format")]


def test_shared_parameters_are_used_by_name() -> None:
    """`use_parameters` takes them; parameters of its own replace them all, with a warning."""
    shared = "parameters: {i: '1:2', j: '1:9'}\n"
    assert list(steps_of(jobs("name: 'a{i}', use_parameters: [i]", shared))) == ["a1", "a2"]
    both = jobs("name: 'a{i}', use_parameters: [i, j], parameters: {i: '5'}", shared)
    assert list(steps_of(both)) == ["a5"]
    assert told(both) == [("warning", "conflict", 4, 32)]


def test_expansions_of_one_name_are_one_job() -> None:
    """The job waits for all that its expansions wait for, and a notice says so."""
    text = (
        "name: n\njobs:\n  - {name: 'w{i}', command: x, parameters: {i: '1:3'}}\n"
        "  - {name: all, command: y, depends_on: ['w{i}'], parameters: {i: '1:3'}}\n"
    )
    assert needs(steps_of(text)["all"]) == ["w1", "w2", "w3"]
    (found,) = findings(text)
    assert (found.severity, found.code, found.line) == ("notice", "merged", 4)
    assert found.message.startswith("3 expansions are one job, `all`")


def test_fan_in_by_some_of_the_parameters() -> None:
    """Expansions that share a name are merged name by name."""
    text = (
        "name: n\njobs:\n  - {name: 'w{a}{b}', command: x, parameters: {a: '1:2', b: '1:3'}}\n"
        "  - {name: 's{a}', command: 's {a}', depends_on: ['w{a}{b}'], parameters: {a: '1:2', b: '1:3'}}\n"
    )
    steps = steps_of(text)
    assert [needs(steps["s1"]), needs(steps["s2"])] == [["w11", "w12", "w13"], ["w21", "w22", "w23"]]
    assert findings(text)[0].message.startswith("6 expansions are 2 jobs, such as `s1`")


def test_edges() -> None:
    """Names, patterns, files and data make edges; each is there once, and files that a job reads itself make none."""
    text = """
name: n
files: [{name: f, path: f.txt}, {name: "g{i}", path: "g{i}.txt", parameters: {i: "1:2"}}]
user_data: [{name: d}]
jobs:
  - {name: a, command: "x ${files.output.f}", output_user_data: [d]}
  - {name: "b{i}", command: "x ${files.output.g{i}}", parameters: {i: "1:2"}}
  - {name: by_name, command: x, depends_on: [a, b1]}
  - {name: by_pattern, command: x, depends_on_regexes: ["^b[0-9]", "b1$"]}
  - {name: by_file, command: "x ${files.input.f}", input_files: [g2], depends_on: [a]}
  - {name: by_file_pattern, command: x, input_file_regexes: ["^g"]}
  - {name: by_data, command: x, input_user_data: [d]}
  - {name: own, command: x, input_files: [f], output_files: [f]}
"""
    steps = steps_of(text)
    assert {name: needs(step) for name, step in steps.items()} == {
        "a": [], "b1": [], "b2": [], "by_name": ["a", "b1"], "by_pattern": ["b1", "b2"],
        "by_file": ["a", "b2", "own"], "by_file_pattern": ["b1", "b2"], "by_data": ["a"], "own": ["a"],
    }  # fmt: skip
    assert steps["b1"].outputs == ("g1.txt",)


def test_parameters_in_patterns_stand_for_themselves() -> None:
    """A value with a dot matches that dot only."""
    text = (
        "name: n\njobs:\n  - {name: 'v1.5', command: x}\n  - {name: v1x5, command: x}\n"
        "  - {name: 'w{v}', command: x, depends_on_regexes: ['^v{v}$'], parameters: {v: '[1.5]'}}\n"
    )
    assert needs(steps_of(text)["w1.5"]) == ["v1.5"]


def test_rules_of_the_first_design() -> None:
    """The rules JSON of the design: three attempts in all, so two retries."""
    text = (
        '{"name": "n", "failure_handlers": [{"name": "simulation_recovery", "rules": '
        '[{"exit_codes":[10,11],"max_retries":3}]}], '
        '"jobs": [{"name": "a", "command": "x", "failure_handler": "simulation_recovery"}]}'
    )
    (rule,) = steps_of(text, "flow.json")["a"].rules
    assert (rule.match, rule.limit, rule.limit_of, rule.then) == (Match(codes=(10, 11)), 2, "job", "retry")
    (found,) = findings(text, "flow.json")
    assert (found.severity, found.code, found.hint) == ("notice", "attempts", "for 3 retries write `max_retries: 4`")


def test_the_rule_for_all_excludes_what_is_listed() -> None:
    """Listed codes go to the first rule that lists them, all others to the one for all, and nothing is parked."""
    text = (
        "name: n\nuse_pending_failed: true\nfailure_handlers:\n  - name: h\n    rules:\n"
        "      - {match_all_exit_codes: true, exit_codes: [5]}\n"
        "      - {exit_codes: [1, 7]}\n      - {exit_codes: [7, 8]}\n"
        "jobs: [{name: a, command: x, failure_handler: h}]\n"
    )
    rules = steps_of(text)["a"].rules
    assert [(rule.then, rule.match) for rule in rules] == [
        ("retry", Match(codes=(1, 7, 0))),
        ("retry", Match(codes=(8,))),
        ("retry", Match(codes_excluded=(1, 7, 8, 0))),
    ]


def test_parking_is_for_what_no_rule_lists() -> None:
    """The last rule parks, and leaves the listed codes alone."""
    text = (
        "name: n\nuse_pending_failed: true\nfailure_handlers: [{name: h, rules: [{exit_codes: [7]}]}]\n"
        "jobs: [{name: a, command: x, failure_handler: h}]\n"
    )
    assert [(rule.then, rule.match) for rule in steps_of(text)["a"].rules] == [
        ("retry", Match(codes=(7,))),
        ("park", Match(codes_excluded=(7,))),
    ]


def test_nothing_is_as_good_as_not_there() -> None:
    """An explicit null says what a missing key says, and a workflow may be empty."""
    keys = ("depends_on", "input_files", "invocation_script", "failure_handler", "scheduler", "parameters")
    nulls = "".join(f", {key}: null" for key in keys)
    assert compiled(jobs(f"name: a{nulls}")).steps == compiled(jobs("name: a")).steps
    assert compiled("name: n\njobs: []\n").steps == ()


def test_a_large_sweep() -> None:
    """Twenty thousand jobs with a barrier between two stages."""
    text = """
name: n
jobs:
  - {name: "a{i:05d}", command: "x {i}", parameters: {i: "1:10000"}}
  - {name: barrier, command: x, depends_on_regexes: ["^a"]}
  - {name: "b{i:05d}", command: "x {i}", depends_on: [barrier], parameters: {i: "1:10000"}}
"""
    steps = steps_of(text)
    assert (len(steps), len(steps["barrier"].needs), needs(steps["b10000"])) == (20_001, 10_000, ["barrier"])
