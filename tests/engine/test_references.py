"""A name that the workflow knows with a path that is not there: the step fails before it starts, and says what is."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Place, statuses

GIVEN = """resile: 1
inputs: {conf: {type: json, default: {port: 80, tags: [a]}}}
steps:
  - {id: m, shell: "echo '{\\"version\\": 3, \\"parts\\": {\\"x\\": 1}}'", capture: {m: json}}
  - {id: l, shell: "printf 'a\\\\nb\\\\n'", capture: {l: lines}}
  - {id: t, shell: echo word, capture: t}
  - {id: raw, shell: "echo '{\\"x\\": 1}'"}
"""


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("m.verison", "`m` has no `verison`; it has: version, parts"),
        ("m.parts.y", "`m.parts` has no `y`; it has: x"),
        ("m.version.major", "`m.version` is a number and has no `major`"),
        ("m[0]", "`m` has no `0`; it has: version, parts"),
        ("l[5]", "`l` has no `[5]`; it has 2 entries"),
        ("l.first", "`l` is a list and has no `first`; its entries are `[0]`, `[1]` …"),
        ("t.size", "`t` is a text and has no `size`"),
        ("steps.raw.output.x", "`steps.raw.output` is a text and has no `x`; capture it as `json` to look into it"),
        ("steps.m.output.nope", "`steps.m.output` has no `nope`; it has: version, parts"),
        ("steps.m.outputs.m.nope", "`steps.m.outputs.m` has no `nope`; it has: version, parts"),
        ("inputs.conf.host", "`inputs.conf` has no `host`; it has: port, tags"),
    ],
)
def test_a_path_that_is_not_there_fails_the_step_before_it_starts(place: Place, reference: str, message: str) -> None:
    """In a command, where a shell would call it a bad substitution."""
    code, document = place.run(f'{GIVEN}  - {{id: use, shell: "touch ran; echo ${{{reference}}}"}}\n')
    failure = document["first_failure"]
    assert (code, failure["step"], failure["kind"], failure["message"]) == (1, "use", "contract", message)
    assert not (place.folder / "ran").exists()


@pytest.mark.parametrize(
    "step",
    [
        "write_file: {path: out, content: 'v=${m.verison}'}",
        "write_file: {path: 'out-${m.verison}', content: v}",
        "shell: touch out, env: {V: '${m.verison}'}",
        "shell: touch out, working_dir: '${m.verison}'",
        "python: {source: 'open(\"out\", \"w\")', inputs: {v: '${m.verison}'}}",
        "python: {source: 'open(\"out\", \"w\")', inputs: {v: 'a ${m.verison}'}}",
        "shell: 'echo ${raw:m.verison} > out'",
        "shell: 'true', outputs: ['${m.verison}']",
    ],
)
def test_it_fails_wherever_the_text_stands(place: Place, step: str) -> None:
    """No text is written out with a reference in it that nobody meant so."""
    code, document = place.run(f"{GIVEN}  - {{id: use, {step}}}\n")
    failure = document["first_failure"]
    assert (code, failure["step"], failure["kind"]) == (1, "use", "contract")
    assert failure["message"].endswith("`m` has no `verison`; it has: version, parts")
    assert not list(place.folder.glob("out*"))


def test_an_item_without_the_field_fails_and_says_what_it_has(place: Place) -> None:
    """Its neighbour goes on, and then the map fails."""
    code, document = place.run("""resile: 1
steps:
- id: m
  map:
    input: [{name: a}, {nmae: b}, plain]
    steps: [{id: s, shell: "echo ${item.name} >> seen"}]
""")
    assert (code, statuses(document)["m"], place.text("seen").split()) == (1, "failed", ["a"])
    failed = {entry["data"]["message"] for entry in place.events(1) if entry["type"] == "attempt_failed"}
    assert failed == {
        "`item` has no `name`; it has: nmae",
        "`item` is a text and has no `name`",
        "2 of 3 items failed",
    }


def test_a_name_that_nothing_was_captured_under_says_who_would(place: Place) -> None:
    """The step that captures it failed and was tolerated, so there is no value to look into."""
    code, _ = place.run("""resile: 1
steps:
- {id: a, shell: exit 1, capture: {j: json}, on_failure: true}
- {id: b, shell: "echo ${j.k}"}
""")
    assert code == 1
    failed = [entry["data"]["message"] for entry in place.events(1) if entry["type"] == "attempt_failed"]
    assert failed[1] == "`j` has no value: 'a' captures it and has not given one"


def test_a_default_is_the_way_out(place: Place) -> None:
    """And null is a value: nothing."""
    code, _ = place.run(
        f'{GIVEN}  - {{shell: "echo \'{{\\"z\\": null}}\'", capture: {{n: json}}}}\n'
        "  - {shell: 'echo [${m.verison:-none}] [${l[5]:-x}] [${steps.m.output.a.b:-deep}] [${n.z}] > seen'}\n"
    )
    assert (code, place.text("seen")) == (0, "[none] [x] [deep] []\n")


def test_conditions_read_nothing_as_null(place: Place) -> None:
    """A `when` asks; it does not insist."""
    code, _ = place.run(
        f"{GIVEN}  - {{shell: echo one >> seen, when: '${{m.verison}}'}}\n"
        "  - {shell: echo two >> seen, when: '${m.verison} === null'}\n"
    )
    assert (code, place.text("seen")) == (0, "two\n")


def test_a_number_behind_a_dot_counts_entries_of_a_list(place: Place) -> None:
    """`${d.x.1}` is `${d.x[1]}`."""
    code, _ = place.run(
        'resile: 1\nsteps:\n- {shell: "echo \'{\\"x\\": [5, 6], \\"1\\": 7}\'", capture: {d: json}}\n'
        "- {shell: 'echo ${d.x.1} ${d.x[1]} ${d.1} > seen'}\n"
    )
    assert (code, place.text("seen")) == (0, "6 6 7\n")


def test_what_only_the_shell_knows_is_the_shells(place: Place) -> None:
    """Arrays, lengths, cuts and defaults of names that the workflow does not have."""
    code, _ = place.run("""resile: 1
shell_program: bash
steps:
- shell: |
    x=(p q); f=a/b.txt
    echo "${x[1]}" "${x[@]}" "${#x}" "${f##*/}" "${PORT:-80}" '${some.thing}' > seen
""")
    assert (code, place.text("seen")) == (0, "q p q 1 b.txt 80 ${some.thing}\n")


def test_end_runs_whatever_its_texts_name(place: Place) -> None:
    """What never ran is empty in `end` and in its handlers, and `end` runs in any case."""
    code, document = place.run(
        """
resile: 1
steps:
  first: {shell: exit 3}
  later: {shell: echo 1, needs: [first], capture: {said: json}}
  end:
    shell: 'echo "<${steps.later.output}${said.x}${steps.later.stderr}>" > said; exit 4'
    on_failure: 'echo "<${said.y}${error.exit_code}>" > handled'
"""
    )
    assert code == 1
    assert (place.folder / "said").read_text() == "<>\n"
    assert (place.folder / "handled").read_text() == "<4>\n"
    assert [job["status"] for job in document["jobs"]] == ["failed", "canceled", "completed", "completed"]
