"""Names in code that nothing provides: found word by word, without texts, patterns and numbers."""

from __future__ import annotations

import pytest

from resile.dialects.reading.code_names import NATIVE_NAMES, unknown_names


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("Array(9e9).length > 0xff + 1.5e3 + 10n", []),
        ("/^(a+)+$/.test(output)", []),
        ("output.match(/b c/) || /d/i.test(output)", []),
        ("outptu > 4 / attempt / loops", ["outptu", "loops"]),
        ("output.e9 === e9", ["e9"]),
    ],
)
def test_unknown_names(code: str, expected: list[str]) -> None:
    """Only what is a name in JavaScript counts, each once."""
    assert [name for name, _ in unknown_names(code, frozenset(), NATIVE_NAMES)] == expected
