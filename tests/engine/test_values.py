"""Values on their way through a run: inputs, captures, outputs, environment, hostile and large ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.conftest import Place, statuses

HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a\nb\n\ntouch pwned\n",
    "| touch pwned & touch pwned",
    "${IFS}$HOME \\ * ? [x] ~ !",
    "-n -e --help",
    "é \udcff 漢",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_value_arrives_as_it_is_and_never_runs(place: Place, value: str) -> None:
    """From an input through a command, a capture, an environment variable and another step's output."""
    (place.folder / "value").write_bytes(value.encode("utf-8", "surrogateescape"))
    code, document = place.run(
        """
resile: 1
inputs: {v: text}
steps:
  - {id: a, shell: "printf '%s' ${inputs.v} > direct; printf '%s' ${inputs.v}", capture: got}
  - {id: b, shell: 'printf "%s" "<${got}>" > captured'}
  - {id: c, shell: "printf '%s' \\"$V\\" > fromenv", env: {V: "${steps.a.output}"}, on_failure: true}
  - {id: d, shell: "echo ${got} >&2; exit 3", on_failure: true}
  - {id: e, shell: "printf '%s' ${steps.d.stderr} > stderr"}
""",
        "--input-file",
        "v=value",
    )
    trimmed = value.strip()
    assert place.text("direct") == value
    assert code == 0
    if len(value) < 100_000:
        assert place.text("fromenv") == trimmed
    else:
        assert statuses(document)["c"] == "failed"
        assert document["first_failure"]["message"].startswith("env V has 1000000 bytes")
    assert place.text("captured") == f"<{trimmed}>"
    assert place.text("stderr").split() == trimmed.split()
    assert not list(Path(place.folder).rglob("pwned"))
    assert statuses(document)["d"] == "failed"


def test_a_nul_in_a_value_fails_the_step_before_it_starts(place: Place) -> None:
    """No command line can carry it: the step fails as `contract`, nothing runs."""
    (place.folder / "value").write_bytes(b"a\0b")
    code, document = place.run(
        'resile: 1\ninputs: {v: text}\nsteps:\n  a: {shell: "touch ran; echo ${inputs.v}"}\n', "--input-file", "v=value"
    )
    assert (code, document["first_failure"]["kind"]) == (1, "contract")
    assert not (place.folder / "ran").exists()


def test_a_value_in_arithmetic_must_be_a_number(place: Place) -> None:
    """`$((...))` evaluates text, so only numbers are let in."""
    text = 'resile: 1\ninputs: {n: text}\nsteps:\n  a: {shell: "echo $((${inputs.n} + 1)) > sum"}\n'
    code, _ = place.run(text, "--input", "n=41")
    assert (code, place.text("sum")) == (0, "42\n")
    code, document = place.run(text, "--input", "n=a[$(touch pwned)]")
    assert (code, document["first_failure"]["kind"]) == (1, "contract")
    assert not (place.folder / "pwned").exists()


def test_every_capture_form_gives_its_value(place: Place) -> None:
    """text, json, lines, number, bool, stderr and exit_code."""
    code, document = place.run("""
resile: 1
steps:
  - shell: "printf ' a b \\n'"
    capture: plain
  - shell: echo '{"k":[1,2]}'
    capture: {j: json}
  - shell: printf 'x\\ny\\n'
    capture: {l: lines}
  - shell: echo 2.5
    capture: {n: number}
  - shell: echo true
    capture: {b: bool}
  - shell: echo oops >&2; exit 4
    on_failure: true
    capture: {e: stderr, c: exit_code}
  - shell: test ${j.k[1]} = 2 && test ${l[0]} = x
""")
    assert code == 0
    expected = {"plain": "a b", "j": {"k": [1, 2]}, "l": ["x", "y"], "n": 2.5, "b": True, "e": "oops", "c": 4}
    assert document["outputs"] == expected


def test_combined_is_what_the_step_itself_wrote(place: Place) -> None:
    """stdout, then stderr, of that step and of no other."""
    code, document = place.run("""
resile: 1
steps:
  - {shell: echo before; echo noise >&2}
  - {shell: echo warned >&2; echo done, capture: {c: combined}}
  - {shell: echo only >&2, capture: {e: combined}}
""")
    assert (code, document["outputs"]) == (0, {"c": "done\nwarned", "e": "only"})


