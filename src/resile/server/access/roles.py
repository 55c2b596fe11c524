"""Roles: viewer reads, operator also acts, admin may do everything; worker may call only the paths of workers."""

from __future__ import annotations

from msgspec import Struct

from resile.commands.service.tokens import Role

_INCLUDED_IN: dict[Role, frozenset[str]] = {
    "viewer": frozenset({"viewer", "operator", "admin"}),
    "operator": frozenset({"operator", "admin"}),
    "worker": frozenset({"worker", "admin"}),
    "admin": frozenset({"admin"}),
}


class Identity(Struct, frozen=True):
    """The caller: the name of a token, or the local user of a server without tokens."""

    name: str
    role: Role
    run: int | None = None
    """The run if the caller is a step.

    A step has no role: it may call only the routes for steps, and only for its own run.
    """

    def may(self, role: Role) -> bool:
        """Does the role of the caller include this one?"""
        return self.run is None and self.role in _INCLUDED_IN[role]
