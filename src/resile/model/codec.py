"""Canonical JSON of a workflow, and its hash, under which the definition is stored."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from resile.model.hashing import sha256_hex
from resile.model.workflow import Workflow


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
