"""Problem documents (RFC 9457): every refusal of the API has one, with a `code` that never changes.

    raise Problem("not_parked", "job 3 is completed")       an endpoint refuses
    ResileError("no-such-run", ...)                         a command refuses: `problem_of` finds its code and status

`STATUSES` is the table of codes. A code of a command that is not in it is a 422: the call can't be carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from resile.errors import Diagnostic, ResileError, StoreError

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:resile:problem:"

TITLES = {
    400: "The request is malformed",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "The path has no such method",
    409: "The state of the object does not allow it",
    410: "It is gone",
    413: "The body is too large",
    415: "The content type is wrong",
    416: "The range is not in the output",
    421: "The request is for another host",
    422: "The request can't be carried out",
    429: "Too many wrong tokens",
    500: "The server failed",
    503: "The server can't do it now",
}
STATUSES: dict[str, int] = {
    "malformed_json": 400,
    "malformed_request": 400,
    "max_retries_missing": 400,
    "token_missing": 401,
    "token_unknown": 401,
    "role_too_low": 403,
    "foreign_origin": 403,
    "no_such_path": 404,
    "no_such_run": 404,
    "no_such_job": 404,
    "job_not_found": 404,
    "no_such_step": 404,
    "no_such_attempt": 404,
    "no_such_letter": 404,
    "no_such_map": 404,
    "no_such_token": 404,
    "no_such_user_data": 404,
    "no_such_worker": 404,
    "no_such_failure_handler": 404,
    "method_not_allowed": 405,
    "run_ended": 409,
    "run_active": 409,
    "run_not_ended": 409,
    "not_parked": 409,
    "key_in_use": 409,
    "run_id_stale": 409,
    "token_exists": 409,
    "idempotency_key_in_use": 409,
    "secret_shown_once": 409,
    "redrive_unfinished": 409,
    "output_lost": 410,
    "body_too_large": 413,
    "wrong_content_type": 415,
    "range_not_satisfiable": 416,
    "foreign_host": 421,
    "invalid_field": 422,
    "invalid_workflow": 422,
    "idempotency_key_reused": 422,
    "job_not_retryable": 422,
    "shared_output_not_seen": 422,
    "retries_exhausted": 422,
    "too_many_wrong_tokens": 429,
    "internal_error": 500,
    "stopping": 503,
    "no_answer": 503,
    "store_unavailable": 503,
}
# Codes of commands that have another name here.
_RENAMED = {
    "judged_already": "not_parked",
    "lease_held": "run_active",
    "lease_lost": "run_active",
    "run_unfinished": "run_active",
    "run_driven": "run_active",
}


class FileProblem(Struct, frozen=True):
    """A finding in a workflow file; `code` is that of `resile check`."""

    file: str
    line: int
    column: int
    code: str
    message: str
    hint: str


class ProblemDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused; `errors` are the findings in a workflow file.

    `command_code` is the code of the command line, where that is another word.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    errors: list[FileProblem] = []
    command_code: str = ""


class Problem(Exception):
    """A request is refused."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        hint: str = "",
        errors: Sequence[FileProblem] = (),
        headers: Mapping[str, str] = {},
        command_code: str = "",
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = STATUSES.get(code, 422)
        self.detail = detail
        self.hint = hint
        self.errors = errors
        self.headers = headers
        self.command_code = command_code

    @property
    def document(self) -> ProblemDocument:
        """The problem as JSON."""
        return ProblemDocument(
            type=_TYPE + self.code,
            title=TITLES[self.status],
            status=self.status,
            detail=self.detail,
            code=self.code,
            hint=self.hint,
            errors=list(self.errors),
            command_code=self.command_code,
        )


def problem_of(error: ResileError) -> Problem:
    """The problem for a command's error; it hides the internals of a failed store."""
    code = error.code.replace("-", "_")
    command_code = error.code if code in _RENAMED else ""
    code = _RENAMED.get(code, code)
    if isinstance(error, StoreError) and code not in STATUSES:
        return Problem("store_unavailable", "the database can't be used now", hint="the server's log says why")
    if error.diagnostics:
        return Problem("invalid_workflow", error.message, hint=error.hint, errors=file_problems(error.diagnostics))
    return Problem(code, error.message, hint=error.hint, command_code=command_code)


def file_problems(findings: Sequence[Diagnostic]) -> list[FileProblem]:
    """The errors among the findings in a file."""
    return [
        FileProblem(found.file, found.line, found.column, found.code, found.message, found.hint)
        for found in findings
        if found.severity == "error"
    ]
