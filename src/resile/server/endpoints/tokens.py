"""The tokens of the server."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from resile.commands.documents.tokens import NewToken, TokenDocument
from resile.commands.service.tokens import Role, create_token, list_tokens, revoke_token
from resile.dialects.reading.durations import duration_seconds
from resile.server.declarations import Answer, Items, Page, Reply, Request, Route
from resile.server.problems import Problem
from resile.server.requests.reading import page_of


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make; `expires` is a duration such as 30d, and without it the token does not expire."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    role: Role
    expires: str = ""


def list_all(request: Request) -> Items[TokenDocument]:
    """The tokens by name."""
    return page_of(list_tokens(request.tables), request.query)


def create(request: Request) -> NewToken:
    """Make a token."""
    body: TokenBody = request.body
    try:
        expires = duration_seconds(body.expires) if body.expires else None
    except ValueError as error:
        raise Problem("invalid_field", f"body: `expires` {error}", hint="such as 30d") from error
    made = create_token(request.tables, body.name, body.role, expires)
    request.server.tokens.load(request.tables)
    return made


def revoke(request: Request) -> Reply:
    """Revoke a token."""
    revoke_token(request.tables, request.path["name"])
    request.server.tokens.load(request.tables)
    return Reply(None, 204)


ROUTES = (
    Route(
        method="GET",
        path="/tokens",
        handler=list_all,
        about="List the tokens",
        role="admin",
        query=Page,
        answers={200: Answer("The tokens", Items[TokenDocument])},
    ),
    Route(
        method="POST",
        path="/tokens",
        handler=create,
        about="Make a token; its secret is shown once",
        role="admin",
        runs="write",
        body=TokenBody,
        answers={201: Answer("The token", NewToken)},
        problems=("token_exists", "secret_shown_once"),
        shows_secret=True,
    ),
    Route(
        method="DELETE",
        path="/tokens/{name}",
        handler=revoke,
        about="Revoke a token",
        role="admin",
        runs="write",
        texts=("name",),
        answers={204: Answer("It no longer counts")},
        problems=("no_such_token",),
    ),
)
