"""A thousand generated native workflows with a step that fails for good, run for real: not one ends with exit 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resile.api.run import EventListener
from resile.commands.client import Client
from resile.commands.start.call import ResourceLimits, RunCall
from tests.core.test_no_silent_failure import generated

BLOCKS = 10
FILES_IN_BLOCK = 100
_BROKEN = ("bad", "h-fails")


class _Quiet(EventListener):
    """Does without the warnings of `check`: generated files declare handlers that no step names."""

    def warn(self, text: str) -> None:
        """Drop it."""


def _with_commands(part: Any, name: str = "") -> Any:
    """The same part of a file with real commands: `bad` and `h-fails` exit with 1, all others with 0."""
    if isinstance(part, list):
        return [_with_commands(one) for one in part]
    if not isinstance(part, dict):
        return part
    name = part.get("id", name)
    command = "exit 1" if name in _BROKEN else ":"
    commands = {"shell": command, "validate": command, "recovery_script": command, "python": "raise ValueError"}
    return {
        key: commands[key] if value == "x" and key in commands else _with_commands(value, key)
        for key, value in part.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_real_failure_passes_in_silence(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run exits with 1, and its first failure names the step that broke it."""
    monkeypatch.chdir(tmp_path)
    unexpected: list[tuple[int, Any]] = []
    for seed in range(block * FILES_IN_BLOCK, (block + 1) * FILES_IN_BLOCK):
        text = generated(seed)
        Path("flow.yaml").write_text(json.dumps(_with_commands(json.loads(text))))
        with Client.at("state.db") as client:
            call = RunCall("flow.yaml", limits=ResourceLimits(max_parallel=2), output="output")
            outcome = client.run(call, _Quiet(None))
            first = outcome.document.first_failure
        broken = "bad" if '"bad"' in text else "h-fails"
        if outcome.exit_code != 1 or first is None or first.step != broken:
            unexpected.append((seed, (outcome.exit_code, first)))
    assert unexpected == []
