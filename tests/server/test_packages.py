"""A server without one of the packages of its extra."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.cli.program import SOURCES, Program

ROOT = Path(__file__).parent.parent.parent
EXTRA = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
# The server loads prometheus-client at the first request for metrics.
MODULES = [name for name in (re.split("[<>=]", package)[0] for package in EXTRA) if name != "prometheus-client"]


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_package_is_named(tmp_path: Path, module: str) -> None:
    """Exit 2, with the command that installs the extra."""
    program = Program(tmp_path)
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}', name='{module}')\n")
    path = f"{folder}:{SOURCES}"
    done = program.call("server", "--port", "0", code=2, PYTHONPATH=path)
    assert f"a server needs the package {module}" in done.stderr
    assert "pip install 'resile[server]'" in done.stderr
