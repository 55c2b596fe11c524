"""`make mutate`: change the source in small ways, one at a time, and count the changes that the tests notice.

Each mutant lives in a copy of the repository with an interpreter of its own. The tests of its folder run until the
first failure. A mutant that passes them all survives and is printed as a diff.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutate.mutants import Mutant, mutants_of, mutate

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutate"
COPIED = ("src", "tests", "examples", "docs", "bench", "pyproject.toml", "README.md", "CONTRIBUTING.md")
# Which tests notice a change of a folder, the quickest first.
SUITES: dict[str, tuple[str, ...]] = {
    "core": ("tests/core", "tests/explain", "tests/runs/ladder", "tests/runs/fanout"),
    "store": ("tests/store", "tests/engine"),
    "engine": ("tests/engine", "tests/api", "tests/cli", "tests/runs/ladder", "tests/runs/fanout"),
    "executors/local": ("tests/executors", "tests/runs/ladder", "tests/engine"),
}
SUITE_SECONDS_MAX = 240


class Copy:
    """A copy of the repository in which one mutant at a time is tested."""

    def __init__(self, number: int) -> None:
        self.root = BUILD / f"copy-{number}"
        shutil.rmtree(self.root, ignore_errors=True)
        for name in COPIED:
            target = self.root / name
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)
        home = self.root / ".venv"
        venv.create(home, symlinks=True, with_pip=False)
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "copy.pth").write_text(f"{self.root / 'src'}\n{sysconfig.get_path('purelib')}\n")
        self.python = home / "bin" / "python"

    def notices(self, mutant: Mutant, suites: tuple[str, ...]) -> str:
        """The test that notices a mutant; empty where none does."""
        file = self.root / mutant.path
        original = file.read_text()
        changed = mutate(original, mutant)
        if changed is None:
            return "equal"
        file.write_text(changed)
        try:
            return next(filter(None, map(self._failed_test, suites)), "")
        finally:
            file.write_text(original)

    def _failed_test(self, suite: str) -> str:
        """The first test of a suite that fails, or what else ended the suite; empty where every test passes."""
        argv = [str(self.python), "-B", "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", suite]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                argv, cwd=self.root, capture_output=True, timeout=SUITE_SECONDS_MAX, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            return f"{suite} did not end"
        if done.returncode == 0:
            return ""
        named = re.search(rb"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return named[1].decode() if named else f"{suite} did not start"


def arguments() -> argparse.Namespace:
    """What the caller asked for."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--sample", type=int, default=60, help="how many mutants to test")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many mutants of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--only", default="", help="only files below this folder of the package, such as core/recovery")
    return parser.parse_args()


def suites_of(path: str) -> tuple[str, ...]:
    """The suites for a file of the package."""
    inside = path.removeprefix("src/resile/")
    return next((suites for folder, suites in SUITES.items() if inside.startswith(f"{folder}/")), ())


def all_mutants(only: str) -> list[Mutant]:
    """Every mutant of the folders that are tested."""
    files = sorted(
        file.relative_to(ROOT).as_posix()
        for folder in SUITES
        for file in (ROOT / "src" / "resile" / folder).rglob("*.py")
    )
    chosen = [path for path in files if path.startswith(f"src/resile/{only}")]
    return [mutant for path in chosen for mutant in mutants_of(ROOT, path)]


def diff_of(mutant: Mutant) -> str:
    """The lines that a mutant changes."""
    before = (ROOT / mutant.path).read_text()
    after = mutate(before, mutant) or before
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), mutant.path, mutant.path, n=2, lineterm="")
    return "\n".join(lines)


def main() -> int:
    """Test a sample of mutants; the share that was noticed is the score."""
    options = arguments()
    everything = all_mutants(options.only)
    sample = random.Random(options.seed).sample(everything, min(options.sample, len(everything)))[options.skip :]
    print(f"{len(everything)} mutants, {len(sample)} of them are tested", flush=True)
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(options.jobs):
        copies.put(Copy(number))
    survivors: list[Mutant] = []
    tested = 0

    def test(mutant: Mutant) -> tuple[Mutant, str]:
        """Test one mutant in a copy that is free."""
        copy = copies.get()
        try:
            return mutant, copy.notices(mutant, suites_of(mutant.path))
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, noticed in pool.map(test, sample):
            if noticed == "equal":
                continue
            tested += 1
            print(f"{mutant.path} {mutant.operator} {mutant.occurrence}: {noticed or 'SURVIVED'}", flush=True)
            if not noticed:
                survivors.append(mutant)
    for mutant in survivors:
        print(diff_of(mutant))
    killed = tested - len(survivors)
    print(f"{killed} of {tested} mutants were noticed: {100 * killed // max(tested, 1)} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
