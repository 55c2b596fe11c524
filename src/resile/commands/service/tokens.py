"""Makes, lists and revokes the tokens of a server.

A secret is shown once, when the token is made; the store keeps only its hash.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Literal, get_args

from resile.commands.documents.base import optional_timestamp
from resile.commands.documents.tokens import NewToken, TokenDocument
from resile.errors import ResileError
from resile.store.server_tables import ServerTables, Token

Role = Literal["viewer", "operator", "worker", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
SECRET_BYTES = 32
NAME_CHARACTERS_MAX = 100


def digest_of(secret: str) -> str:
    """The hash under which a token is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(tables: ServerTables, name: str, role: str, expires_seconds: float | None) -> NewToken:
    """Make a token with a secret of 256 bits from the system."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable() or any(c.isspace() or c == "/" for c in name):
        hint = f"1 to {NAME_CHARACTERS_MAX} printable characters without spaces and slashes, such as ci-runner"
        raise ResileError("bad-token-name", f"{name[:40]!r} can't be the name of a token", hint=hint)
    secret, now = secrets.token_urlsafe(SECRET_BYTES), time.time()
    expires = None if expires_seconds is None else now + expires_seconds
    tables.add_token(Token(name, role, digest_of(secret), now, expires))
    return NewToken(name, role, optional_timestamp(expires), secret)


def list_tokens(tables: ServerTables) -> list[TokenDocument]:
    """The tokens by name, expired ones too."""
    return [TokenDocument(one.name, one.role, optional_timestamp(one.expires_at)) for one in tables.tokens()]


def revoke_token(tables: ServerTables, name: str) -> None:
    """Remove a token; servers refuse it within five seconds."""
    if not tables.revoke_token(name):
        raise ResileError("no-such-token", f"there is no token {name[:40]!r}", hint="`resile token ls` lists them")
