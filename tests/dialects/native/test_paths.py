"""Paths of workflow files: what can't be read is a finding with a hint."""

from __future__ import annotations

import os
from pathlib import Path

from resile.dialects.compile import compile_file


def test_what_is_no_readable_file_is_a_finding(tmp_path: Path) -> None:
    """A path that is no readable file is a finding, never a traceback."""
    (tmp_path / "flow.yaml").write_text("resile: 1\nsteps: {a: {shell: x}}\n")
    os.mkfifo(tmp_path / "pipe")

    def only(path: Path | str) -> str:
        """The one finding for a path."""
        result = compile_file(path)
        assert (result.workflow, result.dialect) == (None, "")
        (finding,) = result.diagnostics
        return finding.render()

    assert only(tmp_path / "flow.yml") == (
        f"{tmp_path}/flow.yml: error: there is no file `{tmp_path}/flow.yml` [file]\n  hint: did you mean `flow.yaml`?"
    )
    assert only(tmp_path) == f"{tmp_path}: error: `{tmp_path}` is a folder [file]\n  hint: name the workflow file in it"
    assert only(tmp_path / "flow.yaml" / "x").endswith("can't be read: Not a directory [file]")
    assert only("a\0b").endswith("can't be read: embedded null byte [file]")
    compiled = compile_file(tmp_path / "flow.yaml")
    assert compiled.workflow is not None
    assert (compiled.workflow.name, compiled.workflow.folder) == ("flow", str(tmp_path))
