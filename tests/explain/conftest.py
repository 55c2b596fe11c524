"""Fixtures of the tests of what is told about runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.explain_fixture import Telling


@pytest.fixture
def telling(tmp_path: Path) -> Telling:
    """Workflows in an empty folder."""
    return Telling(tmp_path)
