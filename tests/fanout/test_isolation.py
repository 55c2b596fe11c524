"""`isolation: worktree`: each item in a git worktree of its own, merged back in the order of the items."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ladder.flows import Flows

FLOW = """steps:
  - name: edit
    map:
      input: {items}
      isolation: worktree
      steps:
        - shell: |
            case ${{item}} in a) later=b;; same1) later=same2;; *) later=;; esac
            until test -z "$later" || test -e "$MARKS/done-$later"; do sleep 0.02; done
            case ${{item}} in same*) echo ${{item}} > shared;; *) echo ${{item}} > new-${{item}};; esac
            git add -A && git commit -qm ${{item}}
            touch "$MARKS/done-${{item}}"
"""


@pytest.fixture
def repository(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the flows as a git repository with one commit."""
    for name, value in (("AUTHOR", "a"), ("COMMITTER", "c")):
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", f"{value}@example.org")
    monkeypatch.setenv("MARKS", str(flows.folder.parent))
    (flows.folder / "shared").write_text("base\n")
    for words in (["init", "-q", "-b", "main"], ["add", "shared"], ["commit", "-qm", "base"]):
        subprocess.run(["git", *words], cwd=flows.folder, check=True)
    return flows.folder


def git(folder: Path, *words: str) -> list[str]:
    """The lines that git prints."""
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()


def test_items_are_merged_in_their_order_whichever_is_done_first(flows: Flows, repository: Path) -> None:
    """Item a ends after b, and is merged before it; nothing of the worktrees is left."""
    ran = flows.run(FLOW.format(items="[a, b, c]"), 0, "--max-parallel", "3")
    assert ran.document["exit_code"] == 0
    assert ran.document["maps"]["edit"]["successful"] == 3
    merges = git(repository, "log", "--first-parent", "--reverse", "--format=%s")
    assert merges[0] == "base"
    assert [line for line in git(repository, "log", "--reverse", "--first-parent", "-m", "--name-only", "--format=")
            if line.startswith("new-")] == ["new-a", "new-b", "new-c"]  # fmt: skip
    assert len(git(repository, "worktree", "list")) == 1
    assert git(repository, "branch", "--format=%(refname:short)") == ["main"]


def test_a_conflict_fails_the_item_at_its_merge_and_keeps_its_worktree(flows: Flows, repository: Path) -> None:
    """The first of two that change one line is merged; the other is a dead letter that says where its work lies."""
    assert flows.run(FLOW.format(items="[same1, same2]"), 0, "--max-parallel", "3").document["exit_code"] == 0
    assert (repository / "shared").read_text() == "same1\n"
    [letter] = flows.program.json("dlq", "list", "1")["dead_letters"]
    assert (letter["item_id"], letter["failure_history"][0]["step_failed"]) == ("edit[1]", "merge")
    artifacts = letter["worktree_artifacts"]
    assert Path(artifacts["worktree_path"], "shared").read_text() == "same2\n"
    assert artifacts["uncommitted_changes"] == []
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == []


def test_without_a_repository_the_item_fails_with_a_clear_message(flows: Flows) -> None:
    """Nothing runs in the caller's folder instead."""
    assert flows.run(FLOW.format(items="[c]")).document["exit_code"] == 0
    [letter] = flows.program.json("dlq", "list", "1")["dead_letters"]
    assert "needs a git repository" in letter["failure_history"][0]["error_message"]
    assert not os.path.exists(flows.folder / "new-c")
