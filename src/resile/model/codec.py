"""Canonical JSON of a workflow, and the hash of it under which a definition is stored."""

from __future__ import annotations

from functools import lru_cache

import msgspec

import resile.model.fanout as _fanout
import resile.model.rules as _rules
from resile.model.hashing import sha256_hex
from resile.model.workflow import Condition, Step, Workflow

# Step, Rule and FanOut name each other; the modules import one way, so the names are put in place here.
_rules.Step = Step  # type: ignore[attr-defined]
_rules.Condition = Condition  # type: ignore[attr-defined]
_fanout.Step = Step  # type: ignore[attr-defined]


def encode(workflow: Workflow) -> bytes:
    """The workflow as canonical JSON: the same model gives the same bytes."""
    return msgspec.json.encode(workflow, order="deterministic")


def decode(data: bytes) -> Workflow:
    """The workflow that `encode` wrote."""
    return msgspec.json.decode(data, type=Workflow)


@lru_cache(maxsize=1)
def content_hash(data: bytes) -> str:
    """The name of a definition: SHA-256 of its canonical JSON. Starting a run asks for it several times."""
    return sha256_hex(data)
