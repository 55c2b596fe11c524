"""Secrets: where their values come from, and how they are redacted from text that leaves a step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from resile.errors import ResileError
from resile.model.failure import Failure, Outcome
from resile.model.nested import workflows_within
from resile.model.workflow import Workflow

LINE_CHARACTERS_MIN = 4
SECRET_BYTES_MAX = 64 * 1024
MASK = "***"


def load_secrets(workflow: Workflow, env: Mapping[str, str]) -> dict[str, str]:
    """The value of each secret that a workflow or one inside it declares; all steps of the run get them.

    A missing secret is an error before anything runs, and so are two secrets of one name with different values.
    """
    values: dict[str, str] = {}
    for one in workflows_within(workflow):
        for name, value in _own_secrets(one, env).items():
            if values.setdefault(name, value) != value:
                raise ResileError(
                    "secret-conflict",
                    f"secret {name!r} has another value here than in the workflow that calls this one or beside it",
                    where=one.file,
                    hint="all steps of a run have the same secrets: give one of the two another name",
                )
    return values


def _own_secrets(workflow: Workflow, env: Mapping[str, str]) -> dict[str, str]:
    """The value of each secret that one workflow declares; files lie beside it."""
    values: dict[str, str] = {}
    for name, secret in workflow.secrets.items():
        if secret.file:
            values[name] = _from_file(name, os.path.join(workflow.folder, secret.file))
        elif (secret.env or name) in env:
            values[name] = env[secret.env or name]
        else:
            raise ResileError(
                "secret-missing",
                f"secret {name!r} is not in the environment (variable {secret.env or name})",
                where=workflow.file,
                hint=f"export {secret.env or name}=… before the run",
            )
    return values


def _from_file(name: str, path: str) -> str:
    """A secret from a file, without its last newline."""
    try:
        with open(path, "rb") as file:
            data = file.read(SECRET_BYTES_MAX + 2)
    except OSError as error:
        raise ResileError("secret-missing", f"secret {name!r}: {path}: {error.strerror}") from error
    if len(data) > SECRET_BYTES_MAX:
        raise ResileError("secret-too-large", f"secret {name!r}: {path} has more than {SECRET_BYTES_MAX} bytes")
    return data.decode("utf-8", "surrogateescape").removesuffix("\n")


def redaction_patterns(values: Mapping[str, str]) -> tuple[str, ...]:
    """The texts to redact: each value, each of its longer lines, and the escaped forms of both.

    Longest first, so that replacing a part never hides the whole.
    """
    found: set[str] = set()
    for value in values.values():
        lines = [line for line in value.splitlines() if len(line) >= LINE_CHARACTERS_MIN]
        for text in (value, *lines) if value.strip() else lines:
            found |= {text, *_escaped_forms_of(text)}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _escaped_forms_of(text: str) -> set[str]:
    """A text as JSON, Python, a shell's trace and URLs write it, with and without escapes for non-ASCII characters."""
    if text.isascii() and text.isalnum():
        return set()
    import json
    from urllib.parse import quote

    raw = text.encode("utf-8", "surrogateescape")
    # With a double quote in the text, repr() also escapes the single quotes.
    python = {repr(f'"{text}')[2:-1], ascii(f'"{text}')[2:-1], repr(b'"' + raw)[3:-1]}
    unescaped = {form.replace("\\'", "'") for form in python}
    return {
        *python,
        *unescaped,
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        text.replace("'", "'\\''"),
        quote(raw, safe=""),
    }


def redact_value(value: Any, secrets: tuple[str, ...]) -> Any:
    """A captured value with every secret in its texts replaced."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list):
        return [redact_value(item, secrets) for item in value]
    if isinstance(value, dict):
        return {redact(key, secrets): redact_value(item, secrets) for key, item in value.items()}
    return value


def redact_outcome(outcome: Outcome, secrets: tuple[str, ...]) -> Outcome:
    """An outcome with every secret in its values and in its failure replaced."""
    if not secrets:
        return outcome
    failure = outcome.failure
    return replace(
        outcome,
        values=redact_value(outcome.values, secrets),
        memory=redact_value(outcome.memory, secrets),
        failure=None if failure is None else redact_failure(failure, secrets),
    )


def redact_failure(failure: Failure, secrets: tuple[str, ...]) -> Failure:
    """A failure with every secret in its texts replaced."""
    return replace(
        failure,
        message=redact(failure.message, secrets),
        stdout=redact(failure.stdout, secrets),
        stderr=redact(failure.stderr, secrets),
        signature=redact(failure.signature, secrets),
    )


def refuse_secret_inputs(inputs: Mapping[str, Any], values: Mapping[str, str]) -> None:
    """Refuse an input that holds a secret: inputs are stored with the run."""
    hidden = redaction_patterns(values)
    for name, value in inputs.items():
        if redact_value(value, hidden) != value:
            raise ResileError(
                "secret-input",
                f"input {name!r} holds the value of a secret, and inputs are stored",
                hint="steps have each secret in their environment: use it from there",
            )


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """The text with every secret replaced."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    return text
