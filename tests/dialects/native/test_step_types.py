"""The registry of step types: the model, the native file and the engine know the same ones."""

from __future__ import annotations

from typing import get_args

from resile.dialects.native.step_types.registry import BY_KEY, BY_STRUCT, STEP_TYPES
from resile.engine.actions.registry import prepare_of
from resile.model.workflow import Action


def test_every_action_of_the_model_is_a_step_type() -> None:
    """The union of actions and the registry have the same Structs, each once."""
    assert BY_STRUCT.keys() == set(get_args(Action))
    assert len(STEP_TYPES) == len(BY_STRUCT)


def test_the_engine_prepares_every_step_type() -> None:
    """The engine finds a module for each Struct, and that module prepares attempts."""
    assert all(callable(prepare_of(struct)) for struct in BY_STRUCT)


def test_the_keys_of_step_types_are_the_actions_of_a_step() -> None:
    """A step type is known by the key that the native file has for it, which is the tag of its Struct."""
    assert {row.key.name for row in STEP_TYPES} == set(BY_KEY) - {"claude"}
    assert all(row.struct.__struct_config__.tag == row.key.name for row in STEP_TYPES)
