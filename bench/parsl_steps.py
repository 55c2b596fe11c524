"""Steps through Parsl: `resile run --executor` against Parsl's own `bash_app`, on this machine with two workers.

`python -m bench.parsl_steps COUNT` is the floor: it runs `true` so often by `bash_app`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from bench.cases import Bench, Figure, all_completed, compare, environment, reset
from bench.measure import Sample, measure
from bench.shapes import PARALLEL, Shape, write_native

COUNT, COUNT_QUICK = 2_000, 200
BOUND = 1.5


def through_parsl(bench: Bench) -> list[Figure]:
    """Many steps of `true` on one block of two workers: every transition on disk, against nothing on disk."""
    count = COUNT if bench.is_full else COUNT_QUICK
    shape = Shape("through-parsl", 1, count)
    root = Path(__file__).parent.parent
    samples: dict[str, list[Sample]] = {"resile": [], "bash_app": []}
    for _ in range(min(bench.rounds, 3)):
        reset(bench.folder)
        write_native(shape, bench.folder / "flow.yaml")
        (bench.folder / "cluster.toml").write_text(
            f'[executor]\nkind = "parsl"\nworkers_per_node = {PARALLEL}\ndirectory = "shared"\n'
        )
        words = [bench.resile, "run", "flow.yaml", "--executor", "cluster.toml", "--json"]
        samples["resile"].append(measure(words, bench.folder, environment(bench.folder)))
        all_completed(shape.jobs)(bench.folder)
        reset(bench.folder)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        floor = [sys.executable, "-m", "bench.parsl_steps", str(count)]
        around = {**environment(bench.folder), "PYTHONPATH": str(root), "PATH": path}
        samples["bash_app"].append(measure(floor, bench.folder, around))
    return [
        compare(
            f"parsl {count:,} steps",
            "wall",
            samples,
            "wall_seconds",
            "bash_app",
            BOUND if bench.is_full else 0.0,
            "resile",
        )
    ]


def main(count: int) -> None:
    """Run `true` so often with `bash_app`, on one block of two workers."""
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    executor = HighThroughputExecutor(
        max_workers_per_node=PARALLEL, address="127.0.0.1", provider=LocalProvider(init_blocks=1, max_blocks=1)
    )
    app: Any = parsl.bash_app(_true)
    with parsl.load(Config(executors=[executor], run_dir="runinfo")):
        for future in [app() for _ in range(count)]:
            future.result()


def _true() -> str:
    return "true"


if __name__ == "__main__":
    main(int(sys.argv[1]))
