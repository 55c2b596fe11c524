"""Names, in a text, the process that carries out a call with an idempotency key; like the lease of a run.

Shared by stores.
"""

from __future__ import annotations

import msgspec

from resile.store import lease as leases
from resile.store.contract import Lease
from resile.store.server_tables import CALL_LEASE_SECONDS, Call


def holder_text(now: float) -> str:
    """The text for this process, valid from now on."""
    return msgspec.json.encode(leases.take(0, now, CALL_LEASE_SECONDS)).decode()


def call_of(digest: str, answer: bytes | None, at: float, holder: str, now: float) -> Call:
    """The call in a row. It is orphaned if it has no answer and its holder is gone.

    An older version wrote no holder: a server that wrote such a row no longer works on the call.
    """
    lease = msgspec.json.decode(holder, type=Lease) if holder else None
    return Call(digest, answer, at, answer is None and leases.is_free(lease, now))
