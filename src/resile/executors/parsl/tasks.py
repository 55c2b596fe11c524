"""The tasks of Parsl: some attempts, and what the attempts of the run share. Bytes are sent as Latin-1 in JSON.

A task goes to its node encrypted and is never on a disk, because it has the secrets that output must not show.
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
    """What every task says about the run; attempts run in `otherwise` where a node has no such directory."""
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
