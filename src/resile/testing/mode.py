"""The test mode: runs in a database of their own, functions called in the test's process, no waiting.

with in_test_mode() as client:
    done = run(flow)
    assert client.explain(done.id)["steps"] == []
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.api.client import Client
from resile.api.run import RunSettings, run_settings
from resile.model.rules import Backoff
from resile.model.workflow import Function, Workflow


@contextmanager
def in_test_mode(*, wait: bool = False, threads: bool = True) -> Iterator[Client]:
    """Runs inside this block use a temporary database, which the yielded client reads and which is removed afterwards.

    Without `wait` no retry waits for its backoff. With `threads` functions are called in threads of this process, so
    that breakpoints, coverage and monkeypatching work; `threads=False` leaves them to worker processes.
    """

    def prepare(workflow: Workflow) -> Workflow:
        """The definition as the test runs it."""
        changed: Workflow = _adapt(workflow, not wait, threads)
        return changed

    with tempfile.TemporaryDirectory(prefix="resile-test-") as folder:
        db = path.join(folder, "resile.db")
        token = run_settings.set(RunSettings(db, path.join(folder, "output"), prepare))
        try:
            yield Client(db)
        finally:
            run_settings.reset(token)


def _adapt(value: Any, drop_waits: bool, use_threads: bool) -> Any:
    """A part of a definition with every backoff dropped, and with functions called in threads."""
    if isinstance(value, Struct):
        parts = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {
            name: None if drop_waits and isinstance(part, Backoff) else _adapt(part, drop_waits, use_threads)
            for name, part in parts.items()
        }
        if use_threads and isinstance(value, Function):
            changed["workers"] = "threads"
        different = {name: part for name, part in changed.items() if part is not parts[name]}
        return replace(value, **different) if different else value
    if isinstance(value, tuple):
        items = tuple(_adapt(item, drop_waits, use_threads) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        return {key: _adapt(item, drop_waits, use_threads) for key, item in value.items()}
    return value
