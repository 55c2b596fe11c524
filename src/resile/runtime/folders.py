"""Where a run keeps its files: one folder for each epoch under the output folder, and the named log files."""

from __future__ import annotations

from pathlib import Path


def epoch_folder(output: str | Path, run: int, epoch: int) -> Path:
    """The folder of one epoch of one run: segments, spool and scripts; log ranges are relative to it."""
    return Path(output) / "runs" / label(run, epoch)


def label(run: int, epoch: int) -> str:
    """The part of a log file's name that says which run and epoch it belongs to."""
    return f"wf{run}_r{epoch}"


def named_logs(output: str | Path) -> Path:
    """The folder of the log files that people look for."""
    return Path(output) / "job_stdio"
