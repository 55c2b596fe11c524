"""SHA-256 without loading OpenSSL, which would add 4 to 5 ms to the 60 ms of CPU time of a run with one step."""

from __future__ import annotations

import importlib

_NAMES = ("_sha2", "_sha256", "hashlib")


def sha256_hex(data: bytes) -> str:
    """The digest in hex; uses Python's own implementation if this version has one under a known name."""
    for name in _NAMES:
        try:
            digest: str = importlib.import_module(name).sha256(data).hexdigest()
        except ImportError:
            continue
        return digest
    raise ImportError("this Python has no SHA-256")
