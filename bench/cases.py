"""What is timed, in which order, and the bound each figure must keep.

Tools take turns within every round, and a ratio is the median over the rounds of the two times of one round,
so that a machine that slows down for a while slows both sides. Every Resile run is an ordinary durable one on
a new database: each transition is on disk, flushed, before what follows from it happens.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.measure import CommandFailed, Sample, measure
from bench.shapes import Shape, commands

MEBIBYTE = 1024 * 1024
FIRST_STEP = "first-step"


class Figure(NamedTuple):
    """One line of the table: a value, the floor it is compared with, and the bound that must hold."""

    case: str
    what: str
    value: float
    unit: str
    floor: str = ""
    floor_value: float = 0.0
    ratio: float = 0.0
    bound: float = 0.0

    @property
    def held(self) -> bool:
        """Whether the bound is kept; a figure without one is only told."""
        return self.bound == 0.0 or (self.ratio if self.floor else self.value) <= self.bound


class Bench(NamedTuple):
    """Where and how much: a folder on a real disk, the tested command, and the sizes of this run."""

    folder: Path
    resile: str
    rounds: int
    startup_rounds: int
    wide: int
    scale: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        """Are these the sizes that the bounds are for?"""
        return self.wide >= 5_000


Case = Callable[[Bench], list[Figure]]


def interleave(
    bench: Bench,
    tools: Mapping[str, Sequence[str]],
    rounds: int,
    inspect: Callable[[Path], None] | None = None,
    *,
    fresh: bool = True,
) -> dict[str, list[Sample]]:
    """Time every tool once in each round, starting with another one each time; `inspect` looks at Resile's output.

    Each time begins with a new database, unless `fresh` is off: then one is kept, as users keep theirs.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in tools}
    names = list(tools)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if fresh:
                reset(bench.folder)
            samples[name].append(measure(tools[name], bench.folder, environment(bench.folder)))
            if inspect is not None and name == "resile":
                inspect(bench.folder)
    return samples


def environment(folder: Path) -> dict[str, str]:
    """The store and the output folder of one run, so that nothing of the user's is touched; and bytecode is cached."""
    state = folder / "state"
    return {
        "RESILE_DB": str(state / "bench.db"),
        "RESILE_OUTPUT_DIR": str(state / "output"),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def reset(folder: Path) -> None:
    """Put what an earlier run of any tool left behind out of the way.

    It is deleted when all is measured. ext4 does not use the inodes again of files that were deleted in the last
    minutes, and its search for others made each new folder several times as expensive as on a disk that is left alone.
    """
    before = folder / "before"
    before.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):
        (folder / "state").rename(before / str(time.monotonic_ns()))
    (folder / "state").mkdir()
    (folder / ".ninja_log").unlink(missing_ok=True)
    (folder / FIRST_STEP).unlink(missing_ok=True)


def all_completed(count: int) -> Callable[[Path], None]:
    """A check that Resile's JSON document tells of `count` completed steps: a fast wrong answer is none."""

    def inspect(folder: Path) -> None:
        steps = json.loads((folder / "stdout").read_bytes())["steps"]
        if steps["completed"] != count:
            raise CommandFailed(f"resile completed {steps['completed']} of {count} steps")

    return inspect


def compare(
    case: str, what: str, samples: Mapping[str, list[Sample]], field: str, floor: str, bound: float, subject: str
) -> Figure:
    """The subject's median beside the floor's, with the median of the rounds' ratios."""
    mine = [getattr(sample, field) for sample in samples[subject]]
    floors = [getattr(sample, field) for sample in samples[floor]]
    ratios = [a / b if b else 0.0 for a, b in zip(mine, floors, strict=True)]
    return Figure(
        case, what, statistics.median(mine), "s", floor, statistics.median(floors), statistics.median(ratios), bound
    )


def throughput(bench: Bench, shape: Shape, bounds: Mapping[str, float]) -> list[Figure]:
    """One shape by every tool: wall and CPU time against each; `bounds` is keyed by what and floor."""
    tools = commands(shape, bench.folder, bench.resile)
    samples = interleave(bench, tools, bench.rounds, all_completed(shape.jobs))
    return [
        compare(shape.name, what, samples, f"{what}_seconds", floor, bounds.get(f"{what} {floor}", 0.0), "resile")
        for what in ("wall", "cpu")
        for floor in tools
        if floor != "resile"
    ]


def wide(bench: Bench) -> list[Figure]:
    """Independent steps, two at a time."""
    return throughput(bench, Shape("wide", 1, bench.wide), {"wall ninja": 1.4, "cpu xargs": 1.5})


