"""How often the journal keeps a picture of the whole state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import resile
from resile.core.state import State, encode
from resile.engine import journal

STEPS = 60


def test_large_states_are_kept_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot waits for as many entries as it has jobs, so that all of them cost no more than the log itself."""
    kept: list[int] = []

    def counted(state: State) -> bytes:
        """What `encode` gives, counted."""
        kept.append(state.seq)
        return encode(state)

    monkeypatch.setattr(journal, "encode", counted)
    monkeypatch.setattr(journal, "SNAPSHOT_ENTRIES_MIN", 1)
    file = tmp_path / "flow.yaml"
    file.write_text("resile: 1\nsteps:\n" + "".join(f"  s{number}: {{noop: true}}\n" for number in range(STEPS)))
    run: Any = resile.run(str(file), db=str(tmp_path / "r.db"), output=str(tmp_path / "out"))
    assert run.status == "completed"
    # The last one is that of the end.
    assert 1 <= len(kept) <= 2
    assert kept[-1] == max(kept)
