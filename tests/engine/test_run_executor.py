"""The fence of an engine: which runs of a server share the server's file for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.core.state import new_state
from resile.engine.run_executor import Hosting, open_fence
from resile.executors.shared.hub import Hub
from resile.executors.shared.open_hub import ServerFolder, open_hub
from resile.executors.shared.places import Room
from resile.model.executor import ExecutorSettings
from resile.model.workflow import Action, Function, Shell, Step
from resile.store.contract import RunRow
from tests.core.world import flow

NODES = ExecutorSettings(directory="/nodes")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """The hub of a server."""
    own = ServerFolder.take(str(tmp_path))
    made = open_hub(own, 0, frozenset(), Room(0.0, 0))
    yield made
    made.close()
    own.close()


@pytest.mark.parametrize(
    ("action", "executor", "is_new", "shares"),
    [
        (Shell("true"), None, True, True),
        (Shell("true"), None, False, False),
        (Shell("true"), NODES, True, False),
        (Function("f", "m"), None, True, False),
        (Function("f", "m"), NODES, True, False),
    ],
)
def test_only_new_runs_of_commands_share_the_file_of_their_server(
    tmp_path: Path, hub: Hub, action: Action, executor: ExecutorSettings | None, is_new: bool, shares: bool
) -> None:
    """Workers of functions, nodes, and launchers that others left look at a file of the run's own."""
    state = new_state(flow(Step(name="a", action=action), executor=executor))
    row = RunRow(id=7, workflow="t", dialect="native", definition="", status="running", output=str(tmp_path))
    fence = open_fence(state, row, 1, "me", 5, lambda: None, Hosting(hub, 0, is_new))
    assert os.path.samefile(fence.path, hub.fence) is shares
    fence.close()


def test_an_engine_without_a_server_has_a_fence_of_its_own(tmp_path: Path) -> None:
    """There is no file to share."""
    state = new_state(flow(Step(name="a", action=Shell("true"))))
    row = RunRow(id=7, workflow="t", dialect="native", definition="", status="running", output=str(tmp_path))
    fence = open_fence(state, row, 1, "me", 5, lambda: None, None)
    assert os.stat(fence.path).st_nlink == 1
    fence.close()
