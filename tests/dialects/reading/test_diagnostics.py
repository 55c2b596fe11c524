"""The hints of findings."""

from __future__ import annotations

import pytest

from resile.dialects.reading.diagnostics import did_you_mean


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("max_dealy", "did you mean `max_delay`?"),
        ("max", "did you mean `max_delay`?"),
        ("ma", "keys: `type`, `initial`, `max_delay`"),
    ],
)
def test_hint_for_an_unknown_key(word: str, hint: str) -> None:
    """It names the key that is spelled alike or begins with the word; without one it lists the keys."""
    assert did_you_mean(word, ["type", "initial", "max_delay"], "keys") == hint
