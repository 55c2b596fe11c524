"""Secrets: where their values come from, and how text is cleaned of them before it leaves a step."""

from __future__ import annotations

import os
from collections.abc import Mapping

from resile.errors import ResileError
from resile.model.workflow import Workflow

LINE_CHARACTERS_MIN = 4
SECRET_BYTES_MAX = 64 * 1024
MASK = "***"


def load_secrets(workflow: Workflow, env: Mapping[str, str]) -> dict[str, str]:
    """The value of each declared secret; one that can't be had is an error before anything runs."""
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
    """A secret kept in a file; its last newline is not part of it."""
    try:
        with open(path, "rb") as file:
            data = file.read(SECRET_BYTES_MAX + 2)
    except OSError as error:
        raise ResileError("secret-missing", f"secret {name!r}: {path}: {error.strerror}") from error
    if len(data) > SECRET_BYTES_MAX:
        raise ResileError("secret-too-large", f"secret {name!r}: {path} has more than {SECRET_BYTES_MAX} bytes")
    return data.decode("utf-8", "surrogateescape").removesuffix("\n")


def needles(values: Mapping[str, str]) -> tuple[str, ...]:
    """What must not appear anywhere: each value, and each of its longer lines; longest first."""
    found: set[str] = set()
    for value in values.values():
        if value.strip():
            found.add(value)
        found.update(line for line in value.splitlines() if len(line) >= LINE_CHARACTERS_MIN)
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """The text with every secret replaced."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    return text
