"""Opens the output of attempts without an executor: for `logs` of a run that is over, or of an earlier epoch."""

from __future__ import annotations

from resile.executors.contract import OutputReader
from resile.executors.local.segments import SegmentReader, link_output, worker_of

__all__ = ["link_output", "open_output", "worker_of"]


def open_output(folder: str) -> OutputReader:
    """A reader of the output of one epoch's attempts; `folder` is the folder of that epoch."""
    return SegmentReader(folder)
