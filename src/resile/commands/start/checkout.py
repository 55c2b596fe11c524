"""Reads from git the branch of the caller's folder, its base, and the files that differ from the base.

A Visor file that mentions a pull request, its files or its branch has the input `pull_request`. The run reads its value
from the checkout when it starts, so that all steps and later attempts see the same value.

    base    `--base`, else the branch of origin, else main or master
    files   what differs from where the branch left its base, with what is not committed and what git does not know
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from resile.errors import ResileError
from resile.model.workflow import Workflow

INPUT = "pull_request"
FILES_MAX = 3000
_SECONDS_MAX = 60
_STATUS = {"A": "added", "D": "removed", "R": "renamed"}
_BASES = ("main", "master")


def add_checkout(workflow: Workflow, inputs: Mapping[str, Any], folder: str, base: str | None) -> dict[str, Any]:
    """The inputs of a run, with what git knows, if the workflow asks for it and the caller does not give it."""
    declared = workflow.inputs.get(INPUT) if workflow.dialect == "visor" else None
    if declared is None:
        if base is not None:
            hint = "a Visor file that mentions `pr`, `files` or `branch` does"
            raise ResileError("base", "nothing in this file asks for the base of a branch", hint=hint)
        return dict(inputs)
    return dict(inputs) if inputs.get(INPUT) is not None else {**inputs, INPUT: read_checkout(folder, base)}


def read_checkout(folder: str, base: str | None) -> dict[str, Any] | None:
    """The pull request that a checkout would become; None outside of a checkout."""
    head = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        if base is not None:
            raise ResileError("base", f"--base {base}: this folder is in no git checkout with a commit")
        return None
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    found = _base_of(folder, base, branch)
    start = _git(folder, "merge-base", found, "HEAD") or head
    files = _files(folder, start)
    if len(files) > FILES_MAX:
        message = f"{len(files)} files differ from {found}: more than {FILES_MAX}"
        raise ResileError("base", message, hint="--base names a nearer one")
    title, _, body = _git(folder, "log", "-1", "--format=%s%n%b").partition("\n")
    added, deleted = (sum(file[key] for file in files) for key in ("additions", "deletions"))
    author = _git(folder, "log", "-1", "--format=%an")
    about = {"number": 0, "title": title, "body": body, "author": author, "branch": branch, "head": branch,
             "base": found, "totalAdditions": added, "totalDeletions": deleted, "isIncremental": False}  # fmt: skip
    return {**about, "files": files}


def _base_of(folder: str, given: str | None, branch: str) -> str:
    """The base of the branch: the one given, else the default of the remote, else a branch with a usual name."""
    if given is not None:
        if given.startswith("-") or not _git(folder, "rev-parse", "--verify", "--quiet", f"{given}^{{commit}}"):
            raise ResileError("base", f"--base {given}: git knows no such commit", hint="git branch --all")
        return given
    remote = _git(folder, "rev-parse", "--abbrev-ref", "--verify", "--quiet", "origin/HEAD")
    known = (name for name in _BASES if _git(folder, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}"))
    return remote or next(known, branch)


def _files(folder: str, start: str) -> list[dict[str, Any]]:
    """The files that differ from a commit, by name, as GitHub lists those of a pull request."""
    status = _git(folder, "diff", "--no-renames", "--name-status", "-z", start, "--").split("\0")
    kinds = {name: _STATUS.get(kind, "modified") for kind, name in zip(status[::2], status[1::2], strict=False)}
    counts: dict[str, tuple[int, int]] = {}
    for line in _git(folder, "diff", "--no-renames", "--numstat", "-z", start, "--").split("\0"):
        added, deleted, name = line.split("\t", 2) if line.count("\t") >= 2 else ("", "", "")
        counts[name] = (int(added) if added.isdigit() else 0, int(deleted) if deleted.isdigit() else 0)
    others = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--full-name").split("\0")
    kinds |= {name: "added" for name in others if name}
    return [
        {"filename": name, "status": kinds[name], "additions": counts.get(name, (0, 0))[0],
         "deletions": counts.get(name, (0, 0))[1], "changes": sum(counts.get(name, (0, 0)))}
        for name in sorted(kinds)
    ]  # fmt: skip


def _git(folder: str, *words: str) -> str:
    """What git prints, or an empty text if it fails."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return ""
    except subprocess.TimeoutExpired as error:
        raise ResileError("base", f"git {words[0]} took more than {_SECONDS_MAX} seconds") from error
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
