"""The toolbox of one agent: its rights, its connection, and the acts that differ between a database and a server."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from msgspec import Struct

from resile.commands.client import Client
from resile.store.server_tables import SharedStore

Right = Literal["read", "judge", "run"]
JUDGE_QUOTA = 20


class Acts(Protocol):
    """The acts that start steps: the host of a server carries them out, or separate processes that outlive this one."""

    def ring(self, run: int) -> None:
        """Let a run go on after the judgement of its parked failure."""

    def redrive(self, run: int, condition: str | None) -> dict[str, Any]:
        """Run dead letters again: those that meet a condition, or all."""

    def run_text(self, text: str, dialect: str, inputs: dict[str, Any]) -> int:
        """Start a run of a workflow file; return its number."""

    def cancel(self, run: int, reason: str) -> dict[str, Any]:
        """Cancel a run."""


class Toolbox(Struct, frozen=True):
    """The database, rights and acts for the tools of one agent; `by` is the agent's name in the log."""

    client: Client
    store: SharedStore
    acts: Acts
    by: str
    rights: frozenset[Right] = frozenset(("read",))
    judge_quota: int = JUDGE_QUOTA
