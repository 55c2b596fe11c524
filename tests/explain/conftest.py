"""Fixtures of the tests of explanations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.explain_fixture import ExplainFlows


@pytest.fixture
def flows(tmp_path: Path) -> ExplainFlows:
    """Workflows in an empty folder."""
    return ExplainFlows(tmp_path)
