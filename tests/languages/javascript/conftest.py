"""A sandbox for each module: attacks must leave it working for the tests after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from resile.languages.javascript.evaluate import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox whose helper has started."""
    box = Sandbox()
    assert box.check_syntax("1", "expression") is None
    yield box
    box.close()
