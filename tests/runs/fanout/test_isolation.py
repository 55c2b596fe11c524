"""`isolation: worktree`: each item in a git worktree of its own, merged back in the order of the items."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.runs.ladder.flows import Flows

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
    [failure] = letter["failure_history"]
    assert (letter["item_id"], failure["step_failed"], failure["error_type"]) == ("edit[1]", "merge", "MergeConflict")
    artifacts = letter["worktree_artifacts"]
    assert Path(artifacts["worktree_path"], "shared").read_text() == "same2\n"
    assert artifacts["uncommitted_changes"] == []
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == []


def test_without_a_repository_the_item_fails_with_a_clear_message(flows: Flows) -> None:
    """Known before anything runs it is refused; else nothing runs in the caller's folder instead."""
    text = FLOW.format(items="[c]")
    flows.program.write(f"resile: 1\n{text}")
    error = flows.program.json("run", "flow.yaml", code=2)["error"]
    assert (error["code"], error["where"]) == ("isolation", "flow.yaml:3:11")
    assert flows.run(text.replace("steps:\n", "steps:\n  - {id: first, noop: true}\n", 1)).document["exit_code"] == 0
    [letter] = flows.program.json("dlq", "list", "1")["dead_letters"]
    assert letter["failure_history"][0]["error_type"] == "WorktreeError"
    assert "needs a git repository" in letter["failure_history"][0]["error_message"]
    assert not os.path.exists(flows.folder / "new-c")


def test_everything_of_an_item_works_in_its_worktree(flows: Flows, repository: Path) -> None:
    """Handlers, child workflows, maps inside and files that are written: nothing of it touches the caller's folder."""
    flows.program.write(
        "resile: 1\nname: child\nsteps:\n- {id: w, shell: 'pwd >> $SEEN; echo x > by-child'}\n"
        "- {id: m, map: {input: [1], steps: [{shell: 'pwd >> $SEEN; git add by-child; git commit -qm child'}]}}\n",
        "child.yaml",
    )
    flows.program.env["SEEN"] = str(flows.folder / "seen")
    ran = flows.run(
        "name: x\nsteps:\n- id: edit\n  map:\n    input: [a]\n    isolation: worktree\n    steps:\n"
        "    - {id: sub, workflow: child.yaml}\n"
        "    - {id: inner, map: {input: [1, 2], steps: [{shell: 'pwd >> $SEEN'}]}}\n"
        "    - {id: file, write_file: {path: written, content: x}}\n"
        "    - {id: broken, shell: 'pwd >> $SEEN; test -e by-handler', "
        "on_failure: {shell: 'pwd >> $SEEN; touch by-handler', max_attempts: 2}}\n"
    )
    assert ran.document["maps"]["edit"]["successful"] == 1
    folder = str(flows.folder / "output" / "worktrees" / "wf1_j1_i0")
    assert (flows.folder / "seen").read_text().splitlines() == [folder] * 7
    assert [(repository / name).exists() for name in ("by-child", "written", "by-handler")] == [True, False, False]


def test_a_map_that_works_apart_inside_of_another(flows: Flows, repository: Path) -> None:
    """Inner items start from what the outer item has committed, and are merged into its worktree, which is merged."""
    commit = "git add -A && git commit -qm c"
    ran = flows.run(
        "name: x\nsteps:\n- id: outer\n  map:\n    input: [a, b]\n    isolation: worktree\n    steps:\n"
        f"    - {{id: first, shell: 'touch out-${{item}} && {commit} && echo ${{item}}', capture: who}}\n"
        "    - id: inner\n      map:\n        input: [1, 2]\n        isolation: worktree\n        steps:\n"
        f"        - {{shell: 'test -e out-${{who}} && touch in-${{who}}-${{item}} && {commit}'}}\n"
        "    - {id: last, shell: 'ls -d out-${item} in-${item}-*'}\n"
        "- {shell: 'printf %s ${steps.outer.results}', capture: {seen: json}}\n",
        0, "--max-parallel", "3",
    )  # fmt: skip
    assert ran.document["outputs"]["seen"] == [f"in-{one}-1\nin-{one}-2\nout-{one}" for one in "ab"]
    merged = sorted(path.name for path in repository.iterdir() if path.name.startswith(("out-", "in-")))
    assert merged == ["in-a-1", "in-a-2", "in-b-1", "in-b-2", "out-a", "out-b"]
    assert len(git(repository, "worktree", "list")) == 1
