"""Fingerprints of very many files that did not change, against `sha256sum` over the same list.

Cold: no digest is known. Warm: all are, as when `rerun --changed` looks once more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.cases import Bench, Figure
from resile.engine.fingerprints.digests import Digests

FILES, FILE_BYTES = 10_000, 10 * 1024
# A file that has just been written is not cached.
SETTLED_SECONDS = 2.5


def fingerprints(bench: Bench) -> list[Figure]:
    """The digests of 10,000 files of 10 KB."""
    folder = bench.folder / "files"
    folder.mkdir()
    paths = [str(folder / f"{number:05}.dat") for number in range(FILES)]
    for path in paths:
        Path(path).write_bytes(os.urandom(FILE_BYTES))
    listed = bench.folder / "list"
    listed.write_text("\n".join(paths))
    cache = bench.folder / "cache"
    time.sleep(SETTLED_SECONDS)

    def sums() -> None:
        with listed.open() as names:
            subprocess.run(["xargs", "sha256sum"], stdin=names, stdout=subprocess.DEVNULL, check=True)

    def cold() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        Digests(str(cache)).of(paths)

    def warm() -> None:
        Digests(str(cache)).of(paths)

    sums()
    taken: dict[str, list[float]] = {"sums": [], "cold": [], "warm": []}
    for _ in range(max(3, bench.rounds)):
        for name, act in (("sums", sums), ("cold", cold), ("warm", warm)):
            taken[name].append(_seconds(act))
    floor, first, again = (median(taken[name]) for name in ("sums", "cold", "warm"))
    case = f"fingerprints {FILES:,}"
    return [
        Figure(case, "cold", first, "s", "sha256sum", floor, first / floor, 1.3),
        Figure(case, "warm", again, "s", "sha256sum", floor, again / floor, 0.1),
    ]


def _seconds(act: Callable[[], None]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
