"""Copies of the repository in which mutants are tested, one at a time in each."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.mutate.mutants import Mutant, mutate

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutate"
COPIED = ("src", "tests", "examples", "docs", "bench", "pyproject.toml", "README.md", "CONTRIBUTING.md")
# A single test that runs for so long does not end: on an idle machine the longest takes ten seconds.
TEST_SECONDS_MAX = 90
GOODBYE_SECONDS = 20
# A test that did not end, or failed, runs again for so many times the seconds that it takes without the change.
AGAIN_FACTOR = 10
AGAIN_SECONDS_MIN = 20.0
# So many test files run first, then twice as many, and so on: pytest imports all files before it runs the first test.
FIRST_BATCH = 4
# A line of pytest about a test, which begins when the test does. It goes on with the end of an interrupted process.
TEST = re.compile(
    r"(?P<name>tests/[^: ]+::.*?) *( (PASSED|SKIPPED|XFAIL|(?P<end>FAILED|ERROR))( \(.*\))? *(\[ *\d+%\].*)?)?$"
)


class Failure(NamedTuple):
    """The first test of a run of tests that failed, and what happened to it."""

    test: str
    reason: str


class Copy:
    """A copy of the repository with an interpreter of its own."""

    def __init__(self, number: int, origin: Path = ROOT) -> None:
        """Copy the repository, or another copy of it with its byte code."""
        self.root = BUILD / f"copy-{number}"
        shutil.rmtree(self.root, ignore_errors=True)
        left_out = shutil.ignore_patterns("__pycache__") if origin is ROOT else None
        for name in COPIED:
            target = self.root / name
            if (origin / name).is_dir():
                shutil.copytree(origin / name, target, ignore=left_out)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin / name, target)
        home = self.root / ".venv"
        venv.create(home, symlinks=True, with_pip=False)
        (self.packages,) = home.glob("lib/python*/site-packages")
        (self.packages / "copy.pth").write_text(f"{self.root / 'src'}\n{sysconfig.get_path('purelib')}\n")
        self.python = home / "bin" / "python"
        self._mutants = 0
        # Tests that passed without a change, and the seconds that each took.
        self._passes: dict[str, float] = {}

    def warm_up(self, suites: Sequence[str]) -> None:
        """Write the byte code of all files, which then serves every mutant, and every copy of this copy."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for words in (["compileall", "-q", "src"], ["pytest", "-q", "--collect-only", *suites]):
            subprocess.run(
                [self.python, "-m", *words], cwd=self.root, env=environment, stdout=subprocess.DEVNULL, check=True
            )

    def notices(self, mutant: Mutant, tests: Sequence[str]) -> str:
        """The test that notices a mutant; empty where none does."""
        file = self.root / mutant.path
        original = file.read_text()
        changed = mutate(original, mutant)
        assert changed is not None
        self._mutants += 1
        times = file.stat()
        second = times.st_mtime_ns + self._mutants * 1_000_000_000

        def put(text: str, modified_ns: int) -> None:
            # Python knows byte code that is out of date by size and second, so each mutant has a second of its own.
            file.write_text(text)
            os.utime(file, ns=(times.st_atime_ns, modified_ns))

        def is_the_reason(failed: Failure) -> bool:
            """Whether a test passes without the change and fails again with it: it may fail by chance as well."""
            if failed.test not in self._passes:
                put(original, times.st_mtime_ns)
                began = time.monotonic()
                passes = self._first_failure([failed.test]) is None
                put(changed, second)
                if not passes:
                    return False
                self._passes[failed.test] = time.monotonic() - began
            patience = max(AGAIN_SECONDS_MIN, AGAIN_FACTOR * self._passes[failed.test])
            return self._first_failure([failed.test], min(patience, TEST_SECONDS_MAX)) is not None

        left, chance = list(tests), list[str]()
        count = FIRST_BATCH
        put(changed, second)
        try:
            while left:
                failed = self._first_failure([*left[:count], *chance])
                if failed is None:
                    left, count = left[count:], 2 * count
                    continue
                if is_the_reason(failed):
                    return f"{failed.test} {failed.reason}"
                print(f"{mutant}: {failed.test} {failed.reason} by chance", file=sys.stderr, flush=True)
                chance.append(f"--deselect={failed.test}")
                # The files before it passed.
                left = left[left.index(failed.test.partition("::")[0]) :]
        finally:
            put(original, times.st_mtime_ns)
        return ""

    def _first_failure(self, words: list[str], patience: float = TEST_SECONDS_MAX) -> Failure | None:
        """The first failure among some tests; None where all pass, or none is there."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        # The name of each test is written before it runs, so the last name is that of a test that does not end.
        argv = [str(self.python), "-m", "pytest", "-vv", "-x", "-m", "not slow", *words]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                argv, cwd=self.root, stdout=said, stderr=said, env=environment, start_new_session=True
            )
            ended = self._wait(process, said.fileno(), patience)
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
        if ended and process.returncode in (0, 5):
            return None
        started = [found for line in lines if (found := TEST.match(line))]
        if not ended:
            return Failure(started[-1]["name"] if started else words[0], "does not end")
        failed = [found["name"] for found in started if found["end"]]
        broken = [line.split(" ")[1] for line in lines if line.startswith("ERROR ")]
        return Failure(failed[0], "fails") if failed else Failure((broken or words)[0], "can't start")

    def _wait(self, process: subprocess.Popen[bytes], said: int, patience: float) -> bool:
        """Wait until the tests end. A test that doesn't is interrupted, so that it stops what it started."""
        size, until = -1, 0.0
        while process.poll() is None:
            now = time.monotonic()
            written = os.fstat(said).st_size
            if written != size:
                size, until = written, now + patience
            if now > until:
                _stop(process)
                return False
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
