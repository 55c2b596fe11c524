"""The commands of `Client` about tokens, which give callers the right to use a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resile.commands.documents import tokens as token_documents
    from resile.commands.store_handle import StoreHandle


class TokenCommands:
    """The commands on one store."""

    _stores: StoreHandle

    def create_token(self, name: str, role: str, expires_seconds: float | None) -> token_documents.NewTokenDocument:
        """Make a token for servers of this store."""
        from resile.commands.documents.tokens import NewTokenDocument
        from resile.commands.service.tokens import create_token

        made = create_token(self._stores.create().server_tables(), name, role, expires_seconds)
        return NewTokenDocument(made.name, made.role, made.expires_at, made.secret)

    def tokens(self) -> token_documents.TokenList:
        """List the tokens."""
        from resile.commands.documents.tokens import TokenList
        from resile.commands.service.tokens import list_tokens

        return TokenList(tokens=list_tokens(self._stores.read().server_tables()) if self._stores.exists() else [])

    def revoke_token(self, name: str) -> token_documents.RevokedToken:
        """Revoke a token."""
        from resile.commands.documents.tokens import RevokedToken
        from resile.commands.service.tokens import revoke_token

        revoke_token(self._stores.write().server_tables(), name)
        return RevokedToken(name=name)
