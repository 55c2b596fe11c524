"""Fan-outs: items of `true` against ninja over the same commands, and very many items that do nothing.

The second shows that neither memory nor the time of an item grows with what is done: the log's own progress events
say how long the first and the last tenth took.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

from bench.cases import MEBIBYTE, Bench, Figure, compare, environment, interleave, reset
from bench.measure import CommandFailed, measure
from bench.shapes import PARALLEL, Shape, write_ninja

ITEMS = "items.jsonl"


def write_items(folder: Path, count: int, step: str) -> None:
    """A workflow that maps so many items over one step."""
    with (folder / ITEMS).open("w") as out:
        out.writelines(f'{{"n":{number}}}\n' for number in range(count))
    (folder / "flow.yaml").write_text(
        f"resile: 1\nname: items\nsteps:\n  - name: m\n    map: {{input: {ITEMS}, steps: [{{{step}}}]}}\n"
    )


def all_successful(folder: Path, count: int) -> None:
    """A fast wrong answer is none."""
    done = json.loads((folder / "stdout").read_bytes())["maps"]["m"]["successful"]
    if done != count:
        raise CommandFailed(f"resile finished {done} of {count} items")


def items(bench: Bench) -> list[Figure]:
    """Items of `true`, two at a time, against ninja."""
    count = bench.wide * 2
    write_items(bench.folder, count, 'shell: "true"')
    write_ninja(Shape("items", 1, count), bench.folder / "build.ninja")
    tools = {
        "resile": [bench.resile, "run", "flow.yaml", "--max-parallel", str(PARALLEL), "--json"],
        "ninja": ["ninja", "-j", str(PARALLEL), "--quiet"],
    }
    samples = interleave(bench, tools, bench.rounds, lambda folder: all_successful(folder, count))
    return [
        compare(f"items {count:,}", "wall", samples, "wall_seconds", "ninja", 1.6, "resile"),
        compare(f"items {count:,}", "cpu", samples, "cpu_seconds", "ninja", 0.0, "resile"),
    ]


def many_items(bench: Bench) -> list[Figure]:
    """Very many items through a step that does nothing: memory, and the last tenth against the first."""
    count = bench.scale[-1] * 10
    case = f"items {count:,} noop"
    write_items(bench.folder, count, "noop: true")
    reset(bench.folder)
    environ = environment(bench.folder)
    ran = measure([bench.resile, "run", "flow.yaml", "--json"], bench.folder, environ)
    all_successful(bench.folder, count)
    moments = _moments(bench, environ)
    first, last = moments[0.1] - moments[0.0], moments[1.0] - moments[0.9]
    return [
        Figure(case, "engine RSS", ran.rss_bytes_max / MEBIBYTE, "MiB", bound=250.0),
        Figure(case, "an item", ran.wall_seconds / count * 1e6, "us"),
        Figure(case, "last tenth", last, "s", "first tenth", first, last / first, 1.2),
    ]


def _moments(bench: Bench, environ: dict[str, str]) -> dict[float, float]:
    """When which share of the items was done."""
    words = [bench.resile, "events", "list", "1", "--type", "map_progress", "--type", "items_listed", "--json"]
    told = subprocess.run(words, env={**os.environ, **environ}, check=True, capture_output=True, text=True).stdout
    moments: dict[float, float] = {}
    for event in map(json.loads, told.splitlines()):
        at = datetime.fromisoformat(event["at"]).timestamp()
        share = event["data"]["done"] / event["data"]["of"] if "done" in event["data"] else 0.0
        moments[round(share, 2)] = at
    return moments
