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
      error_policy: {{continue_on_failure: true}}
      steps:
        - shell: |
            case ${{item}} in a) later=b;; same1) later=same2;; *) later=;; esac
            until test -z "$later" || test -e "$MARKS/done-$later"; do sleep 0.02; done
            case ${{item}} in same*) echo ${{item}} > shared;; *) echo ${{item}} > new-${{item}};; esac
            git add -A && git commit -qm ${{item}}
            touch "$MARKS/done-${{item}}"
"""


@pytest.fixture
def repository(flows: Flows, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the flows as a git repository with one commit."""
    given = {"MARKS": str(tmp_path_factory.mktemp("marks"))}
    for name, value in (("AUTHOR", "a"), ("COMMITTER", "c")):
        given |= {f"GIT_{name}_NAME": value, f"GIT_{name}_EMAIL": f"{value}@example.org"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    flows.program.env |= given
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


def test_items_that_are_not_merged_leave_their_commits_on_branches(flows: Flows, repository: Path) -> None:
    """`branches` has those of the items that succeeded, in order, under the names that the file chose."""
    keys = "isolation: worktree\n      branch: mine\n      merge: false"
    text = FLOW.format(items="[c, d]").replace("isolation: worktree", keys)
    text = text.replace("git add -A &&", "test ${item} = c || exit 3; git add -A &&")
    text += "  - shell: 'echo ${steps.edit.branches} > \"$MARKS/branches\"'\n"
    assert flows.run(text, 0, "--max-parallel", "1").document["exit_code"] == 0
    [branch] = Path(os.environ["MARKS"], "branches").read_text().split()
    assert branch.startswith("mine-")
    assert branch.endswith("-item_0")
    assert git(repository, "log", "--format=%s") == ["base"]
    assert git(repository, "log", "--format=%s", branch) == ["c", "base"]
    [letter] = flows.program.json("dlq", "list", "1")["dead_letters"]
    assert letter["worktree_artifacts"]["branch_name"] == branch.replace("item_0", "item_1")


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


AUTO = """name: x
steps:
- id: edit
  map:
    input: [a]
    isolation: auto
    steps:
    - {id: first, shell: 'pwd >> $SEEN'}
    - {id: inner, map: {input: [1], isolation: auto, steps: [{shell: 'pwd >> $SEEN'}]}}
    - {id: bad, shell: 'test -e "$SEEN.ok"', on_failure: {commands: [HANDLER], max_attempts: 2}}
"""
HANDLER = "{map: {input: [1], isolation: auto, steps: [{shell: 'pwd >> $SEEN; touch $SEEN.ok'}]}}"


def test_auto_is_decided_for_every_map_when_the_run_starts(flows: Flows, repository: Path) -> None:
    """In a checkout with a commit it means worktrees, at any depth and in handlers; the run keeps that decision."""
    flows.program.env["SEEN"] = str(flows.folder / "seen")
    flows.run(AUTO.replace("HANDLER", HANDLER))
    seen = (flows.folder / "seen").read_text().splitlines()
    assert len(set(seen)) == 3
    assert all(Path(folder).parent == flows.folder / "output" / "worktrees" for folder in seen)
    assert len(git(repository, "worktree", "list")) == 1
    (flows.folder / ".git").rename(flows.folder / "no-git")
    assert flows.drive("rerun", "1", code=1).status["edit"] == "failed"


@pytest.mark.parametrize("has_git", [True, False])
def test_auto_without_a_commit_runs_in_place(flows: Flows, has_git: bool) -> None:
    """An empty repository has nothing that a worktree could check out; outside of one there is none."""
    if has_git:
        subprocess.run(["git", "init", "-q"], cwd=flows.folder, check=True)
    flows.program.env["SEEN"] = str(flows.folder / "seen")
    flows.run(AUTO.replace("HANDLER", HANDLER))
    assert (flows.folder / "seen").read_text().splitlines() == [str(flows.folder)] * 3


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


SHARED = "resile: 1\nsteps:\n  - id: each\n    map: {input: [a, b], %s, steps: [%s]}\n"
COMMITS = "{shell: 'git add -A && git commit -qm x'}"
AGENT = "{agent: go}"
INSIDE = f"{{id: i, map: {{input: [1], max_parallel: 1, steps: [{COMMITS}]}}}}"
REPAIRED = f"{{shell: 'true', on_failure: [{COMMITS}]}}"
APART = f"{{id: i, map: {{input: [1], isolation: worktree, steps: [{COMMITS}]}}}}"


@pytest.mark.parametrize(
    ("keys", "steps", "warned"),
    [
        ("max_parallel: 2", COMMITS, True),
        ("offset: 0", AGENT, True),
        ("max_parallel: 2", INSIDE, True),
        ("max_parallel: 2", REPAIRED, True),
        ("max_parallel: 2", "{shell: make}", False),
        ("max_parallel: 2", "{shell: 'git log; echo commit'}", False),
        ("max_parallel: 2", APART, False),
        ("max_parallel: 2", "{shell: git commit -qm x, working_dir: '${item}'}", False),
        ("max_parallel: 1", COMMITS, False),
        ("max_parallel: 2, isolation: worktree", COMMITS, False),
    ],
)
@pytest.mark.usefixtures("repository")
def test_check_warns_of_items_that_share_one_checkout(flows: Flows, keys: str, steps: str, warned: bool) -> None:
    """Items that commit or run an agent side by side in one folder are warned of, with the map's place."""
    flows.program.write(SHARED % (keys, steps))
    [file] = flows.program.json("check", "flow.yaml")["files"]
    found = file["diagnostics"]
    places = [(one["severity"], one["line"], one["column"]) for one in found if one["code"] == "shared-folder"]
    assert places == ([("warning", 3, 9)] if warned else [])


def test_items_that_share_a_folder_without_git_are_not_warned_of(flows: Flows) -> None:
    """Outside a repository there is no index to share."""
    flows.program.write(SHARED % ("max_parallel: 2", AGENT))
    [file] = flows.program.json("check", "flow.yaml")["files"]
    assert [one["code"] for one in file["diagnostics"]] == ["since-0.2"]
