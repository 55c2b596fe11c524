"""The errors of a store, named for what happened."""

from __future__ import annotations

from resile.errors import StoreError as StoreError


class LeaseHeld(StoreError):
    """Another engine drives this run."""


class StoreFull(StoreError):
    """The disk is full; the run can be resumed once there is room."""


class StoreTooNew(StoreError):
    """The database was written by a newer version of Resile."""


class StoreMissing(StoreError):
    """There is no database to read."""
