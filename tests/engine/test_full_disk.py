"""No room for what steps print, or for the database: what ran never runs again for it; a resume goes on with room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Place


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], check=False)
    if made.returncode:
        assert os.environ.get("CI") != "true", "CI must be able to mount a file system"
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


FLOW = """
resile: 1
steps:
- {id: a, shell: head -c 600000 /dev/zero; echo a >> effects%s}
- {id: b, shell: echo b >> effects}
- {id: c, %s}
"""
NEEDS = [
    ("", "shell: 'echo c ${steps.a.output} >> effects'"),
    ("", "shell: echo c >> effects, when: 'outputs.a.length > 5'"),
    ("", "shell: echo c >> effects, env: {TEXT: '${steps.a.output}'}"),
    (", capture: text", "shell: 'echo c ${text} >> effects'"),
    (", capture: text", "shell: 'echo c ${steps.a.outputs.text} >> effects'"),
]


@pytest.mark.parametrize(("keys", "needing"), NEEDS)
def test_a_full_disk_under_the_output_loses_only_the_output(place: Place, small: Path, keys: str, needing: str) -> None:
    """The step is completed without its output, the run goes on, and it stops at the step that needs the output."""
    code, document = place.run(FLOW % (keys, needing), "--output", str(small / "out"))
    assert (code, document["status"]) == (1, "failed")
    jobs = {job["step"]: (job["status"], job["attempts"], job["output_lost"]) for job in document["jobs"]}
    assert jobs["a"] == ("completed", 1, True)
    assert jobs["b"] == ("completed", 1, False)
    assert jobs["c"] == ("failed", 1, False)
    assert place.text("effects").split() == ["a", "b"]
    failure = document["first_failure"]
    assert (failure["step"], failure["kind"], failure["message"]) == ("c", "contract", "the output of 'a' is lost")
    ends = [event for event in place.events(1) if event["type"] == "attempt_succeeded"]
    assert [(event["step"], event["data"].get("output_lost")) for event in ends[:2]] == [("a", True), ("b", None)]
    assert place.call("logs", "1", "a")[1]["error"]["code"] == "output-lost"


def test_a_full_disk_stops_the_run_when_nothing_can_start_and_a_resume_finishes_it(place: Place, small: Path) -> None:
    """Exit 130; after making room the rest runs, and what has run does not run again."""
    text = "resile: 1\nsteps:\n- {id: a, shell: head -c 600000 /dev/zero; echo a >> effects}\n"
    text += "".join(f"- {{id: s{number}, shell: 'echo s{number} >> effects'}}\n" for number in range(60))
    code, document = place.run(text, "--output", str(small / "out"))
    assert (code, document["error"]["code"]) == (130, "disk-full")
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    code, document = place.call("resume", "1")
    assert (code, document["status"], document["routes"]) == (0, "completed", [])
    assert place.text("effects").split() == ["a", *(f"s{number}" for number in range(60))]


def test_a_full_disk_under_the_database_stops_the_run_and_a_resume_finishes_it(place: Place, small: Path) -> None:
    """Exit 130, and the message says that what was recorded is safe; no step of 200 runs twice, and none is lost."""
    place.env["RESILE_DB"] = str(small / "r.db")
    names = [f"s{number}" for number in range(200)]
    text = "resile: 1\nsteps:\n" + "".join(f"- {{id: {name}, shell: echo {name} >> effects}}\n" for name in names)
    code, document = place.run(text, "--output", "out")
    assert (code, document["error"]["code"]) == (130, "store-full")
    assert document["error"]["message"] == (f"no room is left for {small / 'r.db'}; everything recorded before is safe")
    assert place.call("status", "1")[1]["status"] == "interrupted"
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    code, document = place.call("resume", "1")
    assert (code, document["status"], document["routes"]) == (0, "completed", [])
    assert sorted(place.text("effects").split()) == sorted(names)
