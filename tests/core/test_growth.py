"""What grows with every attempt is in the log once: cut and put together, data is as it was."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from resile.core.growth import add_grown, cut_known
from resile.model.failure import Growth

CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[Growth]]] = [
    ({"a": [1, 2]}, {"a": [1, 2, 3]}, {}, [Growth(("a",), 2, [3])]),
    ({"a": [1, 2]}, {"a": [1, 2]}, {}, [Growth(("a",), 2, [])]),
    ({"a": [1, 2]}, {"a": [1, 9, 3]}, {"a": [1, 9, 3]}, []),
    ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, []),
    ({"a": []}, {"a": [1]}, {"a": [1]}, []),
    ({}, {"a": [1], "b": {"x": 1}}, {"a": [1], "b": {"x": 1}}, []),
    ({"a": [1]}, {"a": {"x": 1}}, {"a": {"x": 1}}, []),
    ({"a": {"x": 1}}, {"a": [1]}, {"a": [1]}, []),
    ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, {}, [Growth(("a",), 1, {"y": 2})]),
    ({"a": {}}, {"a": {"y": 2}}, {"a": {"y": 2}}, []),
    ({"a": {"x": 1, "z": 3}}, {"a": {"x": 1}}, {"a": {"x": 1}}, []),
    ({"a": {"n": 1, "l": [1]}}, {"a": {"n": 2, "l": [1, 2]}}, {"a": {"n": 2}}, [Growth(("a", "l"), 1, [2])]),
    (
        {"a": {"n": 1, "b": {"m": 1, "l": [1]}, "k": [7]}},
        {"a": {"n": 2, "b": {"m": 2, "l": [1, 2]}, "k": [7, 8]}},
        {"a": {"n": 2, "b": {"m": 2}}},
        [Growth(("a", "b", "l"), 1, [2]), Growth(("a", "k"), 1, [8])],
    ),
    ({"a": 1, "gone": [1]}, {"a": 2}, {"a": 2}, []),
]


@pytest.mark.parametrize(("before", "after", "left", "grown"), CASES)
def test_what_only_grew_is_cut_and_comes_back(
    before: dict[str, Any], after: dict[str, Any], left: dict[str, Any], grown: list[Growth]
) -> None:
    """A list with the same beginning, a mapping with the same entries; all else is told whole, and no input changes."""
    given = deepcopy((before, after))
    found = cut_known(before, after)
    assert found == (left, grown)
    kept = deepcopy(found)
    assert add_grown(before, *found) == after
    assert (given, kept) == ((before, after), found)


def test_growth_of_what_is_not_there_is_all_there_is() -> None:
    """A log whose earlier entries are missing, or are of another kind, still gives the entries it has."""
    grown = [Growth(("a", "l"), 2, [3]), Growth(("m",), 1, {"y": 2}), Growth(("s",), 1, [1])]
    assert add_grown({"m": [1], "s": "x"}, {}, grown) == {"a": {"l": [3]}, "m": {"y": 2}, "s": [1]}
    assert add_grown({"a": {"l": [1, 2, 9]}}, {}, grown[:1]) == {"a": {"l": [1, 2, 3]}}
