"""The table of failure kinds: every kind has its row, and no other module spells a kind out."""

from __future__ import annotations

from typing import get_args

from resile.model.failure import FAILURE_KINDS, FailureKind, Kind


def test_every_kind_has_a_row_and_a_name() -> None:
    """The table, the names and the closed set of kinds are the same."""
    names = {value for name, value in vars(Kind).items() if name.isupper()}
    assert list(FAILURE_KINDS) == list(get_args(FailureKind))
    assert names == set(get_args(FailureKind))
