"""Fixtures of the fan-out's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.ladder.flows import Flows


@pytest.fixture
def flows(tmp_path: Path) -> Flows:
    """Workflows in an empty folder."""
    return Flows(tmp_path)
