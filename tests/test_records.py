"""Records that pass between the parts can't be changed by the part that gets one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from msgspec import Struct

import resile

PACKAGE = Path(resile.__file__).parent
# The state that the core folds, and what its one owner builds up step by step.
CHANGED = {
    "core": {"Block", "Blocks", "Fan", "Job", "Pattern", "Queue", "Redrive", "Scope", "State", "Kept"},
    "store": {"Batch"},
    "engine": {"Offer", "Opening", "Statistics"},
    "executors/functions": {"Done", "Setting"},
    "executors/local": {"SpooledAttempt"},
}


@pytest.mark.parametrize("folder", CHANGED)
def test_records_are_frozen(folder: str) -> None:
    """Every record is frozen, except for the few that one part owns."""
    names = [file.relative_to(PACKAGE.parent).with_suffix("").parts for file in (PACKAGE / folder).rglob("*.py")]
    modules = [import_module(".".join(parts)) for parts in names if parts[-1] != "__init__"]
    records = {
        record
        for module in modules
        for record in vars(module).values()
        if isinstance(record, type) and issubclass(record, Struct) and record.__module__ == module.__name__
    }
    assert {record.__name__ for record in records if not record.__struct_config__.frozen} == CHANGED[folder]
