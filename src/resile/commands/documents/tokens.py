"""Tokens of a server, without their secrets but for a new one."""

from __future__ import annotations

from msgspec import Struct

from resile.commands.documents.base import Document


class TokenDocument(Struct, frozen=True):
    """A token; `expires_at` is null for one that does not expire."""

    name: str
    role: str
    expires_at: str | None


class TokenList(Document, frozen=True, kw_only=True):
    """The tokens by name."""

    tokens: list[TokenDocument]


class NewToken(TokenDocument, frozen=True):
    """A token that was made now; its secret is shown once."""

    secret: str


class NewTokenDocument(NewToken, frozen=True):
    """A new token as a document."""

    version: int = 1


class RevokedToken(Document, frozen=True, kw_only=True):
    """A token that no longer counts."""

    name: str
