"""Regular expressions that would take for ever: each ends at once, or fails its step."""

from __future__ import annotations

import json

import pytest

from resile.model.patterns import PatternRefused, compile_pattern
from tests.cli.program import Program
from tests.runs.values.conftest import failure_of

LONG = "a" * 4_000
BOMBS = ["(a+)+$", "(a*)*b", "(a|aa)+$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(a?){60}a{60}$"]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_rule_is_matched_in_linear_time(program: Program, bomb: str) -> None:
    """A failure that meets such a rule is answered within the run."""
    program.write(
        f"resile: 1\nname: flow\nfailure_handlers:\n  h: {{rules: [{{pattern: '{bomb}', then: retry}}]}}\n"
        f"steps:\n  s: {{shell: echo {LONG}! >&2; exit 3, failure_handler: h}}\n"
    )
    assert failure_of(program).startswith("exit code 3: aaa")


@pytest.mark.parametrize("bomb", BOMBS)
def test_paths_of_items_are_matched_in_linear_time(program: Program, bomb: str) -> None:
    """`match` and `search` in a `json_path` list the items at once."""
    (program.folder / "items.json").write_text(json.dumps([{"n": LONG + "!"}, {"n": "a"}]))
    program.write(
        "resile: 1\nname: flow\nsteps:\n  m:\n    map:\n      input: items.json\n"
        f"      json_path: \"$[?search(@.n, '{bomb}') || match(@.n, 'a')]\"\n"
        '      steps: [{id: s, shell: "true"}]\n'
    )
    assert program.json("run", "flow.yaml")["status"] == "completed"


def test_a_path_with_lookaround_is_refused(program: Program) -> None:
    """The items say which pattern is refused, instead of being none."""
    (program.folder / "items.json").write_text('[{"n": "a"}]')
    program.write(
        "resile: 1\nname: flow\nsteps:\n  m:\n    map:\n      input: items.json\n"
        '      json_path: "$[?search(@.n, \'(?=a)\')]"\n      steps: [{id: s, shell: "true"}]\n'
    )
    assert "the pattern `(?=a)` is refused: lookaround" in program.call("run", "flow.yaml", code=2).stderr


def test_lookaround_in_a_rule_is_refused_when_the_file_is_loaded(program: Program) -> None:
    """The finding says why, at the pattern."""
    program.write(
        "resile: 1\nname: flow\nfailure_handlers:\n  h: {rules: [{pattern: 'a(?=b)', then: retry}]}\n"
        "steps:\n  s: {shell: 'true', failure_handler: h}\n"
    )
    said = program.call_warm("check", "flow.yaml", code=2).stdout
    assert "`a(?=b)` is no regular expression: lookaround, back references and possessive parts could take" in said


@pytest.mark.parametrize("bomb", [*BOMBS, r"^(?=(a+)+$)", r"(a+)+\1$"])
def test_the_pattern_of_a_schema_ends(program: Program, bomb: str) -> None:
    """With lookaround or a back reference it runs in a process with limits, and fails the step at them."""
    (program.folder / "value").write_text(json.dumps(LONG + "!"))
    program.write(
        "resile: 1\nname: flow\nsteps:\n  s:\n    shell: cat value\n"
        f"    ir: {{transform: {{parse: json, schema: {{type: string, pattern: '{bomb}'}}}}}}\n"
    )
    said = failure_of(program)
    limit = "it takes more than 150 ms of CPU time"
    assert said in (
        f"schema: the value does not match {bomb}",
        f"schema: the value can't be compared with {bomb}: {limit}",
    )
    assert (limit in said) == (bomb not in BOMBS)


def test_the_pattern_of_an_input_ends(program: Program) -> None:
    """An input is refused before the run, whatever its pattern would take."""
    program.write(
        "resile: 1\nname: flow\ninputs: {x: {schema: {type: string, pattern: '^(?=(a+)+$)'}}}\n"
        "steps: {s: {shell: 'true'}}\n"
    )
    said = program.call("run", "flow.yaml", "--input", f"x={'a' * 60}!", code=2).stderr
    assert "it takes more than 150 ms of CPU time" in said


def test_captures_of_prodigy_are_matched_in_linear_time(program: Program) -> None:
    """The step that cuts a part out of an output ends, also where nothing matches."""
    program.write(
        "mode: mapreduce\nname: flow\nsetup:\n  commands: [{shell: 'echo " + LONG + "!'}]\n"
        "  capture_outputs: {V: {command_index: 0, pattern: '(a+)+$'}}\n"
        "map: {input: [1], agent_template: [{shell: 'true'}]}\n"
    )
    assert "V: nothing matches (a+)+$" in str(program.call("run", "flow.yaml", code=1).stderr)


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("^b$", "a\nb\nc", True),
        (r"b\Z", "a\nb", True),
        (r"\\Z", r"a\Z", True),
        (r"\u00e9", "caf\u00e9", True),
        ("^a{,2}$", "aa", True),
        (r"a\{,2}", "a{,2}", True),
        ("(?i)TIMEOUT|refused", "timeOut", True),
        ("x", "a\udc80x", True),
        ("x", "\ud800x", True),
        (".", "", False),
    ],
)
def test_patterns_are_written_as_in_python(pattern: str, text: str, is_found: bool) -> None:
    """Lines, ends, codes and counts mean what they meant, and text that is no UTF-8 is searched too."""
    assert compile_pattern(pattern).search(text) is is_found


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", r"(a)\1", "a*+", "(?>a)", "(", "a{2000}", "x" * 4_001])
def test_what_is_no_pattern(pattern: str) -> None:
    """What can't be matched in linear time, what is too long, and what is no pattern at all."""
    with pytest.raises(PatternRefused):
        compile_pattern(pattern)
