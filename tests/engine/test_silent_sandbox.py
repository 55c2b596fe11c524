"""A sandbox that gets no time to run: the run stops, undecided, and the next engine asks again."""

from __future__ import annotations

from pathlib import Path

import pytest

import resile
from resile.languages.javascript import limits
from resile.languages.javascript.helper import Helper, HelperSilent
from resile.languages.javascript.helpers import SandboxSilent

FLOW = """
resile: 1
steps:
  a: {shell: echo a >> effects}
  b: {shell: echo b >> effects, needs: [a], when: "1 + 1 === 2"}
  c: {shell: sleep 0.5; echo c >> effects}
"""


def test_a_condition_without_an_answer_is_asked_again_by_the_next_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running steps finish first; the step waits, neither skipped nor run, for a resume that gets the answer."""
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    flow, db = resile.load("flow.yaml"), str(tmp_path / "r.db")

    def stay_silent(_helper: Helper, _request: bytes) -> bytes:
        raise HelperSilent("does not answer")

    with monkeypatch.context() as starved:
        starved.setattr(Helper, "ask", stay_silent)
        starved.setattr(limits, "SILENCES_MAX", 1)
        with pytest.raises(SandboxSilent, match="does not answer, 1 times"):
            resile.run(flow, db=db, max_parallel=2)
    assert Path("effects").read_text() == "a\nc\n"
    assert resile.resume(1, db=db).status == "completed"
    assert Path("effects").read_text() == "a\nc\nb\n"
