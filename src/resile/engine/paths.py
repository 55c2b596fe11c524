"""The paths of a run's files: one folder for each epoch under the output folder, and the named log files."""

from __future__ import annotations

from os.path import join


def epoch_folder(output: str, run: int, epoch: int) -> str:
    """The folder of one epoch of one run: segments, spool and scripts; log ranges are relative to it."""
    return join(output, "runs", label(run, epoch))


def label(run: int, epoch: int) -> str:
    """The part of a log file's name that identifies its run and epoch."""
    return f"wf{run}_r{epoch}"


def named_logs(output: str) -> str:
    """The folder of the log files for people."""
    return join(output, "job_stdio")


def worktree(output: str, run: int, job: int, index: int) -> str:
    """The worktree of an item of a fan-out, if it has one."""
    return join(output, "worktrees", f"wf{run}_j{job}_i{index}")


def worktree_branch(run: int, job: int, index: int) -> str:
    """The branch on which the item of a worktree commits."""
    return f"resile/wf{run}_j{job}_i{index}"
