"""Segments by themselves: whether the files of a range are as long as they must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from resile.executors.local.segments import SegmentReader, worker_of
from resile.model.failure import LogRange

# Files of 5 and 7 bytes must be there.
RANGE = LogRange("s", 3, 2, 4, 3)


@pytest.mark.parametrize(
    ("out", "err", "log", "is_whole"),
    [
        (5, 7, RANGE, True),
        (9, 9, RANGE, True),
        (4, 7, RANGE, False),
        (5, 6, RANGE, False),
        (None, 7, RANGE, False),
        (5, None, RANGE, False),
        (5, None, LogRange("s", 3, 2, 4, 0), True),
        (None, 7, LogRange("s", 3, 0, 4, 3), True),
        (None, None, LogRange("s", 3, 0, 4, 0), True),
    ],
)
def test_a_range_is_whole_if_both_files_reach_its_ends(
    tmp_path: Path, out: int | None, err: int | None, log: LogRange, is_whole: bool
) -> None:
    """The file of a stream of which the range has nothing need not be there."""
    for size, ending in ((out, "o"), (err, "e")):
        if size is not None:
            (tmp_path / f"s.{ending}").write_bytes(bytes(size))
    assert SegmentReader(str(tmp_path)).is_whole(log) is is_whole


@pytest.mark.parametrize(
    ("log", "worker"),
    [
        (LogRange("launcher/wtoken-gpu-box"), "gpu-box"),
        (LogRange("launcher/token-0-0"), None),
        (LogRange(""), None),
        (None, None),
    ],
)
def test_the_name_of_a_segment_says_on_which_worker_an_attempt_ran(log: LogRange | None, worker: str | None) -> None:
    """Segments of this machine name none."""
    assert worker_of(log) == worker
