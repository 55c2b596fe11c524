"""Files of other systems compile or are refused with the true reason: our own always, others where there are some."""

from __future__ import annotations

import pytest

from tests.dialects.corpus import OURS, folder, score, scores, shown


def test_our_own_files() -> None:
    """Each of our own Prodigy files comes to what its name says."""
    found = score(OURS, "prodigy")
    assert found.wrong == []
    assert [name for name in found.compiled if name.startswith("refused-")] == []
    assert [name for name in found.refused if not name.startswith("refused-")] == []
    assert len(found.compiled) >= 15


@pytest.mark.slow
def test_the_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    """None of the files in $RESILE_CORPUS gives a traceback or a wrong reason."""
    files = folder()
    if files is None:
        pytest.skip("RESILE_CORPUS is not set: it names a folder with a folder of files for each system")
    found = scores(files)
    with capsys.disabled():
        print("\n" + shown(found))
    assert {dialect: each.wrong for dialect, each in found.items() if each.wrong} == {}
