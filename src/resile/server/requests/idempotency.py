"""Idempotency keys: the same POST with the same key is carried out once, and answered alike for 24 hours.

    begin   -> the answer of before | at work: 409 | other content: 422 | a Ticket: carry it out
    finish  -> keeps the answer              release -> it could not be answered, the same call may come again

While a call is at work its server holds the key. If that server is gone, or could not answer, the next server that gets
the same call carries it out. Runs and requests keep the name of the ticket, so the next server finds what the first one
did, and does not do it twice.

Keys belong to the token that sends them. An answer with a secret is kept in this process only, never in the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from resile.errors import StoreError
from resile.server.problems import Problem
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.server.declarations import Request

KEY_CHARACTERS_MAX = 255
RENEW_SECONDS = 5.0


class Ticket(msgspec.Struct, frozen=True):
    """A call that this server carries out; `is_repeated` if a server that is gone may have done so before.

    `name` is unique to the call: another call with the same key, on another day, has another name.
    """

    key: str
    name: str
    is_repeated: bool = False


class Remembered(msgspec.Struct, frozen=True):
    """An answer that was given."""

    status: int
    headers: dict[str, str]
    body: bytes


_secrets_shown: dict[str, Remembered] = {}
SECRETS_KEPT_MAX = 100


async def begin(request: Request, key: str, content: bytes) -> Remembered | Ticket:
    """The answer that an earlier request with this key got, or a ticket for this request."""
    if not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isprintable():
        raise Problem("invalid_field", f"`Idempotency-Key` has 1 to {KEY_CHARACTERS_MAX} printable characters")
    name = f"{request.identity.name}:{key}"
    digest = hashlib.sha256(content).hexdigest()
    at = time.time()
    known = await request.server.stores.write(
        lambda connection: connection.tables.begin_call(name, digest, at, boot_seconds())
    )
    if known is None:
        # The key is new or older than a day: a secret that is kept for it belongs to another call.
        _secrets_shown.pop(name, None)
        return Ticket(name, call_name(name, at))
    if known.digest != digest:
        raise Problem("idempotency_key_reused", "the key was used for another request", hint="use a new key")
    if known.is_orphaned:
        _secrets_shown.pop(name, None)
        return Ticket(name, call_name(name, known.at), is_repeated=True)
    if known.answer is None:
        raise Problem("idempotency_key_in_use", "the first request with this key is still at work")
    if name in _secrets_shown:
        return _secrets_shown[name]
    if not known.answer:
        raise Problem("secret_shown_once", "the answer had a secret, which is shown once", hint="make another one")
    return msgspec.json.decode(known.answer, type=Remembered)


def call_name(key: str, at: float) -> str:
    """The name of the call that has had this key since `at`."""
    return f"call-{hashlib.sha256(f'{at!r} {key}'.encode()).hexdigest()}"


async def hold(request: Request, ticket: Ticket) -> None:
    """Renew the key while the call is at work, until this task is canceled."""
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with suppress(StoreError):
            await request.server.stores.write(
                lambda connection: connection.tables.renew_call(ticket.key, boot_seconds())
            )


async def finish(request: Request, name: str, answer: Remembered, shows_secret: bool) -> None:
    """Keep the answer of a request."""
    kept = msgspec.json.encode(answer)
    if shows_secret and answer.status < 400:
        _secrets_shown[name] = answer
        if len(_secrets_shown) > SECRETS_KEPT_MAX:
            del _secrets_shown[next(iter(_secrets_shown))]
        kept = b""
    await request.server.stores.write(lambda connection: connection.tables.finish_call(name, kept))


async def release(request: Request, name: str) -> None:
    """Free the key of a request that could not be answered, so that a repetition may carry it out."""
    await request.server.stores.write(lambda connection: connection.tables.release_call(name))
