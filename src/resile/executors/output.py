"""Where a reader of output comes from that has no running executor: `logs` of a run that is over, an earlier epoch."""

from __future__ import annotations

from resile.executors.contract import OutputReader
from resile.executors.local.segments import SegmentReader


def open_output(folder: str) -> OutputReader:
    """A reader of what the attempts of one epoch wrote; `folder` is that epoch's."""
    return SegmentReader(folder)