def test_combined_of_a_handler_is_what_its_commands_wrote(place: Place) -> None:
    """One after the other, as the handler's own `capture` says."""
    code, document = place.run("""
resile: 1
steps:
  - {shell: echo before}
  - {shell: exit 1, on_failure: {commands: [echo one, echo two], capture: all}}
""")
    assert (code, document["outputs"]) == (0, {"all": "one\ntwo"})


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("return {'a': [1, 2]}", {"a": [1, 2]}),
        ("print('on the way'); return [True, None]", [True, None]),
        ("return 'text'", "text"),
        ("return None", ""),
    ],
)
def test_the_value_of_a_python_step_is_what_it_returned(place: Place, code: str, value: object) -> None:
    """Not the JSON text that its program prints."""
    exit_code, document = place.run(
        f"resile: 1\nsteps:\n  p:\n    python: |\n      def main():\n        {code}\n    capture: {{pv: value}}\n"
    )
    assert (exit_code, document["outputs"]) == (0, {"pv": value})


@pytest.mark.parametrize(("form", "output"), [("json", "[1"), ("number", "many"), ("bool", "maybe")])
def test_an_output_that_is_not_what_it_promised_fails_the_step(place: Place, form: str, output: str) -> None:
    """An unparsable capture is a failure of kind `contract` like any other."""
    code, document = place.run(f"resile: 1\nsteps:\n  a:\n    shell: echo '{output}'\n    capture: {{v: {form}}}\n")
    assert (code, document["first_failure"]["kind"]) == (1, "contract")


def test_a_declared_output_file_must_be_there(place: Place) -> None:
    """Exit code 0 is not enough."""
    code, document = place.run("resile: 1\nsteps:\n  a: {shell: 'true', outputs: [made.txt]}\n")
    assert (code, document["first_failure"]["kind"]) == (1, "contract")
    assert "made.txt" in document["first_failure"]["message"]
    assert place.run("resile: 1\nsteps:\n  a: {shell: touch made.txt, outputs: [made.txt]}\n")[0] == 0


def test_a_folder_that_is_not_there_is_named(place: Place) -> None:
    """With the whole path, so that it is plain where it was looked for."""
    code, document = place.run("resile: 1\nsteps:\n  a: {shell: pwd, working_dir: no/where}\n")
    message = f"can't enter the working directory {place.folder}/no/where: No such file or directory"
    assert (code, document["first_failure"]["kind"], document["first_failure"]["message"]) == (1, "spawn", message)


def test_what_the_workflow_does_not_know_is_left_to_the_shell(place: Place) -> None:
    """`$1`, `$(...)`, `${VAR:-x}` and unknown names."""
    code, _ = place.run(
        "resile: 1\nsteps:\n  a: {shell: 'set -- p; echo \"$1 $(echo q) ${NONE:-r} ${OURS}\" > out', env: {OURS: s}}\n"
    )
    assert (code, place.text("out")) == (0, "p q r s\n")


def test_end_reads_the_execution_and_may_override_the_verdict(place: Place) -> None:
    """Failed, tolerated, canceled and skipped steps by name, and the first failure."""
    code, document = place.run("""
resile: 1
steps:
  ok: {shell: 'true'}
  bad: {shell: exit 7}
  after: {shell: 'true', needs: [bad]}
  maybe: {shell: 'false', on_failure: true}
  never: {shell: 'true', when: false}
  end:
    shell: |
      printf '%s\\n' ${execution.status} ${execution.failed_steps} ${execution.tolerated_steps} > seen
      printf '%s\\n' ${execution.canceled_steps} ${execution.skipped_steps} ${execution.first_failure.step} >> seen
      echo '{"workflow_status": "completed"}'
""")
    assert (code, document["status"]) == (0, "completed")
    assert place.text("seen").splitlines()[0] == "failed"
    assert [json.loads(line) for line in place.text("seen").splitlines()[1:5]] == [
        ["bad"],
        ["maybe"],
        ["after"],
        ["never"],
    ]
    assert place.text("seen").splitlines()[5] in ("bad", "maybe")
