"""Tokens of steps: a step that calls `torc` sends one to the server that drives its run.

The server makes such a token from the run's number and a key, and stores nothing for it. The token is valid for the few
routes that are declared for steps, for its own run only, and as long as the server's output folder has the file with
the key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from contextlib import suppress

from resile.errors import ResileError
from resile.model.folders import create_file
from resile.model.workflow import Workflow

KEY_FILE = ".resile-step-key"
KEY_BYTES = 32
_TOKEN = re.compile(r"resile-run-([0-9]{1,18})-([0-9a-f]{64})")


class StepTokens:
    """Makes the tokens of steps, and recognises them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token_for(self, run: int, workflow: Workflow) -> str:
        """The token of the steps of a run; empty if they can't call `torc`."""
        return self.make(run) if workflow.dialect == "torc" else ""

    def make(self, run: int) -> str:
        """The token of a run."""
        return f"resile-run-{run}-{hmac.new(self._key, str(run).encode(), hashlib.sha256).hexdigest()}"

    def run_of(self, secret: str) -> int | None:
        """The run whose steps have this token; None if this server did not make the token."""
        found = _TOKEN.fullmatch(secret)
        if found is None or not hmac.compare_digest(self.make(int(found[1])), secret):
            return None
        return int(found[1])


def open_step_tokens(output: str) -> StepTokens:
    """The tokens of the server with this output folder; the first one makes the key, which only its user can read."""
    path = os.path.join(output, KEY_FILE)
    part = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError):
        return StepTokens(_read(path))
    with create_file(part) as file:
        file.write(os.urandom(KEY_BYTES))
        file.flush()
        # The link fails if another server was faster; then the other server's key counts.
        with suppress(FileExistsError):
            os.link(part, path)
        os.unlink(part)
    return StepTokens(_read(path))


def _read(path: str) -> bytes:
    """The key in a file."""
    with open(path, "rb") as file:
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise ResileError("step-key", f"{path} is no key", where=path, hint="remove it: the server makes another")
    return key
