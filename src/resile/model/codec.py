"""Canonical JSON of a workflow, and its hash, under which the definition is stored."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from resile.model.workflow import Workflow

# The interpreter's own SHA-256 first: to load OpenSSL would add 4 to 5 ms to the 60 ms of CPU time of a short run.
_SHA256_MODULES = ("_sha2", "_sha256", "hashlib")


def encode(workflow: Workflow) -> bytes:
    """The workflow as canonical JSON: the same model gives the same bytes."""
    return msgspec.json.encode(workflow, order="deterministic")


def decode(data: bytes) -> Workflow:
    """The workflow that `encode` wrote."""
    return msgspec.json.decode(data, type=Workflow)


@lru_cache(maxsize=1)
def content_hash(data: bytes) -> str:
    """The name of a definition: SHA-256 of its canonical JSON. Cached: starting a run needs it several times."""
    return sha256_hex(data)


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of some bytes, in hex."""
    digest: str = _sha256_module().sha256(data).hexdigest()
    return digest


@lru_cache(maxsize=1)
def _sha256_module() -> Any:
    """The module that has SHA-256; found once, because an import that fails is tried anew each time."""
    for name in _SHA256_MODULES:
        try:
            return __import__(name)
        except ImportError:
            continue
    raise ImportError("this Python has no SHA-256")
