"""Fixtures of the tests about resources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in an empty folder."""
    return Program(tmp_path)
