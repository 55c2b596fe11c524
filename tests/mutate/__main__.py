"""`make mutate`: change the source in small ways, one at a time, and count the changes that the tests notice.

The changes are made in core/, store/, engine/ and executors/local/ of the package. Each mutant lives in a copy of the
repository with an interpreter of its own. The tests of its folder run until the first failure. That test must
pass without the change and fail again with it. A mutant that passes them all survives and is printed as a diff.

A change that does the same when it runs is no mutant. One that only makes a wait or a size a little different is left
out too: where such a number is promised, a test names it. The report says how many of these were met.
"""

from __future__ import annotations

import argparse
import difflib
import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from queue import SimpleQueue

from tests.cluster import installed
from tests.mutate.copies import ROOT, Copy
from tests.mutate.mutants import Mutant, is_degree, mutants_of, mutate
from tests.mutate.suites import PACKAGE, RECORDS, SUITES, folder_of, tests_for


def arguments() -> argparse.Namespace:
    """What the caller asked for."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--sample", type=int, default=60, help="how many mutants to test")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many mutants of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--only", default="", help="only files below this folder of the package, such as core/recovery")
    parser.add_argument("--quick", action="store_true", help="run the nearest suite only, and count fewer as noticed")
    return parser.parse_args()


def all_mutants(only: str) -> list[Mutant]:
    """Every mutant of the folders that are covered."""
    files = {file.relative_to(ROOT).as_posix() for folder in SUITES for file in (ROOT / PACKAGE / folder).rglob("*.py")}
    if installed() is None:
        print("PostgreSQL is not installed, so store/postgres is left out", flush=True)
        files = {path for path in files if folder_of(path) != "store/postgres"}
    chosen = sorted(path for path in files if path.startswith(f"{PACKAGE}{only}"))
    return [mutant for path in chosen for mutant in mutants_of(ROOT, path)]


class Sample:
    """Mutants in a random order, without those that change nothing and those that only change a wait or a size."""

    def __init__(self, mutants: list[Mutant], seed: int) -> None:
        self._mutants = random.Random(seed).sample(mutants, len(mutants))
        self.degrees = 0

    def __iter__(self) -> Iterator[Mutant]:
        for mutant in self._mutants:
            text = (ROOT / mutant.path).read_text()
            changed = mutate(text, mutant)
            if changed is not None and is_degree(text, changed):
                self.degrees += 1
            elif changed is not None:
                yield mutant


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
    drawn = Sample(everything, options.seed)
    sample = list(islice(drawn, options.skip, options.sample))
    counts = Counter(folder_of(mutant.path) for mutant in sample)
    where = ", ".join(f"{counts[folder]} in {folder}" for folder in SUITES if counts[folder])
    print(f"{len(everything)} mutants, {len(sample)} of them are tested: {where}", flush=True)
    print(f"{drawn.degrees} others only change a wait or a size", flush=True)
    suites = {folder: SUITES[folder][: 1 if options.quick else None] for folder in counts}
    tests = {path: tests_for(ROOT, path, suites[folder_of(path)]) for path in {mutant.path for mutant in sample}}
    copies: SimpleQueue[Copy] = SimpleQueue()
    first = Copy(0)
    first.warm_up(sorted({RECORDS, *(suite for chosen in suites.values() for suite in chosen)}))
    for copy in (first, *(Copy(number, first.root) for number in range(1, options.jobs))):
        copies.put(copy)

    def test(mutant: Mutant) -> tuple[Mutant, str]:
        """Test one mutant in a copy that is free."""
        copy = copies.get()
        try:
            return mutant, copy.notices(mutant, tests[mutant.path])
        finally:
            copies.put(copy)

    survivors = tested = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(test, mutant) for mutant in sample]):
            mutant, noticed = done.result()
            tested += 1
            print(f"{mutant.path} {mutant.operator} {mutant.occurrence}: {noticed or 'SURVIVED'}", flush=True)
            if not noticed:
                survivors += 1
                print(diff_of(mutant), flush=True)
    killed = tested - survivors
    print(f"{killed} of {tested} mutants were noticed: {100 * killed // max(tested, 1)} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
