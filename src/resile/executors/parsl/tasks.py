"""Encodes the tasks of Parsl: some attempts, and the settings that all attempts of the run share, as JSON.

Bytes are text in Latin-1. Parsl encrypts a task on its way and never writes it to a disk, because it contains secrets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from resile.executors.contract import Launch
from resile.executors.fence import Fence
from resile.executors.local import processes, wire


def encode_config(
    label: str,
    fence: Fence,
    clock_offset: float,
    directory: bytes,
    otherwise: str,
    secrets: Sequence[bytes],
    env: Mapping[bytes, bytes],
    sample_seconds: float = 0.0,
) -> str:
    """The settings of the run that every task contains; on a node without `directory` attempts run in `otherwise`."""
    given = {
        "number": fence.number,
        "fence": _text(os.fsencode(os.path.abspath(fence.path))),
        "label": label,
        "boot": processes.boot_id().decode(),
        "offset": clock_offset,
        "sample": sample_seconds,
        "directory": _text(directory),
        "otherwise": _text(os.fsencode(os.path.abspath(otherwise))),
        "secrets": [_text(secret) for secret in secrets],
        "env": [_text(name + b"=" + value) for name, value in env.items()],
    }
    return json.dumps(given)


def encode_task(config: str, submission: str, launches: Sequence[Launch]) -> bytes:
    """The task that starts these attempts."""
    attempts = []
    for launch in launches:
        frame = wire.start_frame(launch)
        assert frame is not None, "a launch with a NUL was refused before"
        attempts.append((launch.job, launch.attempt, submission, _text(frame)))
    return f'{{"config": {config}, "attempts": {json.dumps(attempts)}}}'.encode()


def _text(data: bytes) -> str:
    return data.decode("latin-1")
