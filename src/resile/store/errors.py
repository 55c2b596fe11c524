"""The errors of a store, named for what happened."""

from __future__ import annotations

from resile.errors import StoreError as StoreError


class LeaseHeld(StoreError):
    """Another engine drives this run."""


class StoreFull(StoreError):
    """The disk is full; the run can be resumed once there is room."""


class StoreTooNew(StoreError):
    """The database was written by a newer version of Resile."""


class StoreDamaged(StoreError):
    """The database can't be trusted: pages, rows or events of it are broken or lost."""


class StoreGone(StoreError):
    """The database was deleted or replaced while it was open."""


class KeyInUse(StoreError):
    """Another run has this key."""


class StoreMissing(StoreError):
    """There is no database to read."""


def run_exists(run: int, place: str) -> StoreError:
    """The error for a copy of a run whose number is taken."""
    hint = "copy into an empty database, or leave this run out"
    return StoreError("run-exists", f"there is a run {run} in {place} already", where=place, hint=hint)
