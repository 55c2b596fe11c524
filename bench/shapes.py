"""One graph of `true`, written down for every tool that runs it.

A shape is layers of jobs: each job of a layer needs every job of the layer before. So `wide` is one layer of
5,000, `chain` is 500 layers of one, and `layers` is 20 of 50 (47,500 edges).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PARALLEL = 2


class Shape(NamedTuple):
    """`layers` layers of `width` jobs, each layer fully connected to the next."""

    name: str
    layers: int
    width: int

    @property
    def jobs(self) -> int:
        """How many commands a run of it starts."""
        return self.layers * self.width

    def nodes(self) -> Iterator[tuple[str, list[str]]]:
        """Each job's name with the names that it needs, in an order that runs."""
        before: list[str] = []
        for layer in range(self.layers):
            names = [f"s{layer:04d}-{number:05d}" for number in range(self.width)]
            for name in names:
                yield name, before
            before = names


def write_native(shape: Shape, file: Path) -> None:
    """The shape as a native workflow."""
    with file.open("w") as out:
        out.write(f"resile: 1\nname: {shape.name}\nsteps:\n")
        for name, needs in shape.nodes():
            edges = f", needs: [{', '.join(needs)}]" if needs else ""
            out.write(f'  {name}: {{shell: "true"{edges}}}\n')


def write_ninja(shape: Shape, file: Path) -> None:
    """The shape as a ninja file whose outputs never come to exist, so that everything runs."""
    with file.open("w") as out:
        out.write("rule true\n  command = true\n")
        for name, needs in shape.nodes():
            edges = f" | {' '.join(needs)}" if needs else ""
            out.write(f"build {name}: true{edges}\n")


def write_make(shape: Shape, file: Path) -> None:
    """The shape as a makefile of phony targets."""
    with file.open("w") as out:
        names = " ".join(name for name, _ in shape.nodes())
        out.write(f".PHONY: all {names}\nall: {names}\n")
        for name, needs in shape.nodes():
            out.write(f"{name}: {' '.join(needs)}\n\t@true\n")


def write_xargs(shape: Shape, file: Path) -> None:
    """The shape as one xargs call for each layer; a chain of one job each is a single call, one at a time."""
    if shape.width == 1:
        text = f"seq {shape.layers} | xargs -P1 -n1 true\n"
    else:
        text = f"for layer in $(seq {shape.layers}); do seq {shape.width} | xargs -P{PARALLEL} -n1 true; done\n"
    file.write_text(text)


def write_python(shape: Shape, file: Path) -> None:
    """The shape as the loop one would write: `subprocess.run`, in two threads where two may run at once."""
    if shape.width == 1:
        text = f"import subprocess\nfor _ in range({shape.layers}):\n    subprocess.run(['true'], check=True)\n"
    else:
        text = (
            "import subprocess\nfrom concurrent.futures import ThreadPoolExecutor\n"
            f"with ThreadPoolExecutor({PARALLEL}) as pool:\n    for _ in range({shape.layers}):\n"
            f"        list(pool.map(lambda _: subprocess.run(['true'], check=True), range({shape.width})))\n"
        )
    file.write_text(text)


def commands(shape: Shape, folder: Path, resile: str) -> dict[str, list[str]]:
    """Write the shape for every tool into `folder`; the command of each, by its name."""
    parallel = str(1 if shape.width == 1 else PARALLEL)
    write_native(shape, folder / "flow.yaml")
    write_ninja(shape, folder / "build.ninja")
    write_make(shape, folder / "Makefile")
    write_xargs(shape, folder / "xargs.sh")
    write_python(shape, folder / "loop.py")
    return {
        "resile": [resile, "run", "flow.yaml", "--max-parallel", str(PARALLEL), "--json"],
        "ninja": ["ninja", f"-j{parallel}"],
        "make": ["make", f"-j{parallel}", "-s"],
        "xargs": ["sh", "xargs.sh"],
        "python loop": [sys.executable, "loop.py"],
    }
