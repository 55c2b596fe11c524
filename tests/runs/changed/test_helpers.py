"""Steps that ran for another one, by its rules or after its success: what they depend on, it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.changed.place import Place

SCRIPT = "cat source > made"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder with a file that helpers read."""
    monkeypatch.chdir(tmp_path)
    Path("source").write_text("one")
    return Place()


def failing(name: str, **on_failure: Any) -> dict[str, Any]:
    """A step that passes once a helper has made a file."""
    return {"shell": f"test -e {name}", "on_failure": on_failure}


STEPS: dict[str, Any] = {
    "named": failing("made", run="helper", retry=2),
    "coded": failing("coded", run_js="['coder']", retry=2),
    "inline": failing("inline", shell="touch inline ${env.MODE}", max_attempts=2),
    "after": {"shell": "echo a", "on_success": {"run": "second"}},
    "spared": {"shell": "echo b", "on_failure": {"run": "idle", "retry": 2}},
    "below": {"shell": "echo c", "needs": "named"},
    "helper": {"shell": SCRIPT, "reads": ["source"]},
    "coder": {"shell": "touch coded && echo ${env.MODE}"},
    "second": {"shell": "cat source > copied", "reads": ["source"], "outputs": ["copied"]},
    "idle": {"shell": "echo idle", "reads": ["source"]},
}


def write(place: Place, **changed: dict[str, Any]) -> None:
    """Write the workflow with changes of some steps."""
    place.write({"steps": {**STEPS, **{name: {**STEPS[name], **keys} for name, keys in changed.items()}}})


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch) -> int:
    """A run in which all helpers ran but `idle`, of which nothing has changed."""
    monkeypatch.setenv("MODE", "fast")
    write(place)
    document = place.run()
    assert document.status == "completed"
    assert place.changes(document.run) == {}
    return document.run


def test_what_helpers_read(place: Place, run: int) -> None:
    """A file of a helper that ran is a file of the step for which it ran."""
    Path("source").write_text("two")
    assert place.changes(run) == {"named": "reads", "after": "reads", "below": "needs"}
    again = place.rerun(run)
    assert again is not None
    assert again.status == "completed"
    # The file that it tests is still there, so this time `named` passes without its helper.
    Path("source").write_text("three")
    assert place.changes(run) == {"after": "reads"}


def test_what_helpers_run(place: Place, run: int) -> None:
    """Another command of a helper is a change, if it ran."""
    write(place, helper={"shell": "cp source made"})
    assert place.changes(run) == {"named": "command", "below": "needs"}
    write(place, coder={"shell": "touch coded"})
    assert place.changes(run) == {"coded": "command"}
    write(place, inline={"on_failure": {"shell": "touch inline more", "max_attempts": 2}})
    assert place.changes(run) == {"inline": "command"}
    write(place, idle={"shell": "echo other"})
    assert place.changes(run) == {}


def test_what_helpers_write(place: Place, run: int) -> None:
    """A missing output of a helper is one of the step."""
    Path("copied").unlink()
    assert place.changes(run) == {"after": "outputs"}


def test_variables_of_helpers(place: Place, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that a helper names counts."""
    monkeypatch.setenv("MODE", "slow")
    assert place.changes(run) == {"coded": "command", "inline": "command"}


def test_helpers_are_known_in_a_run_that_took_the_step_over(
    place: Place, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next `run --cached` compares what the helpers of the first run did."""
    second = place.run(cached=True)
    assert {job.step for job in second.jobs if job.cached} >= {"named", "coded", "inline", "after"}
    assert place.cached_changes() == {}
    Path("source").write_text("two")
    monkeypatch.setenv("MODE", "slow")
    expected = {"named": "reads", "coded": "command", "inline": "command", "after": "reads", "below": "needs"}
    assert place.cached_changes() == expected
    assert place.changes(second.run) == expected
    write(place, helper={"shell": "cp source made"})
    assert place.changes(second.run)["named"] == "command"
    assert run != second.run
