"""Tokens: 256 bits from the system, stored as a SHA-256 hash, compared in constant time.

A token is in the store (`resile token create`), or in the server's `--token-file`. Once one exists, every request needs
one. The server reads the tokens from the store again every few seconds, so that changes by other processes take effect
soon.
"""

from __future__ import annotations

import hmac
import os
import time
from collections import OrderedDict, deque
from collections.abc import Sequence

from resile.commands.service.tokens import ROLES, digest_of
from resile.errors import ResileError
from resile.server.access.roles import Identity
from resile.server.access.step_tokens import StepTokens
from resile.server.problems import Problem
from resile.store.server_tables import ServerTables, Token

RELOAD_SECONDS = 2.0
WRONG_MAX, WRONG_SECONDS = 20, 60.0
ADDRESSES_MAX = 10_000
FILE_BYTES_MAX = 2**20


def read_token_file(path: str) -> list[Token]:
    """The tokens of a server's file: `NAME ROLE SECRET` on each line; empty lines and `#` lines are skipped."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(FILE_BYTES_MAX).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ResileError("token-file", f"--token-file {path} can't be read: {reason}", where=path) from error
    found = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[1] not in ROLES:
            hint = f"NAME ROLE SECRET, where ROLE is one of {', '.join(ROLES)}"
            raise ResileError("token-file", f"{path}:{number} is no token", where=f"{path}:{number}", hint=hint)
        found.append(Token(words[0], words[1], digest_of(words[2]), 0.0, None))
    return found


class TokenBook:
    """The tokens that are valid now."""

    def __init__(self, from_file: Sequence[Token] = (), *, steps: StepTokens, is_loopback: bool) -> None:
        self.steps = steps
        self._from_file = tuple(from_file)
        self._from_store: tuple[Token, ...] = ()
        self._is_loopback = is_loopback
        self._loaded_at = 0.0
        self._local = Identity(local_user(), "admin")
        self.anyone = Identity("anyone", "viewer")
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    @property
    def is_stale(self) -> bool:
        """Is it time to look at the store again?"""
        return time.monotonic() - self._loaded_at > RELOAD_SECONDS

    def load(self, tables: ServerTables) -> None:
        """Take the tokens that the store has now."""
        self._from_store = tuple(tables.tokens())
        self._loaded_at = time.monotonic()

    @property
    def has_any(self) -> bool:
        """Does any token exist? Then every request needs one."""
        return bool(self._from_file or self._from_store)

    def identify(self, authorization: str, address: str) -> Identity:
        """Find the caller; raises a Problem if a needed token is missing or wrong."""
        if not self.has_any and self._is_loopback:
            return self._local
        scheme, _, secret = authorization.partition(" ")
        challenge = {"WWW-Authenticate": 'Bearer realm="resile"'}
        if scheme.lower() != "bearer" or not secret.strip():
            hint = "send the header `Authorization: Bearer SECRET`"
            raise Problem("token_missing", "this server needs a token", hint=hint, headers=challenge)
        token = self._find(digest_of(secret.strip()))
        if token is not None:
            return Identity(token.name, token.role)  # type: ignore[arg-type]
        run = self.steps.run_of(secret.strip())
        if run is not None:
            return Identity(f"run {run}", "viewer", run)
        self._count_wrong(address)
        hint = "`resile token ls` lists the tokens, `resile token create` makes one"
        raise Problem("token_unknown", "the token is unknown or has expired", hint=hint, headers=challenge)

    def _find(self, digest: str) -> Token | None:
        """The token with this hash, if it has not expired; every token is compared, in constant time."""
        found, now = None, time.time()
        for token in (*self._from_file, *self._from_store):
            if hmac.compare_digest(token.digest, digest) and (token.expires_at is None or token.expires_at > now):
                found = token
        return found

    def _count_wrong(self, address: str) -> None:
        """Count a wrong token; refuse an address that has sent too many."""
        now = time.monotonic()
        times = self._wrong.setdefault(address, deque())
        self._wrong.move_to_end(address)
        while times and times[0] <= now - WRONG_SECONDS:
            times.popleft()
        if len(times) >= WRONG_MAX:
            wait = str(max(1, round(times[0] + WRONG_SECONDS - now)))
            message = f"{WRONG_MAX} wrong tokens within a minute came from this address"
            raise Problem("too_many_wrong_tokens", message, headers={"Retry-After": wait})
        times.append(now)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)


def local_user() -> str:
    """The user of a server without tokens."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
