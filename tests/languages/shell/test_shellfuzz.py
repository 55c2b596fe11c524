"""Hostile values in every context that the tables of `fuzz/` have, on every shell of this machine."""

from __future__ import annotations

import os

import pytest

from tests.languages.shell.fuzz.check import CONTEXTS, offences
from tests.languages.shell.fuzz.contexts import SHELLS
from tests.languages.shell.fuzz.payloads import PAYLOADS
from tests.languages.shell.fuzz.run import installed

SAMPLE = [
    value
    for value in PAYLOADS
    if value.startswith(("$(", "';", "a[", "PATH[", "/e;", "x[", "-v", "-A")) or value in ("5", "a\nb\n")
]


def need(shell: str) -> None:
    """Skip a shell that is not here; CI has them all."""
    if not installed(shell) and not os.environ.get("CI"):
        pytest.skip(f"{shell} is not installed")


def test_there_are_as_many_contexts_and_payloads_as_promised() -> None:
    """No context and no payload is there twice, and none got lost."""
    assert len(CONTEXTS) >= 318
    assert len({(context.text, context.kind, context.shells, context.good) for context in CONTEXTS}) == len(CONTEXTS)
    assert len(set(PAYLOADS)) == len(PAYLOADS) == 57


@pytest.mark.parametrize("shell", SHELLS)
def test_a_sample_of_values_runs_nothing(shell: str) -> None:
    """In no context that is accepted does a value run; plain contexts keep it; refused ones name a safe form."""
    need(shell)
    count, found = offences(shell, SAMPLE)
    assert found == []
    assert count >= len(SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_no_value_runs_anywhere(shell: str) -> None:
    """The same with every payload."""
    need(shell)
    _, found = offences(shell)
    assert found == []