def chain(bench: Bench) -> list[Figure]:
    """500 steps, each after the one before: every one waits for the disk."""
    return throughput(bench, Shape("chain", 500, 1), {"wall python loop": 1.8, "cpu xargs": 1.5})


def layers(bench: Bench) -> list[Figure]:
    """20 layers of 50 steps, fully connected: 47,500 edges."""
    return throughput(bench, Shape("layers", 20, 50), {"wall ninja": 2.0, "cpu xargs": 1.5})


def startup(bench: Bench) -> list[Figure]:
    """The command itself and the shortest durable run, against an interpreter that does nothing."""
    (bench.folder / "flow.yaml").write_text('resile: 1\nname: one\nsteps:\n  only: {shell: "true"}\n')
    tools = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "help": [bench.resile, "--help"],
        "one step": [bench.resile, "run", "flow.yaml"],
    }
    interleave(bench, tools, 1)  # Writes the bytecode caches that the bounds assume.
    samples = interleave(bench, tools, bench.startup_rounds, fresh=False)
    figures = [
        compare("startup", subject, samples, "wall_seconds", "python -c pass", bound, subject)
        for subject, bound in (("help", 3.0), ("one step", 6.0))
    ]
    first = interleave(bench, tools, max(3, bench.startup_rounds // 3))
    new = compare("startup", "one step", first, "wall_seconds", "python -c pass", 0.0, "one step")
    return [*figures, new._replace(what="one step, new file and database")]


def retries(bench: Bench) -> list[Figure]:
    """Steps that fail once and pass when tried again, against twice as many that just pass."""
    count = max(100, bench.wide // 10)
    command = "test $RESILE_ATTEMPT_ID -ge"
    for name, steps, least in (("retried", count, 2), ("plain", 2 * count, 1)):
        with (bench.folder / f"{name}.yaml").open("w") as out:
            out.write(f"resile: 1\nname: {name}\nsteps:\n")
            out.writelines(f"  s{number}: {{shell: {command} {least}, retry: 1}}\n" for number in range(steps))
    tools = {
        name: [bench.resile, "run", f"{name}.yaml", "--max-parallel", "2", "--json"] for name in ("plain", "retried")
    }
    samples = interleave(bench, tools, bench.rounds)
    return [compare("retry", f"{count} of them", samples, "wall_seconds", "plain", 1.3, "retried")]


def output(bench: Bench) -> list[Figure]:
    """The chain with a line of output from each step, which is on disk before its outcome, against a silent one."""
    tools = {}
    for name, command in (("silent", "true"), ("printing", "echo line")):
        with (bench.folder / f"{name}.yaml").open("w") as out:
            out.write(f"resile: 1\nname: {name}\nsteps:\n  s0: {{shell: {command!r}}}\n")
            out.writelines(f"  s{n}: {{shell: {command!r}, needs: [s{n - 1}]}}\n" for n in range(1, 500))
        tools[name] = [bench.resile, "run", f"{name}.yaml", "--max-parallel", "2", "--json"]
    samples = interleave(bench, tools, bench.rounds)
    return [compare("output", "500 lines", samples, "wall_seconds", "silent", 1.4, "printing")]


def expressions(_bench: Bench) -> list[Figure]:
    """One evaluation with a context of about 6 KB, through the helper process."""
    from resile.languages.javascript.evaluate import Sandbox

    context = {"outputs": {f"step{number}": "x" * 120 for number in range(45)}, "attempt": 2}
    sandbox = Sandbox()
    code = "outputs.step7.length === 120 && attempt > 1"
    answers = [sandbox.evaluate(code, context, now=1.0, seed="bench", form="expression") for _ in range(300)]
    sandbox.close()
    if not all(answer.value is True for answer in answers):
        raise CommandFailed("an expression gave a wrong answer")
    return [
        Figure("expression", "median", statistics.median(a.milliseconds for a in answers) * 1000, "us", bound=1000.0)
    ]


def scale(bench: Bench) -> list[Figure]:
    """Checking, starting and finishing ever larger files, and what each step of them costs."""
    rows = []
    for count in bench.scale:
        case = f"scale {count:,}"
        with (bench.folder / "flow.yaml").open("w") as out:
            out.write(f"resile: 1\nname: scale\nsteps:\n  first: {{shell: touch {FIRST_STEP}}}\n")
            out.writelines(f'  s{number:06d}: {{shell: "true"}}\n' for number in range(1, count))
        reset(bench.folder)
        environ = environment(bench.folder)
        checked = measure([bench.resile, "check", "flow.yaml"], bench.folder, environ)
        ran = measure([bench.resile, "run", "flow.yaml", "--max-parallel", "2", "--json"], bench.folder, environ)
        all_completed(count)(bench.folder)
        first = (bench.folder / FIRST_STEP).stat().st_mtime - ran.started_at
        rows += [
            Figure(case, "check", checked.wall_seconds, "s", bound=5.0),
            Figure(case, "first step", first, "s", bound=5.0),
            Figure(case, "engine RSS", ran.rss_bytes_max / MEBIBYTE, "MiB", bound=500.0),
            Figure(case, "check a step", checked.wall_seconds / count * 1e6, "us"),
            Figure(case, "run a step", ran.wall_seconds / count * 1e6, "us"),
        ]
    return rows


_PYTHON_FLOW = """
import os, signal, sys, time
from resile import Workflow, run, step

seen = []

def look(*_):
    with open("/proc/self/statm") as file:
        seen.append((sys.getallocatedblocks(), int(file.read().split()[1]) * 4096))

@step
def nothing():
    pass

@step
def ask(engine):
    os.kill(engine, signal.SIGUSR1)

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, look)
    count = int(sys.argv[2])
    with Workflow("wide", workers=sys.argv[1], max_parallel=2) as flow:
        for number in range(count):
            nothing()
            if number == count // 10:
                ask(os.getpid())
        ask(os.getpid())
    begin = time.perf_counter()
    flow.compile()
    compiled = time.perf_counter()
    done = run(flow)  # which compiles it once more
    seconds = time.perf_counter() - compiled - (compiled - begin)
    assert done.status == "completed"
    early, late = seen
    print(seconds, *((b - a) / (count - count // 10) for a, b in zip(early, late)))
"""
_PYTHON_LOOP = """
import os, sqlite3, sys

db = sqlite3.connect(os.environ["RESILE_DB"], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA synchronous = FULL")
db.execute("CREATE TABLE done (id INTEGER PRIMARY KEY, step TEXT, status INTEGER)")
for first in range(0, int(sys.argv[1]), 100):
    db.execute("BEGIN")
    for number in range(first, min(first + 100, int(sys.argv[1]))):
        db.execute("INSERT INTO done VALUES (?, ?, ?)", (number, f"nothing-{number}", 5))
    db.execute("COMMIT")
"""


def python(bench: Bench) -> list[Figure]:
    """Functions that do nothing, each recorded, beside a loop that writes a row for each in commits of 100."""
    # The bounds are for so many: of fewer, starting the workers would be most of the time.
    count = max(bench.wide, 5_000)
    (bench.folder / "functions.py").write_text(_PYTHON_FLOW)
    (bench.folder / "rows.py").write_text(_PYTHON_LOOP)
    tools = {
        "threads": [sys.executable, "functions.py", "threads", str(count)],
        "processes": [sys.executable, "functions.py", "processes", str(count)],
        "bare loop": [sys.executable, "rows.py", str(count)],
    }
    seconds: dict[str, list[float]] = {"threads": [], "processes": []}
    samples: dict[str, list[Sample]] = {name: [] for name in tools}
    for _ in range(bench.rounds):
        for name, words in tools.items():
            reset(bench.folder)
            samples[name].append(measure(words, bench.folder, environment(bench.folder)))
            if name in seconds:
                seconds[name].append(float((bench.folder / "stdout").read_text().split()[0]))
    figures = [
        Figure("python", f"{name}, a step", statistics.median(seconds[name]) / count * 1e6, "us", bound=bound)
        for name, bound in (("threads", 125.0), ("processes", 500.0))
    ]
    figures += [
        compare("python", f"{name}, whole program", samples, "wall_seconds", "bare loop", 0.0, name) for name in seconds
    ]
    for name in seconds:
        reset(bench.folder)
        measure([*tools[name][:3], str(bench.scale[-1])], bench.folder, environment(bench.folder))
        blocks, growth = map(float, (bench.folder / "stdout").read_text().split()[1:])
        what = f"{name}, kept of a finished step of {bench.scale[-1]:,}"
        # From the first tenth of the run to its end; the process grows in pages, so a few steps say nothing of it.
        figures.append(Figure("python", what, blocks, "objects", bound=0.5))
        figures.append(Figure("python", what, growth, "bytes", bound=32.0))
    return figures


CASES: dict[str, Case] = {
    "wide": wide,
    "chain": chain,
    "layers": layers,
    "startup": startup,
    "retry": retries,
    "output": output,
    "expression": expressions,
    "python": python,
    "scale": scale,
}
