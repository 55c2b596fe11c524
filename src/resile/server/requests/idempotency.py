"""Idempotency keys: the same POST with the same key is carried out once, and answered alike for 24 hours.

    begin   -> the answer of before | at work: 409 | other content: 422 | a Ticket: carry it out
    finish  -> keeps the answer              forget -> it was not carried out, the key is free again

Keys belong to the token that sends them. An answer with a secret is kept in this process only, never in the store.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import msgspec

from resile.server.problems import Problem

if TYPE_CHECKING:
    from resile.server.declarations import Request

KEY_CHARACTERS_MAX = 255


class Remembered(msgspec.Struct, frozen=True):
    """An answer that was given."""

    status: int
    headers: dict[str, str]
    body: bytes


_secrets_shown: dict[str, Remembered] = {}
SECRETS_KEPT_MAX = 100


async def begin(request: Request, key: str, content: bytes) -> Remembered | str:
    """The answer that a request with this key got, or the name under which this one begins."""
    if not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isprintable():
        raise Problem("invalid_field", f"`Idempotency-Key` has 1 to {KEY_CHARACTERS_MAX} printable characters")
    name = f"{request.identity.name}:{key}"
    digest = hashlib.sha256(content).hexdigest()
    known = await request.server.stores.write(
        lambda connection: connection.tables.begin_call(name, digest, time.time())
    )
    if known is None:
        return name
    if known.digest != digest:
        raise Problem("idempotency_key_reused", "the key was used for another request", hint="use a new key")
    if known.answer is None:
        raise Problem("idempotency_key_in_use", "the first request with this key is still at work")
    if name in _secrets_shown:
        return _secrets_shown[name]
    if not known.answer:
        raise Problem("secret_shown_once", "the answer had a secret, which is shown once", hint="make another one")
    return msgspec.json.decode(known.answer, type=Remembered)


async def finish(request: Request, name: str, answer: Remembered, shows_secret: bool) -> None:
    """Keep the answer of a request."""
    kept = msgspec.json.encode(answer)
    if shows_secret and answer.status < 400:
        _secrets_shown[name] = answer
        if len(_secrets_shown) > SECRETS_KEPT_MAX:
            del _secrets_shown[next(iter(_secrets_shown))]
        kept = b""
    await request.server.stores.write(lambda connection: connection.tables.finish_call(name, kept))


async def forget(request: Request, name: str) -> None:
    """Free the key of a request that was not carried out."""
    await request.server.stores.write(lambda connection: connection.tables.forget_call(name))
