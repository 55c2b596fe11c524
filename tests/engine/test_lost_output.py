"""Output that was recorded and can't be read whole any more: an error that names it, never an empty text."""

from __future__ import annotations

import os

import pytest

from tests.engine.conftest import Place

FLOW = """
resile: 1
max_parallel: 1
steps:
- {id: a, shell: echo first; echo second >&2}
- {id: cut, shell: sh cut.sh}
- {id: b, %s}
"""
NEEDS = [
    "shell: 'echo b ${steps.a.output} >> effects'",
    "shell: 'echo b ${steps.a.output:-none} >> effects'",
    "shell: echo b >> effects, env: {TEXT: '${steps.a.output}'}",
    "shell: echo b >> effects, when: 'outputs.a == \"first\"'",
    "shell: echo b >> effects, when: 'outputs.a != \"first\"'",
    "write_file: {path: effects, content: '${steps.a.output}'}",
    "map: {input: '${steps.a.output}', steps: [{id: c, shell: echo b >> effects}]}",
]
CUTS = ["truncate -s 3 out/runs/*/launcher/*.o", "rm out/runs/*/launcher/*.o"]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("needing", NEEDS)
def test_what_needs_a_lost_output_fails_and_says_whose(place: Place, needing: str, cut: str) -> None:
    """A file that is gone or short counts as lost in texts, conditions, environments and items alike."""
    (place.folder / "cut.sh").write_text(cut)
    code, document = place.run(FLOW % needing, "--output", "out")
    assert (code, document["status"]) == (1, "failed")
    failure = document["first_failure"]
    assert (failure["step"], failure["kind"]) == ("b", "contract")
    assert "the output of 'a' is lost" in failure["message"]
    assert not (place.folder / "effects").exists()


def test_the_other_stream_is_still_there(place: Place) -> None:
    """What is whole is read, whatever became of the rest."""
    (place.folder / "cut.sh").write_text(CUTS[0])
    code, _ = place.run(FLOW % "shell: 'echo ${steps.a.stderr} >> effects'", "--output", "out")
    assert (code, place.text("effects")) == (0, "second\n")


def test_logs_show_what_is_there_and_name_what_is_lost(place: Place) -> None:
    """`logs` and its export exit with an error after everything that can be read."""
    place.run("resile: 1\nsteps:\n- {id: a, shell: echo first}\n- {id: b, shell: echo second}\n", "--output", "out")
    for path in (place.folder / "out").glob("runs/*/launcher/*.o"):
        os.truncate(path, 9)
    for words in (("logs", "1"), ("logs", "1", "--export", "exported")):
        code, document = place.call(*words)
        assert (code, document["error"]["code"]) == (2, "output-lost")
        assert document["error"]["message"] == "the output of 'b' is lost"
    files = {path.name: path.read_text() for path in (place.folder / "exported").iterdir()}
    assert files == {"job_wf1_j1_r1_a1.o": "first\n", "job_wf1_j1_r1_a1.e": "", "a_a1.o": "first\n", "a_a1.e": ""}
