"""Each rule of a schema, with values that just meet it and values that just do not."""

from __future__ import annotations

from typing import Any

import pytest

from resile.engine.evaluation.schemas import unmet

NUMBERS = {"anyOf": [{"minimum": 3}, {"maximum": 1}]}
MEMBERS = {"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, 1),
        ({}, None),
        ({"type": "string", "nullable": True}, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 2.5),
        ({"type": "boolean"}, False),
        ({"enum": [1, "x"]}, "x"),
        ({"const": 0}, 0),
        ({"minimum": 3, "maximum": 3}, 3),
        ({"minimum": 3}, True),
        ({"maximum": 0}, True),
        ({"minLength": 2, "maxLength": 2}, "ab"),
        ({"minItems": 1, "maxItems": 1}, [1]),
        ({"minLength": 9, "maxLength": 0}, [1]),
        ({"pattern": "^a+$"}, "aa"),
        ({"pattern": "^a+$"}, 7),
        (MEMBERS, {"a": "x"}),
        ({"required": ["a"]}, "no object"),
        ({"additionalProperties": {"type": "string"}}, {"b": "x"}),
        ({"items": {"type": "string"}}, ["x", "y"]),
        ({"allOf": [{"minimum": 1}, {"maximum": 1}]}, 1),
        (NUMBERS, 3),
        ({"anyOf": [{}, {}]}, 1),
        ({"oneOf": [{"minimum": 3}, {"maximum": 1}]}, 1),
    ],
)
def test_a_value_that_meets_its_schema(schema: Any, value: Any) -> None:
    """There is nothing to say about it."""
    assert unmet(schema, value) == ""


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (False, 1, "is not allowed"),
        ({"type": "string"}, None, "is None, not string"),
        ({"type": ["string", "null"]}, 1, "is 1, not string or null"),
        ({"type": "integer"}, 2.5, "is 2.5, not integer"),
        ({"type": "number"}, True, "is True, not number"),
        ({"type": "string"}, [0] * 30, f"is {str([0] * 30)[:60]}, not string"),
        ({"enum": [1, "x"]}, 2, "is 2, not one of 1, 'x'"),
        ({"const": 0}, 1, "is 1, not 0"),
        ({"minimum": 3}, 2, "is less than 3"),
        ({"maximum": 3}, 4, "is more than 3"),
        ({"minLength": 2}, "a", "is shorter than 2"),
        ({"maxLength": 2}, "abc", "is longer than 2"),
        ({"minItems": 1}, [], "is shorter than 1"),
        ({"maxItems": 1}, [1, 2], "is longer than 1"),
        ({"pattern": "^a+$"}, "b", "does not match ^a+$"),
        ({"pattern": r"^(a)\1$"}, "ab", r"does not match ^(a)\1$"),
        (MEMBERS, {}, "has no `a`"),
        (MEMBERS, {"a": 1}, ".a is 1, not string"),
        (MEMBERS, {"a": "x", "b": 1}, "has a field `b` that is not allowed"),
        ({"additionalProperties": {"type": "string"}}, {"b": 1}, ".b is 1, not string"),
        ({"items": {"type": "string"}}, ["x", 1], "[1] is 1, not string"),
        ({"allOf": [{}, {"maximum": 1}]}, 2, "is more than 1"),
        (NUMBERS, 2, "meets 0 of the schemas in anyOf"),
        ({"oneOf": [{"minimum": 3}, {"maximum": 1}]}, 2, "meets 0 of the schemas in oneOf"),
        ({"oneOf": [{}, {}]}, 2, "meets 2 of the schemas in oneOf"),
    ],
)
def test_a_value_that_does_not_meet_its_schema(schema: Any, value: Any, problem: str) -> None:
    """The message says where and why."""
    assert unmet(schema, value).removeprefix("the value").removeprefix(" ") == problem
