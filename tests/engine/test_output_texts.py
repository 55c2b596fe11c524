"""Outputs of any size, copied to a file without the whitespace around them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from resile.engine.evaluation.output_texts import copy_trimmed
from resile.model.limits import OUTPUT_PIECE_BYTES
from tests.executors.local.driver import driving

BLANK = f"yes '' | head -c {OUTPUT_PIECE_BYTES + 1}"
LONG = f"yes 0123456 | head -c {OUTPUT_PIECE_BYTES * 2}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("printf ''", b""),
        ("printf ' \\n'", b""),
        ("printf ' a b\\n \\n'", b"a b"),
        (BLANK, b""),
        (f"{BLANK}; printf x; {BLANK}", b"x"),
        (f"{LONG}; printf end", b"0123456\n" * (OUTPUT_PIECE_BYTES // 4) + b"end"),
    ],
)
def test_an_output_is_copied_without_the_whitespace_around_it(tmp_path: Path, command: str, expected: bytes) -> None:
    """Whitespace inside stays; more than a piece of it at either end, or nothing else at all, makes no difference."""
    copied = io.BytesIO()
    with driving(tmp_path, slots=1) as driver:
        log = driver.shell(command).log
        assert log is not None
        copy_trimmed(driver.executor, log, "out", copied)
    assert copied.getvalue() == expected
