"""`token create|ls|revoke`: who may call a server."""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display.output import Page, answer, escape
from resile.cli.parse import Call, refusal
from resile.commands.documents.tokens import NewTokenDocument, RevokedToken, TokenList


def create(call: Call) -> int:
    """Make a token."""
    if not call.flag("role"):
        raise refusal("`token create` needs --role", "such as --role viewer")
    made = call.client.create_token(call.word("NAME"), call.word("role"), call.duration("expires"))
    return answer(call, made, _new_lines)


def _new_lines(made: NewTokenDocument, _: Page) -> Iterator[str]:
    """The secret, alone on its line."""
    until = f", until {made.expires_at}" if made.expires_at else ""
    yield f"token {escape(made.name)} ({made.role}{until}); its secret is shown only now:"
    yield made.secret


def list_all(call: Call) -> int:
    """List the tokens."""
    return answer(call, call.client.tokens(), _lines)


def _lines(found: TokenList, page: Page) -> list[str]:
    """The tokens as a table."""
    if not found.tokens:
        return ["no tokens; `resile token create NAME --role ROLE` makes one"]
    rows = [[escape(token.name), token.role, token.expires_at or "never"] for token in found.tokens]
    return page.table(rows, ["NAME", "ROLE", "EXPIRES"])


def revoke(call: Call) -> int:
    """Revoke a token."""
    return answer(call, call.client.revoke_token(call.word("NAME")), _revoked_lines)


def _revoked_lines(gone: RevokedToken, _: Page) -> Iterator[str]:
    yield f"token {escape(gone.name)} is revoked"
