"""Which process is at work on a call with an idempotency key: a lease, as for runs, in a text. Shared by all stores."""

from __future__ import annotations

import msgspec

from resile.store import lease as leases
from resile.store.contract import Lease
from resile.store.server_tables import CALL_LEASE_SECONDS, Call


def holder_text(now: float) -> str:
    """This process, from now on."""
    return msgspec.json.encode(leases.take(0, now, CALL_LEASE_SECONDS)).decode()


def call_of(digest: str, answer: bytes | None, at: float, holder: str, now: float) -> Call:
    """A call as its row says; without an answer, and with a holder that is gone, it is orphaned.

    A row without a holder comes from a version that did not note one: no server that wrote it is at work any more.
    """
    lease = msgspec.json.decode(holder, type=Lease) if holder else None
    return Call(digest, answer, at, answer is None and leases.is_free(lease, now))
