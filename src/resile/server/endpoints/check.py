"""Checks a workflow file; nothing runs."""

from __future__ import annotations

import tempfile
from typing import Annotated

from msgspec import Meta, Struct

from resile.commands.load import CompileOptions
from resile.commands.service.submit import check_text
from resile.server.answers import CheckedText
from resile.server.declarations import Answer, Request, Route


class CheckBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A workflow as text, with the files that it takes in."""

    text: str
    file: Annotated[str, Meta(min_length=1, max_length=255)] = "workflow.yaml"
    files: dict[str, str] = {}
    dialect: str = ""
    profile: str = ""


def check(request: Request) -> CheckedText:
    """Compile a workflow, and say what is wrong with it."""
    body: CheckBody = request.body
    with tempfile.TemporaryDirectory(prefix="resile-check-") as folder:
        found = check_text(body.text, body.file, body.files, CompileOptions(body.dialect, body.profile), folder)
    return CheckedText(found.dialect, found.why, found.steps, found.diagnostics)


ROUTES = (
    Route(
        method="POST",
        path="/check",
        handler=check,
        about="Check a workflow; nothing runs",
        body=CheckBody,
        answers={200: Answer("What was found", CheckedText)},
    ),
)
