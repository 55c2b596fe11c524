"""The table on the terminal and the JSON document beside it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.cases import Figure

HEADER = ("case", "what", "resile", "floor", "", "ratio", "bound", "")


def row(figure: Figure) -> tuple[str, ...]:
    """One figure as the cells of its line."""
    digits = 3 if figure.unit == "s" else 0
    bound = ""
    if figure.bound:
        bound = f"{figure.bound:g}x" if figure.floor else f"{figure.bound:g} {figure.unit}"
    return (
        figure.case,
        figure.what,
        f"{figure.value:,.{digits}f} {figure.unit}",
        figure.floor,
        f"{figure.floor_value:,.{digits}f} {figure.unit}" if figure.floor else "",
        f"{figure.ratio:.2f}x" if figure.floor else "",
        bound,
        "" if not figure.bound else "held" if figure.held else "OVER",
    )


def table(figures: Iterable[Figure]) -> str:
    """All figures as aligned columns."""
    rows = [HEADER, *map(row, figures)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADER))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows)
    return "\n".join(line.rstrip() for line in lines)


def filesystem(folder: Path) -> str:
    """The type of the file system that `folder` is on: durable figures from a tmpfs would be worthless."""
    best = ("", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split(" ")
        if os.path.commonpath([mount, folder.resolve()]) == mount and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def document(figures: Sequence[Figure], folder: Path, quick: bool) -> str:
    """Everything as JSON, with what one has to know about the machine to read it."""
    machine = {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem(folder),
        "load_1_minute": os.getloadavg()[0],
    }
    rows = [{**figure._asdict(), "held": figure.held} for figure in figures]
    return json.dumps({"quick": quick, "machine": machine, "figures": rows}, indent=1) + "\n"
